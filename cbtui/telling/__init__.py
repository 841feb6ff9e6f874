"""What the screen says: steps, runs and requests in words. Pure."""
