"""Layers that networks are made of, and what is done to their inputs and weights."""
