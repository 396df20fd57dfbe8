"""Crafted directories of storages of both kinds."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storages.persistent.log import records as blocks
from storages.persistent.log.records import Record, StoredRecord, checksum_of
from tests.pytorchrl.crafted.case import Base, Case, halved

_Change = Callable[[Path, Base], None]


def _ring(change: _Change) -> Callable[[Base, Path], Path]:
    return lambda base, folder: _copied(base.ring, base, folder, change)


def _episodic(change: _Change) -> Callable[[Base, Path], Path]:
    return lambda base, folder: _copied(base.episodic, base, folder, change)


def _copied(whole: Path, base: Base, folder: Path, change: _Change) -> Path:
    shutil.copytree(whole, folder / "some")
    change(folder / "some", base)
    return folder / "some"


def _facts(name: str, do: Callable[[dict[str, Any]], object]) -> _Change:
    """Change facts, with a correct checksum."""

    def change(directory: Path, base: Base) -> None:
        facts = json.loads((directory / name).read_text())
        del facts["checksum"]
        do(facts)
        (directory / name).write_text(json.dumps(facts | {"checksum": checksum_of(facts)}))

    return change


def _ring_facts(**changed: Any) -> _Change:
    return _facts("storage.json", lambda facts: facts.update(changed))


def _episode_facts(**changed: Any) -> _Change:
    return _facts("episodes.json", lambda facts: facts.update(changed))


def _leaf(place: int, value: Any) -> Callable[[dict[str, Any]], object]:
    """Change the name (0), dtype (1) or shape (2) of the first leaf."""
    return lambda facts: facts["layout"][0].__setitem__(place, value)


def _written(name: str, content: bytes) -> _Change:
    return lambda directory, base: (directory / name).write_bytes(content) and None


def _linked(name: str) -> _Change:
    def change(directory: Path, base: Base) -> None:
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(base.text)

    return change


def _folder_linked(name: str) -> _Change:
    def change(directory: Path, base: Base) -> None:
        shutil.rmtree(directory / name)
        (directory / name).symlink_to(base.mine)

    return change


def _pipe(directory: Path, base: Base) -> None:
    os.mkfifo(directory / "000000000009.steps")


def _rewritten(suffix: str, do: Callable[[Record], Record]) -> _Change:
    """Change records, with correct checksums."""

    def change(directory: Path, base: Base) -> None:
        for path in directory.rglob(f"*.{suffix}"):
            found = [one.record for one in blocks.read(path) if isinstance(one, StoredRecord)]
            changed = [
                do(
                    Record(
                        one.commit,
                        one.first,
                        one.steps,
                        one.facts,
                        {name: (a[0].copy(),) for name, a in one.arrays.items()},
                    )
                )
                for one in found
            ]
            with path.open("wb") as file:
                for block in changed:
                    blocks.write(file.fileno(), block)

    return change


def _without_facts(block: Record) -> Record:
    return Record(block.commit, block.first, block.steps, {}, block.arrays)


def _without_arrays(block: Record) -> Record:
    return Record(block.commit, block.first, block.steps, block.facts, {})


def _halved_chunk(directory: Path, base: Base) -> None:
    for path in directory.rglob("c.*"):
        halved(path)


CASES = [
    Case(name, _ring(change), how, named)
    for name, change, how, named in (
        ("a negative size", _ring_facts(size=-5), "state", "storage.json"),
        ("environments that are a text", _ring_facts(num_envs="two"), "state", "storage.json"),
        ("a layout of objects", _facts("storage.json", _leaf(1, "|O")), "state", "storage.json"),
        ("a negative shape", _facts("storage.json", _leaf(2, [-3])), "ring", "storage.json"),
        ("a leaf without name", _facts("storage.json", _leaf(0, [])), "ring", "storage.json"),
        ("no layout", _facts("storage.json", lambda facts: facts.pop("layout")), "ring", "storage.json"),
        ("stacks that are a text", _ring_facts(stacked_frames="all"), "ring", "storage.json"),
        ("facts of another format", _ring_facts(format=99), "ring", "storage.json"),
        ("facts that are no JSON", _written("storage.json", b"{"), "ring", "storage.json"),
        ("facts that are a list", _written("storage.json", b"[]"), "data set", "storage.json"),
        ("nested facts", _written("storage.json", b"[" * 100_000), "ring", "storage.json"),
        ("unfinished facts that are a link", _linked("storage.json.new"), "ring", "storage.json.new"),
        ("a pipe, read", _pipe, "data set", "000000000009.steps"),
        ("commits without facts", _rewritten("steps", _without_facts), "ring", None),
        ("a file of steps that is a link, repaired", _linked("000000000001.steps"), "repaired", "000000000001.steps"),
    )
] + [
    Case(f"{name}, of episodes", _episodic(change), how, named)
    for name, change, how, named in (
        ("facts that are no JSON", _written("episodes.json", b"{"), "episodic", "episodes.json"),
        ("segments without rows", _episode_facts(segment_rows=0), "episodic", "episodes.json"),
        ("a file of zarr outside", _episode_facts(zarr={"../../../mine/zarr.json": {}}), "episodic", "episodes.json"),
        ("a leaf outside", _facts("episodes.json", _leaf(0, ["..", "mine"])), "episodic", "episodes.json"),
        ("a layout of objects", _facts("episodes.json", _leaf(1, "|O")), "data set", "episodes.json"),
        ("an ancestor of mine", _episode_facts(ancestor=["/tmp", 1, 1]), "episodic", None),
        ("an ancestor that is no path", _episode_facts(ancestors=[[3, 1, 1, ".."]]), "episodic", "episodes.json"),
        ("an ancestor without a commit", _episode_facts(ancestors=[["/", -1, 1, ""]]), "data set", "episodes.json"),
        ("a write-ahead log that is a link", _folder_linked("wal"), "data set", "wal"),
        ("errors that are a link", _linked("errors"), "episodic", "errors"),
        ("records without facts", _rewritten("segments", _without_facts), "data set", None),
        ("records without arrays", _rewritten("segments", _without_arrays), "episodic", None),
        ("chunks that are cut in half", _halved_chunk, "data set", None),
    )
]
