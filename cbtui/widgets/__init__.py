"""The panels of the screen. Each takes a `Frame` in `show()` and has a pure renderer underneath."""
