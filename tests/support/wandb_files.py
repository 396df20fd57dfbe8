"""The files of offline runs of wandb, read as wandb would send them."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]


def run_files(log_dir: Path) -> list[Path]:
    """wandb's files of a run folder's offline runs, the older first."""
    # The files of a finished run may not be on disk yet; they are when the service has ended.
    wandb.teardown()
    # Folders are named by the second of their creation, with a number if that is not unique.
    return sorted(log_dir.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name)


def recorded(path: Path) -> Iterator[Record]:
    """The records of a wandb file, which is a log as LevelDB writes it."""
    content, position, payload = path.read_bytes(), 7, b""
    while position + 7 <= len(content):
        left_in_block = 32768 - position % 32768
        if left_in_block < 7:
            position += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        payload += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last of several parts
            yield Record.FromString(payload)
            payload = b""


def history(path: Path) -> list[dict[str, float]]:
    """The logged values, without those that wandb adds."""
    rows = []
    for record in recorded(path):
        if record.WhichOneof("record_type") == "history":
            items = [("/".join(item.nested_key) or item.key, item.value_json) for item in record.history.item]
            rows.append({name: json.loads(value) for name, value in items if not name.startswith("_")})
    return rows


def start(path: Path) -> Any:
    return next(record.run for record in recorded(path) if record.WhichOneof("record_type") == "run")


def config_of(path: Path) -> dict[str, Any]:
    """The composition of the run, as wandb finally shows it."""
    config: dict[str, Any] = {}
    for record in recorded(path):
        kind = record.WhichOneof("record_type")
        changes = record.run.config if kind == "run" else record.config if kind == "config" else None
        for item in changes.update if changes is not None else ():
            config["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    config.pop("_wandb", None)
    return {name: value for name, value in config.items() if not name.startswith("_wandb/")}


def tables_of(log_dir: Path) -> list[Path]:
    return sorted(log_dir.glob("wandb/offline-run-*/files/media/table/**/*.table.json"))


def summary_of(path: Path) -> dict[str, Any]:
    """The run's summary, as wandb finally shows it."""
    summary: dict[str, Any] = {}
    for record in recorded(path):
        if record.WhichOneof("record_type") == "summary":
            for item in record.summary.update:
                summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return {name: value for name, value in summary.items() if not name.startswith("_")}
