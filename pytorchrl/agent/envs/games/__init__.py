"""Atari and MinAtar games with their standard preprocessing."""
