"""A ring on disk: the write-ahead log, its manifest, and recovery."""
