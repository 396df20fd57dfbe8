"""What is in a folder, to be compared later."""

from pathlib import Path


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file and folder, its bytes and when it was changed last."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }
