"""Algorithms that learn from data, without acting."""
