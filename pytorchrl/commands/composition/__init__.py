"""Compose a run from names and values, of presets, files, the command line or a call."""
