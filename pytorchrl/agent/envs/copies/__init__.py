"""Copies of a Python environment, whose state can be restored by replay."""
