"""The cost of keeping experience on disk."""
