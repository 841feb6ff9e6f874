"""Policies: one small file each. The registry of what a user can switch to is `engine/modes.py`."""
