"""Servers that others run, observed: each source yields the records an engine of ours would leave.

A source never changes the server it watches. What it cannot know is said in its `Provenance`.
"""
