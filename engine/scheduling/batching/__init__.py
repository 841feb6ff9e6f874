"""Ways to batch: when requests may enter and how many tokens each gets in a step; one small file each.

The registry users choose from is `modes.py` beside this folder.
"""
