"""Several engines on one loaded model, their steps in turn."""
