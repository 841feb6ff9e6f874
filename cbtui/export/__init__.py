"""A recorded run as files other programs open: a module a format, each from a `RecordedRun` to text.

Pure: no files are read or written here, and no format knows of another.
"""
