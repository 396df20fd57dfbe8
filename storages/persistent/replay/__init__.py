"""Persistence of a ring buffer: the write-ahead log, its manifest, and recovery."""
