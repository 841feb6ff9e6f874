"""The screen in a browser: who may ask for it, and a program of its own for everyone who does.

Needs the extra `serve`. Knows nothing of engines or of what the screen shows.
"""
