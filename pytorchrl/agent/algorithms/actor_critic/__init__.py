"""Algorithms that learn a policy from the values of its actions."""
