"""Kernels compiled by numba: numpy arrays in and out, no torch."""
