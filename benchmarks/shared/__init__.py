"""Shared parts of benchmarks: rounds, targets, tables, a description of the machine."""
