"""Crafted run folders."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.pytorchrl.crafted.case import Base, Case, flipped, saved

_NO_COMMIT = {"commit": 0, "checksum": 0}
_Change = Callable[[Path, Base], None]


def _run(change: _Change) -> Callable[[Base, Path], Path]:
    """An intact run to which a change is applied."""

    def make(base: Base, folder: Path) -> Path:
        shutil.copytree(base.run, folder / "some")
        change(folder / "some", base)
        return folder / "some"

    return make


def _config(do: Callable[[dict[str, Any]], object]) -> _Change:
    """Change the configuration, also in the checkpoint."""

    def change(run: Path, base: Base) -> None:
        config = json.loads((run / "config.json").read_text())
        do(config)
        (run / "config.json").write_text(json.dumps(config))
        state = torch.load(run / "checkpoint.pt", weights_only=True)
        state["config"] = {name: config.get(name) for name in state["config"]}
        saved(run / "checkpoint.pt", state)

    return change


def _with_config(**changed: Any) -> _Change:
    return _config(lambda config: config.update(changed))


def _of(part: str, **changed: Any) -> _Change:
    return _config(lambda config: config[part]["hyper_parameters"].update(changed))


def _state(do: Callable[[dict[str, Any]], object]) -> _Change:
    def change(run: Path, base: Base) -> None:
        state = torch.load(run / "checkpoint.pt", weights_only=True)
        do(state)
        saved(run / "checkpoint.pt", state)

    return change


def _directory(named: Callable[[Base], Any]) -> _Change:
    """Move the storage elsewhere, with a position before the first commit."""

    def change(run: Path, base: Base) -> None:
        _of("storage", directory=named(base))(run, base)
        _state(lambda state: state["scheme"]["storage"].update(position=_NO_COMMIT))(run, base)

    return change


def _storage_linked(run: Path, base: Base) -> None:
    shutil.rmtree(run / "replay")
    (run / "replay").symlink_to(base.mine)
    _state(lambda state: state["scheme"]["storage"].update(position=_NO_COMMIT))(run, base)


def _linked(name: str) -> _Change:
    def change(run: Path, base: Base) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(base.text)

    return change


def _logs_linked(run: Path, base: Base) -> None:
    _with_config(log_to=["tensorboard"])(run, base)
    (run / "tensorboard").symlink_to(base.mine)


def _written(content: str) -> _Change:
    return lambda run, base: (run / "config.json").write_text(content) and None


def _pipe(run: Path, base: Base) -> None:
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")


def _weights_of_other_shapes(state: dict[str, Any]) -> None:
    def halved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: halved(part) for name, part in value.items()}
        return value[: len(value) // 2] if isinstance(value, torch.Tensor) and value.ndim else value

    state["scheme"]["algorithm"] = halved(state["scheme"]["algorithm"])


def _in(*path: str, value: Any) -> _Change:
    """Change a value in the state of the scheme."""

    def change(state: dict[str, Any]) -> None:
        place = state["scheme"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return _state(change)


def _history(**changed: Any) -> _Change:
    """Change the history of an environment."""
    return _state(lambda state: state["scheme"]["collector"]["envs"]["histories"][0].update(changed))


def _damaged(run: Path, base: Base) -> None:
    flipped(run / "checkpoint.pt", (run / "checkpoint.pt").stat().st_size // 2)


def _of_another(state: dict[str, Any]) -> None:
    state["scheme"]["storage"]["position"] = {"commit": 1, "checksum": 7}


def _measured(content: str) -> _Change:
    return lambda run, base: (run / "metrics.jsonl").write_text(content) and None


def _with_holes(run: Path, base: Base) -> None:
    with (run / "metrics.jsonl").open("wb") as file:
        file.truncate(10**11)


def _episodes_of_mine(run: Path, base: Base) -> None:
    _directory(lambda base: str(base.mine))(run, base)
    _state(lambda state: state["scheme"]["storage"].update(archive={"commit": 0, "checksum": 0}))(run, base)


CASES = (
    [
        Case(name, _run(change), "resumed", named)
        for name, change, named in (
            ("no JSON", _written("{"), "config.json"),
            ("a list", _written("[]"), "config.json"),
            ("nested lists", _written("[" * 100_000), "config.json"),
            ("a pipe", _pipe, "config.json"),
            ("no algorithm", _config(lambda config: config.pop("algorithm")), "config.json"),
            (
                "hyper-parameters that are a list",
                _with_config(actor={"name": "OffPolicyActor", "hyper_parameters": []}),
                "config.json",
            ),
            ("an unknown class", _with_config(actor={"name": "os.system", "hyper_parameters": {}}), "os.system"),
            ("an unknown hyper-parameter", _of("actor", what=1), "config.json"),
            ("a hyper-parameter of another kind", _of("actor", hidden_sizes="large"), "config.json"),
            ("a target that is negative", _with_config(target_steps=-1), "config.json"),
            ("10^12 checkpoints", _with_config(keep_checkpoints=10**12), "config.json"),
            ("no logs", _config(lambda config: config.pop("log_to")), "config.json"),
            ("logs that are a number", _with_config(log_to=3), "config.json"),
            ("a device that is a list", _with_config(device=[]), "config.json"),
            ("a module to import", _of("train_envs", env="os:system"), "os:system"),
            ("a function", _of("train_envs", env={"callable": "os.system"}), "os.system"),
            (
                "videos to write",
                _of("train_envs", wrappers=[["RecordVideo", {"video_folder": "/tmp/v"}]]),
                "RecordVideo",
            ),
            (
                "a storage of mine by a relative path",
                _directory(lambda base: {"in_run_folder": f"../../../{base.mine.parent.name}/mine"}),
                "config.json",
            ),
            ("a storage of mine by an absolute path", _directory(lambda base: str(base.mine)), "config.json"),
            (
                "a storage of mine as if in the run folder",
                _directory(lambda base: {"in_run_folder": str(base.mine)}),
                "config.json",
            ),
            ("a storage of mine by a link", _storage_linked, "config.json"),
            ("a storage in a new folder", _directory(lambda base: str(base.mine / "new")), "config.json"),
            ("a storage in a number", _of("storage", directory=3), "config.json"),
            ("a configuration that is a link", _linked("config.json"), "config.json"),
            ("metrics that are a link", _linked("metrics.jsonl"), "metrics.jsonl"),
            ("a checkpoint that is a link", _linked("checkpoint.pt"), "checkpoint.pt"),
            ("logs that are a link", _logs_linked, "tensorboard"),
            ("a damaged checkpoint", _damaged, "checkpoint.pt"),
            ("no checkpoint", lambda run, base: (run / "checkpoint.pt").unlink(), "checkpoint.pt"),
            ("a checkpoint without a scheme", _state(lambda state: state.pop("scheme")), "checkpoint.pt"),
            ("a checkpoint without a composition", _state(lambda state: state.pop("config")), "checkpoint.pt"),
            ("a checkpoint without a learner", _state(lambda state: state.pop("learner")), "checkpoint.pt"),
            ("a checkpoint without a storage", _state(lambda state: state["scheme"].pop("storage")), "checkpoint.pt"),
            ("weights of other shapes", _state(_weights_of_other_shapes), "checkpoint.pt"),
            (
                "a position that is a text",
                _state(lambda state: state["scheme"]["storage"].update(position="end")),
                "checkpoint.pt",
            ),
            (
                "a position of another storage",
                _state(_of_another),
                "checkpoint.pt",
            ),
            ("no optimisers", _in("algorithm", "training", "optimizers", value={}), "checkpoint.pt"),
            ("targets that are a list", _in("algorithm", "training", "targets", value=[]), "checkpoint.pt"),
            (
                "updates that are a text",
                _in("algorithm", "training", "counters", value={"updates": "x"}),
                "checkpoint.pt",
            ),
            ("generators that are numbers", _in("algorithm", "generators", value=[1, 2]), "checkpoint.pt"),
            ("exploration that is a text", _in("collector", "exploration", value="x"), "checkpoint.pt"),
            ("exploration without a generator", _in("collector", "exploration", "random", value={}), "checkpoint.pt"),
            ("a negative seed", _history(seed=-5), "checkpoint.pt"),
            ("a seed that is a text", _history(seed="5"), "checkpoint.pt"),
            ("actions that do not exist", _history(actions=torch.full((60,), 9)), "checkpoint.pt"),
            ("actions that are fractions", _history(actions=torch.full((60,), 0.5)), "checkpoint.pt"),
            (
                "environments that are a number",
                _state(lambda state: state["scheme"].update(collector=3)),
                "checkpoint.pt",
            ),
        )
    ]
    + [
        Case(f"{name}, acting", _run(change), "agent", named)
        for name, change, named in (
            ("weights of other shapes", _state(_weights_of_other_shapes), "checkpoint.pt"),
            ("no algorithm", _config(lambda config: config.pop("algorithm")), "config.json"),
            ("an unknown hyper-parameter", _of("actor", what=1), "config.json"),
        )
    ]
    + [
        Case(name, _run(change), how, named)
        for name, change, how, named in (
            ("metrics of texts", _measured('{"steps": "many"}\n'), "metrics", "metrics.jsonl"),
            ("metrics that are lists", _measured("[]\n"), "metrics", "metrics.jsonl"),
            ("nested metrics", _measured("[" * 100_000 + "\n"), "metrics", "metrics.jsonl"),
            ("metrics of large numbers", _measured('{"steps": 1' + "0" * 4000 + "}\n"), "metrics", "metrics.jsonl"),
            ("metrics with holes", _with_holes, "metrics", "metrics.jsonl"),
            ("episodes of mine", _episodes_of_mine, "run's episodes", "mine"),
            ("a checkpoint without a scheme, inspected", _state(lambda state: state.pop("scheme")), "inspected", None),
            ("a position of another storage, inspected", _state(_of_another), "inspected", "checkpoint.pt"),
            ("a storage of mine, inspected", _directory(lambda base: str(base.mine)), "inspected", "checkpoint.pt"),
        )
    ]
)
