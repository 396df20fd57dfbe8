"""Layers of networks, initialisation of weights, and normalisation of observations."""
