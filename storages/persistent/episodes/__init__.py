"""Whole episodes on disk: unfinished ones in a write-ahead log, finished ones in zarr segments."""
