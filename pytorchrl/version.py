"""The version of the toolkit, and the name under which it is installed."""

VERSION = "0.1.0"
DISTRIBUTION = "pytorchrl-toolkit"
"""Its name on an index of packages, where ``pytorchrl`` is another project's."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of the toolkit, for messages."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'
