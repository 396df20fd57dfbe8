"""Git repositories of tests."""

import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")


def git(*arguments: str, folder: Path | None = None) -> str:
    """Run git in a folder, or in the working directory; return its output."""
    finished = subprocess.run(["git", *_IDENTITY, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return finished.stdout.strip()
