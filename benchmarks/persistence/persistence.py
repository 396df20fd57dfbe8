"""Cost of keeping experience on disk: ours beside PFRL, torchrl and Minari, in one run on one torch thread.

Transitions per second until they are on disk; the cost of a directory in a training loop; seconds to reopen a million
transitions; bytes on disk of the same CartPole and Pong. Repetitions alternate between the libraries; ratios are
medians of those of neighbouring repetitions. Files are in the page cache when they are read, for all libraries.
Libraries that are not installed are left out (``pip install -c constraints.txt -e ".[bench,data]"`` installs them all).
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import floor, sqrt
from pathlib import Path
from typing import Any, Literal, TypeAlias

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro

from benchmarks.persistence.disk_content import PickledList, cartpole, numbers, pong
from benchmarks.persistence.disk_ours import AT_ONCE, DURABLE, IN_MEMORY, OURS, Keeper
from benchmarks.persistence.training_cost import WITH, WITHOUT, block, learners
from benchmarks.shared.rounds import Goal, Rounds, in_turn, machine, wide_console
from benchmarks.storages.replay_content import PEERS_ON_DISK, load_peers

PointName: TypeAlias = Literal["journal", "training", "reopening", "bytes"]

_PACKAGES = ("torch", "numpy", "numba", "zarr", "pfrl", "torchrl", "tensordict", "minari", "h5py", "pyarrow")
_READ_AT_ONCE_BYTES = 1 << 20


@dataclass
class Arguments:
    """What to measure."""

    only: PointName | None = None
    """Measure one point alone."""
    repetitions: int = 5
    """Of each row, from 3, and of pairs of training blocks five times as many; ``quick`` makes it 3."""
    quick: bool = False
    """Show in half a minute that everything works; the figures mean little."""
    folder: Path | None = None
    """Which disk to measure; where the system keeps temporary files, if left out."""
    json: Path | None = None
    """Write the figures here too."""


@dataclass(frozen=True)
class Sizes:
    """How much is written, read and timed."""

    journalled: int = 50_000
    several_environments: int = 8
    reopened: int = 1_000_000
    cartpole: int = 50_000
    frames: int = 4_000
    block_steps: int = 100
    blocks: int = 25
    repetitions: int = 5
    quick: bool = False


_QUICK = Sizes(
    journalled=4_000, reopened=20_000, cartpole=2_000, frames=400, block_steps=20, blocks=3, repetitions=3, quick=True
)

_AT_LEAST_TIMES_PFRL, _AT_LEAST_TIMES_TORCHRL = 5.0, 1.0
_AT_MOST_SLOWER = 0.05
_AT_MOST_SECONDS, _AT_MOST_TIMES_A_READ = 2.0, 3.0
_AT_MOST_TIMES_THE_PICKLE = 0.6


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    if arguments.repetitions < 3:
        raise SystemExit(f"--repetitions must be at least 3 for a median, got {arguments.repetitions}")
    torch.set_num_threads(1)
    console = wide_console()
    sizes = Sizes(blocks=5 * arguments.repetitions, repetitions=arguments.repetitions)
    if arguments.quick:
        sizes = _QUICK
    peers, remarks = load_peers(PEERS_ON_DISK)
    versions = machine(*_PACKAGES)
    console.print(", ".join(f"{name} {value}" for name, value in versions.items()), highlight=False)
    for remark in remarks:
        console.print(remark, highlight=False)

    figures: dict[str, Any] = {"machine": versions, "remarks": remarks}
    for name in [arguments.only] if arguments.only else list(_POINTS):
        figures[name] = []
        for measured in _POINTS[name](peers, sizes, arguments.folder):
            measured.print(console)
            figures[name].append({"title": measured.title, **measured.figures()})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


# Transitions a second until they are on disk


def _wal(peers: list[Keeper], sizes: Sizes, folder: Path | None) -> Iterable[Rounds]:
    for environments in (1, sizes.several_environments):
        keepers: list[Keeper] = [*OURS, DURABLE, AT_ONCE, *peers, IN_MEMORY]
        work = {keeper.name: _storing(keeper, sizes, environments, folder) for keeper in keepers}
        for keeper in keepers:
            # Compiles what is compiled, before the clock starts.
            _storing(keeper, _QUICK, environments, folder)()
        measured = Rounds(
            f"Transitions a second until they are on disk, {environments} environment{'s' * (environments > 1)} "
            f"(Minari is handed whole episodes)",
            "transitions/s",
            lambda seconds: f"{1 / seconds:,.0f}",
            in_turn(work, 2 * sizes.repetitions - 1),
            "a killed process finds again",
            {keeper.name: keeper.promise for keeper in keepers},
        )
        for name, times in (("PFRL", _AT_LEAST_TIMES_PFRL), ("torchrl", _AT_LEAST_TIMES_TORCHRL)):
            for ours in (keeper for keeper in (*OURS, AT_ONCE) if name in measured.rows):
                # Episodes are put beside episodes.
                peer = f"{name}, episodes" if ours.keeps_episodes and f"{name}, episodes" in measured.rows else name
                ratio = measured.ratio(peer, ours.name)
                target = f"{ours.name}: at least {times:g}x the rate of {peer}"
                measured.goals.append(Goal(target, f"{ratio:.1f}x", ratio >= times))
        yield measured


def _storing(keeper: Keeper, sizes: Sizes, environments: int, folder: Path | None) -> Callable[[], float]:
    """Return a function that measures the seconds per transition."""
    content = numbers(sizes.journalled // keeper.share_of_storing, environments)

    def call() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            store = keeper.storing(content, Path(temporary) / "kept")
            started = time.perf_counter()
            close = store()
            seconds = time.perf_counter() - started
            close()
        return seconds / content.transitions

    return call


# What a directory costs a training loop


def _training(peers: list[Keeper], sizes: Sizes, folder: Path | None) -> Iterable[Rounds]:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        both = learners(Path(temporary), sizes.block_steps, sizes.quick)
        work = {name: block(learner, sizes.block_steps) for name, learner in both.items()}
        measured = Rounds(
            f"SAC on Pendulum-v1, in turns of {sizes.block_steps} steps, with a commit in each",
            "steps/s",
            lambda seconds: f"{1 / seconds:,.1f}",
            in_turn(work, sizes.blocks),
        )
        for learner in both.values():
            learner.close()
    slower = measured.ratio(WITH, WITHOUT) - 1
    low, high = _interval(measured.ratios(WITH, WITHOUT))
    reached = f"{slower:+.1%} (95% confidence: {low - 1:+.1%} to {high - 1:+.1%})"
    target = f"at most {_AT_MOST_SLOWER:.0%} more time a step with a directory"
    measured.goals.append(Goal(target, reached, slower <= _AT_MOST_SLOWER))
    yield measured


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the distribution-free 95% confidence interval of the median: two of the values."""
    rank = max(0, floor(len(values) / 2 - 0.98 * sqrt(len(values))))
    return values[rank], values[-1 - rank]


