"""Compiled loops: numpy arrays in and out, no torch."""
