"""Wrappers: spaces that an algorithm needs, rewards and observations made easier or harder."""
