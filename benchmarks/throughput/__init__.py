"""Steps per second of whole training loops."""
