"""What a sweep tries: values, trials in processes, and what came of them."""
