"""Parts of a sweep: ranges of values, trials in processes, and results."""
