"""Commit logs and the files beside them: records, log files, the lock, manifests, zarr chunks and JSON files."""