# Seconds until a million transitions are there again


def _reopening(peers: list[Keeper], sizes: Sizes, folder: Path | None) -> Iterable[Rounds]:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        ours = [keeper for keeper in OURS if keeper.name != "PERBuffer"]
        work: dict[str, Callable[[], float]] = {}
        remarks = {}
        for number, keeper in enumerate([*ours, *_filled(peers)]):
            kept = Path(temporary) / str(number)
            content = numbers(sizes.reopened // keeper.share_of_filling)
            keeper.fill(content, kept)
            times = keeper.share_of_filling
            scaled = "" if times == 1 else f" ({times} x the time of {content.transitions:,})"
            work[keeper.name] = _opening(keeper, content.transitions, keeper.opening(content, kept), read_all=False)
            remarks[keeper.name] = keeper.opens + scaled
            if keeper.opens_lazily:
                name = f"{keeper.name}, and read"
                work[name] = _opening(keeper, content.transitions, keeper.opening(content, kept), read_all=True)
                remarks[name] = "in memory" + scaled
            if keeper in ours:
                work[_plain(keeper)] = _reading(kept)
                remarks[_plain(keeper)] = "the bytes of its files, one after the other"
        measured = Rounds(
            f"Seconds until {sizes.reopened:,} transitions are there again",
            "seconds",
            lambda seconds: f"{seconds:,.3f}",
            in_turn(work, sizes.repetitions),
            "what is there then",
            remarks,
        )
    for keeper in ours:
        seconds, read = measured.median(keeper.name), measured.median(_plain(keeper))
        most = max(_AT_MOST_SECONDS, _AT_MOST_TIMES_A_READ * read)
        target = (
            f"{keeper.name}: at most {_AT_MOST_SECONDS:g} s or {_AT_MOST_TIMES_A_READ:g} plain reads of its files, "
            f"whichever is more"
        )
        measured.goals.append(Goal(target, f"{seconds:.2f} s, {seconds / read:.1f} reads", seconds <= most))
    yield measured


def _plain(keeper: Keeper) -> str:
    return f"plain read of {keeper.name}"


def _opening(keeper: Keeper, transitions: int, opening: Callable[[], Any], read_all: bool) -> Callable[[], float]:
    def call() -> float:
        started = time.perf_counter()
        opened = opening()
        if read_all:
            opened.read_all()
        seconds = time.perf_counter() - started
        opened.close()
        if opened.transitions != transitions:
            raise RuntimeError(f"{keeper.name} was given {transitions} transitions, and has {opened.transitions} again")
        return seconds * keeper.share_of_filling

    return call


def _reading(folder: Path) -> Callable[[], float]:
    buffer = bytearray(_READ_AT_ONCE_BYTES)

    def call() -> float:
        started = time.perf_counter()
        for path in _files(folder):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        return time.perf_counter() - started

    return call


# Bytes on disk


def _filled(peers: list[Keeper]) -> list[Keeper]:
    return [peer for peer in peers if peer.share_of_filling]


def _bytes(peers: list[Keeper], sizes: Sizes, folder: Path | None) -> Iterable[Rounds]:
    pickled = PickledList()
    ours = [keeper for keeper in OURS if keeper.name != "PERBuffer"]
    for title, played, transitions in (
        ("CartPole-v1", cartpole, sizes.cartpole),
        ("frames as of Pong, in stacks of 4", pong, sizes.frames),
    ):
        shares = {keeper.share_of_filling for keeper in [*ours, *_filled(peers)]}
        contents = {share: played(transitions // share) for share in shares}
        rows, remarks = {}, {}
        for keeper in [*ours, *_filled(peers), pickled]:
            content = contents[keeper.share_of_filling]
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                keeper.fill(content, Path(temporary) / "kept")
                rows[keeper.name] = [sum(path.stat().st_size for path in _files(Path(temporary))) / content.transitions]
            remarks[keeper.name] = f"{content.transitions:,}"
        measured = Rounds(
            f"Bytes a transition on disk: {title}",
            "bytes",
            lambda count: f"{count:,.0f}",
            rows,
            "transitions",
            remarks,
        )
        for keeper in ours:
            ratio = measured.ratio(keeper.name, pickled.name)
            target = f"{keeper.name}: at most {_AT_MOST_TIMES_THE_PICKLE:g}x the pickled list"
            measured.goals.append(Goal(target, f"{ratio:.2f}x", ratio <= _AT_MOST_TIMES_THE_PICKLE))
        yield measured


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


_POINTS: Mapping[PointName, Callable[[list[Keeper], Sizes, Path | None], Iterable[Rounds]]] = {
    "journal": _wal,
    "training": _training,
    "reopening": _reopening,
    "bytes": _bytes,
}


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
