"""Algorithms that learn to act as an expert does."""
