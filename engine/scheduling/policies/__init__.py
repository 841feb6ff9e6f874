"""Policies: one small file each. The registry users choose from is `modes.py` beside this folder."""
