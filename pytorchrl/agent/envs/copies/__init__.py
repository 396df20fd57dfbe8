"""Copies of a Python environment, which come back to where they were."""
