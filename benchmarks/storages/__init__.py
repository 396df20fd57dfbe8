"""Microseconds of a batch, an insertion and the parts of both."""
