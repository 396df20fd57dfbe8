"""Wrappers that change actions, rewards or observations."""
