"""The content of a folder, for later comparison."""

from pathlib import Path


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and modification time of every file and folder."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
    }
