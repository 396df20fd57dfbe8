"""Samplers of rows (uniform, prioritised, recent), and the index of episodes."""
