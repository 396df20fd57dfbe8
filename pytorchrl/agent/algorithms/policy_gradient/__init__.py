"""Algorithms that follow the gradient of what the current policy earns."""
