"""Plots of runs, data sets and storages."""
