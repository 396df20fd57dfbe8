"""Imitation learning algorithms."""
