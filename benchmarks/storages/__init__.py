"""Microseconds of sampling a batch, of an insertion, and of the parts of both."""
