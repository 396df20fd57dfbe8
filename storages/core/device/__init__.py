"""Transfer of batches to the algorithm's device, prefetching, and a device cache."""
