"""Finished greedy requests, run again alone and held against what was served."""
