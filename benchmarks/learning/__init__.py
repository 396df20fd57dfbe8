"""Returns after training, over several seeds."""
