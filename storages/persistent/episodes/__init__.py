"""Whole episodes on disk: those that run in a write-ahead log, those that ended in zarr segments."""
