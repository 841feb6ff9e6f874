"""The command line: `launch` opens the screen, `compare` and `run` work without one.

`app` holds the commands and their options and imports nothing heavy; each command's work is a module of
its own, imported when it is asked for.
"""
