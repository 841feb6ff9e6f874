"""A race as the screen sees it: what it is between, how its lanes stand, what it says. Pure."""
