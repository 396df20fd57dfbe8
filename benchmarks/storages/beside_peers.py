"""Our storages beside cpprb, rlox, torchrl, tianshou and stable-baselines3, in one run on one torch thread.

Compared are the parts that a training loop waits for: a batch as torch tensors (observations, actions, rewards, next
observations, ends) out of a million transitions, also by priority; inserting a step; stacks of frames; advantages.
Repetitions alternate between the libraries; a ratio is the median of those of neighbouring repetitions. Libraries that
are not installed are left out (``pip install -c constraints.txt -e ".[bench]"`` installs them all).
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro
from rich.table import Table

from benchmarks.shared.contest import Contest, Target, measure
from benchmarks.shared.rounds import machine, wide_console
from benchmarks.storages.bare_gather import bare_gather
from benchmarks.storages.replay_content import (
    ACTION,
    FRAMES,
    OBSERVATION,
    PEERS_IN_MEMORY,
    SIDE,
    Content,
    load_peers,
    rollout,
    stacks,
    states,
)
from benchmarks.storages.replay_ours import Library, Ours

PointName: TypeAlias = Literal["uniform", "prioritized", "n_step", "insert_1", "insert_256", "pixels", "gae"]

_PACKAGES = ("torch", "numpy", "numba", "cpprb", "rlox", "tianshou", "torchrl", "tensordict", "stable-baselines3")
_BARE, _BARE_AHEAD = "bare gather", "bare gather, asking ahead"
_ONE_STEP, _WHOLE = "storages, 1 step", "storages, all of before_gradients"


@dataclass
class Arguments:
    """What to measure."""

    only: PointName | None = None
    """Measure one point alone."""
    repetitions: int = 15
    """Of each library, from 3; ``quick`` makes it 3."""
    quick: bool = False
    """Show in half a minute that everything works; the storages are small and the figures mean little."""
    scaling: bool = False
    """Measure instead how the cost of a batch grows from 10,000 to 10,000,000 transitions."""
    json: Path | None = None
    """Write the figures here too."""


@dataclass(frozen=True)
class Sizes:
    """How much is stored, drawn, inserted and timed."""

    transitions: int = 1_000_000
    batch: int = 256
    n: int = 3
    inserted: int = 5_000
    several_environments: int = 256
    inserted_of_several: int = 256 * 400
    stacks: int = 20_000
    batch_of_stacks: int = 32
    rollout: tuple[int, int] = (2_048, 16)
    calls: int = 300
    scaling: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    repetitions: int = 15


_QUICK = Sizes(
    transitions=20_000,
    inserted=1_000,
    inserted_of_several=256 * 20,
    stacks=500,
    calls=20,
    scaling=(10_000, 100_000),
    repetitions=3,
)


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    if arguments.repetitions < 3:
        raise SystemExit(f"--repetitions must be at least 3 for a median, got {arguments.repetitions}")
    torch.set_num_threads(1)
    console = wide_console()
    sizes = _QUICK if arguments.quick else Sizes(repetitions=arguments.repetitions)
    peers, remarks = ([], []) if arguments.scaling else load_peers(PEERS_IN_MEMORY)
    versions = machine(*_PACKAGES)
    console.print(", ".join(f"{name} {value}" for name, value in versions.items()), highlight=False)
    for remark in remarks:
        console.print(remark, highlight=False)

    figures: dict[str, Any] = {"machine": versions, "remarks": remarks}
    if arguments.scaling:
        costs = {transitions: _cost(transitions, sizes) for transitions in sizes.scaling}
        console.print(_scaling_table(costs, sizes))
        figures["scaling_us"] = costs
    else:
        for name in [arguments.only] if arguments.only else list(_POINTS):
            contest = _POINTS[name]([Ours(), *peers], sizes)
            console.print(contest.table(), highlight=False)
            figures[name] = contest.figures()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _uniform(libraries: list[Library], sizes: Sizes) -> Contest:
    content = states(sizes.transitions)
    work = {library.name: library.uniform(content, sizes.batch) for library in libraries}
    return _contest(
        f"Uniform sampling: {sizes.batch} of {_many(sizes)}",
        work | _limits(content, sizes.batch),
        sizes,
        Target(1.5),
        Target(1 / 1.5, _BARE),
    )


def _prioritized(libraries: list[Library], sizes: Sizes) -> Contest:
    content = states(sizes.transitions)
    work = {library.name: library.prioritized(content, sizes.batch) for library in libraries}
    title = f"Prioritised sampling and updating: {sizes.batch} of {_many(sizes)}"
    return _contest(title, work, sizes, Target(2.0))


def _n_step(libraries: list[Library], sizes: Sizes) -> Contest:
    content = states(sizes.transitions)
    work = {library.name: library.n_step(content, sizes.batch, sizes.n) for library in libraries}
    return _contest(
        f"{sizes.n}-step sampling: {sizes.batch} of {_many(sizes)} (cpprb and torchrl sum when they insert)",
        work | {_ONE_STEP: libraries[0].uniform(content, sizes.batch)},
        sizes,
        Target(1 / 1.4, _ONE_STEP),
    )


def _insert_1(libraries: list[Library], sizes: Sizes) -> Contest:
    content = states(sizes.inserted)
    work = {library.name: library.insertion(content) for library in libraries}
    return _contest("Inserting a step of 1 environment", work, sizes)


def _insert_256(libraries: list[Library], sizes: Sizes) -> Contest:
    content = states(sizes.inserted_of_several, sizes.several_environments)
    work = {library.name: library.insertion(content) for library in libraries}
    title = f"Inserting a step of {sizes.several_environments} environments"
    return _contest(title, work, sizes, Target(2.0))


def _pixels(libraries: list[Library], sizes: Sizes) -> Contest:
    content = stacks(sizes.stacks)
    work = {library.name: library.uniform(content, sizes.batch_of_stacks) for library in libraries}
    return _contest(
        f"Uniform sampling: {sizes.batch_of_stacks} stacks of {FRAMES} frames {SIDE} x {SIDE} of {sizes.stacks:,}",
        work | _limits(content, sizes.batch_of_stacks),
        sizes,
        Target(1.0),
    )


def _gae(libraries: list[Library], sizes: Sizes) -> Contest:
    content = rollout(*sizes.rollout)
    work = {library.name: library.advantages(content) for library in libraries}
    title = "Generalized advantages and returns of {:,} steps x {} environments".format(*sizes.rollout)
    return _contest(title, work | {_WHOLE: Ours().whole_update_phase(content)}, sizes, Target(1.0))


_POINTS: Mapping[PointName, Callable[[list[Library], Sizes], Contest]] = {
    "uniform": _uniform,
    "prioritized": _prioritized,
    "n_step": _n_step,
    "insert_1": _insert_1,
    "insert_256": _insert_256,
    "pixels": _pixels,
    "gae": _gae,
}


def _limits(content: Content, batch_size: int) -> dict[str, Callable[[], object]]:
    """Return the lower bounds of the machine: copies out of plain arrays."""
    return {
        _BARE: bare_gather(content, batch_size),
        _BARE_AHEAD: bare_gather(content, batch_size, ask_ahead=True),
    }


def _contest(title: str, work: Mapping[str, Callable[[], object] | None], sizes: Sizes, *targets: Target) -> Contest:
    there = {name: call for name, call in work.items() if call is not None}
    ours, not_peers = next(iter(there)), {_BARE, _BARE_AHEAD, _ONE_STEP, _WHOLE}
    peers = [name for name in there if name != ours and name not in not_peers]
    return Contest(title, measure(there, sizes.repetitions, sizes.calls), peers, targets)


def _many(sizes: Sizes) -> str:
    return f"{sizes.transitions:,} transitions, {OBSERVATION} and {ACTION} numbers"


_SCALING_ENVIRONMENTS = 100
"""Filling ten million transitions one by one would take minutes."""


def _cost(transitions: int, sizes: Sizes) -> dict[str, float]:
    content, ours = states(transitions, _SCALING_ENVIRONMENTS), Ours()
    work = {
        "uniform": ours.uniform(content, sizes.batch),
        "prioritized": ours.prioritized(content, sizes.batch),
        **_limits(content, sizes.batch),
    }
    contest = Contest("", measure(work, sizes.repetitions, sizes.calls), [])
    return {name: contest.median(name) for name in work}


def _scaling_table(costs: Mapping[int, Mapping[str, float]], sizes: Sizes) -> Table:
    title = f"Microseconds for a batch of {sizes.batch}, by what is stored; in brackets beside the smallest storage"
    table = Table(title=title, title_justify="left")
    table.add_column("transitions", justify="right")
    smallest = next(iter(costs.values()))
    for name in smallest:
        table.add_column(name, justify="right")
    for transitions, cost in costs.items():
        cells = (f"{us:,.1f} ({us / smallest[name]:.2f})" for name, us in cost.items())
        table.add_row(f"{transitions:,}", *cells)
    return table


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
