"""Colours, themes, styled lines and the visible text of tokens. Pure."""
