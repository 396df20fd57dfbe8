"""Possible states of a directory after a power cut, made from the changes of it.

A file system keeps synced data. It may have written a part of the later changes, in any order. ``MODELS`` lists the
ways in which this is simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.support.disk import Event

SYNCED, PREFIXES, NAMES_FIRST, LENGTHS_FIRST = MODELS = (
    "only what was synced",
    "what was synced, and the first later changes of each file and directory",
    "all names, and the synced data of files",
    "all names and lengths, and zeros where nothing was synced",
)
KILLED = "all changes, without a power cut"


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    later: list[Event] = field(default_factory=list)
    """Changes since it was synced."""


@dataclass
class _Directory:
    entries: dict[str, int] = field(default_factory=dict)
    """Numbers of files and directories, by name."""
    synced: dict[str, int] = field(default_factory=dict)
    later: list[tuple[str, int]] = field(default_factory=list)
    """Names that were created (or deleted: 0) since it was synced, in order."""

    def set(self, name: str, number: int) -> None:
        self.later.append((name, number))
        _set(self.entries, name, number)


class FileSystem:
    """A file system as strict as the standard allows: names are safe once their directory was synced.

    Args:
        root: existing, synced directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, _File | _Directory] = {1: _Directory()}
        self._open: dict[int, int] = {}
        """Numbers of files, by their inodes."""

    @classmethod
    def of(cls, root: Path) -> "FileSystem":
        """The current content of a directory, all of it synced."""
        found = cls(root)
        found._nodes[1] = found._read(root)
        found.go_on_in(root)
        return found

    def _read(self, path: Path) -> "_File | _Directory":
        if path.is_file():
            content = path.read_bytes()
            return _File(bytearray(content), content)
        entries = {}
        for entry in sorted(path.iterdir()):
            entries[entry.name] = number = len(self._nodes) + 1
            self._nodes[number] = _Directory()
            self._nodes[number] = self._read(entry)
        return _Directory(entries, dict(entries))

    def do(self, events: Sequence[Event]) -> None:
        for event in events:
            self._do(event)

    def go_on_in(self, root: Path) -> None:
        """Continue in the directory that was restored by :data:`KILLED`, so that further changes can follow."""
        self._root, self._open = root, {}
        self._find(1, root)

    def _find(self, number: int, path: Path) -> None:
        node = self._nodes[number]
        if isinstance(node, _File):
            self._open[path.stat().st_ino] = number
            return
        for name, child in node.entries.items():
            self._find(child, path / name)

    def _do(self, event: Event) -> None:
        match event.call:
            case "create" | "mkdir":
                number = len(self._nodes) + 1
                self._nodes[number] = _File() if event.call == "create" else _Directory()
                self._open[event.inode] = number
                self._parent(event.path).set(event.path.name, number)
            case "unlink":
                self._parent(event.path).set(event.path.name, 0)
            case "rename":
                assert event.target is not None
                source, target = self._parent(event.path), self._parent(event.target)
                assert source is target, "renamed within a directory, which is one change of it"
                number = source.entries[event.path.name]
                source.later.append((f"{event.path.name}\0{event.target.name}", number))
                _rename(source.entries, event.path.name, event.target.name, number)
            case "sync":
                self._sync(event)
            case _:
                file = self._file(event)
                file.later.append(event)
                _change(file.content, event)

    def _sync(self, event: Event) -> None:
        node = self._directory(event.path) or self._file(event)
        if isinstance(node, _Directory):
            node.synced = dict(node.entries)
        else:
            node.synced = bytes(node.content)
        node.later.clear()

    def _file(self, event: Event) -> _File:
        node = self._nodes[self._open[event.inode]]
        assert isinstance(node, _File)
        return node

    def _directory(self, path: Path) -> _Directory | None:
        node: _File | _Directory | None = self._nodes[1]
        for name in path.relative_to(self._root).parts:
            node = self._nodes.get(node.entries.get(name, 0)) if isinstance(node, _Directory) else None
        return node if isinstance(node, _Directory) else None

    def _parent(self, path: Path) -> _Directory:
        found = self._directory(path.parent)
        assert found is not None, path
        return found

    def restore(self, model: str, target: Path, random: np.random.Generator) -> None:
        """Write the files that are left after a power cut below an existing directory."""
        self._restore(1, model, target, random)

    def _restore(self, number: int, model: str, target: Path, random: np.random.Generator) -> None:
        node = self._nodes[number]
        if isinstance(node, _File):
            target.write_bytes(_left_of_file(node, model, random))
            return
        target.mkdir(exist_ok=True)
        for name, child in _left_of_directory(node, model, random).items():
            self._restore(child, model, target / name, random)


def _left_of_file(file: _File, model: str, random: np.random.Generator) -> bytes:
    if model == KILLED:
        return bytes(file.content)
    if model == LENGTHS_FIRST:
        known = file.synced[: len(file.content)]
        return known + bytes(len(file.content) - len(known))
    content = bytearray(file.synced)
    if model == PREFIXES and file.later:
        done = int(random.integers(len(file.later) + 1))
        for event in file.later[:done]:
            _change(content, event)
        if done < len(file.later) and file.later[done].call == "write":
            part = file.later[done].data[: int(random.integers(len(file.later[done].data) + 1))]
            _change(content, Event("write", Path(), data=part, place=file.later[done].place))
    return bytes(content)


def _left_of_directory(directory: _Directory, model: str, random: np.random.Generator) -> dict[str, int]:
    if model in (NAMES_FIRST, LENGTHS_FIRST, KILLED):
        return directory.entries
    entries = dict(directory.synced)
    if model == PREFIXES:
        for name, number in directory.later[: int(random.integers(len(directory.later) + 1))]:
            if "\0" in name:
                _rename(entries, *name.split("\0"), number)
            else:
                _set(entries, name, number)
    return entries


def _change(content: bytearray, event: Event) -> None:
    content.extend(bytes(max(0, event.place - len(content))))
    if event.call == "truncate":
        del content[event.place :]
    else:
        content[event.place : event.place + len(event.data)] = event.data


def _set(entries: dict[str, int], name: str, number: int) -> None:
    if number:
        entries[name] = number
    else:
        entries.pop(name, None)


def _rename(entries: dict[str, int], source: str, target: str, number: int) -> None:
    entries.pop(source, None)
    entries[target] = number
