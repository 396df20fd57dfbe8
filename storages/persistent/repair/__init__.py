"""Repair of damaged directories: what is damaged is dropped, the rest is kept."""
