"""Repair of damaged directories: drop damaged parts, keep the rest."""
