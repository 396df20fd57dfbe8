"""Environments, actors, algorithms and storages: what a user composes."""
