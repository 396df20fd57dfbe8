"""Batches on the device where the algorithm computes: transfer, prefetching, cache."""
