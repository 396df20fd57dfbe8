"""The commands of ``python -m pytorchrl``."""
