"""The version of the toolkit, and the name by which it is installed."""

VERSION = "0.1.0"
DISTRIBUTION = "pytorchrl-toolkit"
"""Name of the package on an index, where ``pytorchrl`` is another project's."""
