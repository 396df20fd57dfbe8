"""Files of the layouts of other libraries, written by hand, of two episodes of three steps.

The first observes 0, 1, 2 and 3 with rewards of 1, the second 100 to 103 with rewards of 50; the first
terminates. Where final observations are not recorded, the last step of the second episode is not read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from storages import Episode, NStepReplayBuffer
from storages.datasets import Dataset, fill
from storages.transition import DISCOUNT, OBS, OBS2, REW
from tests.support.written_arrays import csv, hdf5, lerobot, minari, npz, parquet, renamed

PAID = np.array([1, 1, 1, 50, 50, 50], np.float32)
SEEN = np.array([0, 1, 2, 100, 101, 102], np.float32)
ALL_SEEN = np.array([0, 1, 2, 3, 100, 101, 102, 103], np.float32)
ACTIONS = np.arange(6, dtype=np.float32)[:, None]
LAST = np.array([0, 0, 1, 0, 0, 1], bool)
TERMINAL = np.array([0, 0, 1, 0, 0, 0], bool)
EPISODE = np.array([0, 0, 0, 1, 1, 1])


@dataclass(frozen=True)
class Layout:
    """A file of a layout, and what is read from it.

    Args:
        name: of the file.
        write: writes arrays to a path.
        arrays: by name.
        flags: other names of its flags, under which it is refused.
        answers: what says the same as the flags under their other names; empty where no argument does.
        named: what the refusal must name.
        final: whether final observations are recorded.
        kind: whether the file says that the first episode terminated.
        cut: whether it says that the second episode was truncated.
        needed: answers that are needed with its usual names, too.
    """

    name: str
    write: Callable[[Path, Mapping[str, Any]], None]
    arrays: Mapping[str, Any]
    flags: Mapping[str, str]
    answers: Mapping[str, Any]
    named: tuple[str, ...]
    final: bool = False
    kind: bool = True
    cut: bool = True
    needed: Mapping[str, Any] = field(default_factory=dict)

    def made(self, folder: Path, *, other_names: bool = False) -> Path:
        """Write the file."""
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, renamed(self.arrays, self.flags) if other_names else self.arrays)
        return path


def _of_episodes(name: str, **arrays: Any) -> dict[str, Any]:
    return {
        f"{name.format(number)}/{key}": array[number == EPISODE] if len(array) == 6 else array[4 * number :][:4]
        for number in range(2)
        for key, array in arrays.items()
    }


_FLAT = {"observations": SEEN[:, None], "actions": ACTIONS, "rewards": PAID}
_NEXT = SEEN[:, None] + 1
_WHERE = ("timeouts=", "max_episode_steps=", "episode=")
_D3RLPY2 = {f"{key}_{number}": array[number == EPISODE] for number in range(2) for key, array in _FLAT.items()} | {
    "terminated_0": True,
    "terminated_1": False,
    "num_episodes": 2,
    "version": "2.1",
    "columns": ["observations"],
}
_ROWS = np.concatenate([ACTIONS[:3], ACTIONS[:1], ACTIONS[3:], ACTIONS[:1]])
_FOURTH = np.arange(8) % 4 == 3
_RLDS = {
    "observation": ALL_SEEN[:, None],
    "action": _ROWS,
    # Of a last row, action and reward are undefined.
    "reward": np.array([1, 1, 1, 999, 50, 50, 50, 999], np.float32),
    "is_first": np.arange(8) % 4 == 0,
    "is_last": _FOURTH,
    "is_terminal": np.arange(8) == 3,
}
LAYOUTS: dict[str, Layout] = {
    "d3rlpy 1": Layout(
        "one.h5",
        hdf5,
        {**_FLAT, "terminals": TERMINAL * 1.0, "episode_terminals": LAST * 1.0, "discrete_action": False},
        {"terminals": "over", "episode_terminals": "parting"},
        {"names": {"terminals": "over", "episode_ends": "parting"}},
        ("terminals=",),
    ),
    "d3rlpy 1 without known ends": Layout(
        "one.h5",
        hdf5,
        {**_FLAT, "terminals": TERMINAL, "episode_terminals": LAST},
        {"episode_terminals": "finished"},
        {"names": {"terminals": "terminals", "episode_ends": "finished"}},
        (*_WHERE, "finished"),
    ),
    "d3rlpy 2": Layout(
        "two.h5",
        hdf5,
        _D3RLPY2,
        {"terminated_0": "over_0", "terminated_1": "over_1"},
        {},
        ("ends=", "over_0"),
    ),
    "D4RL's first version": Layout(
        "d4rl.hdf5",
        hdf5,
        {**_FLAT, "terminals": TERMINAL},
        {"terminals": "over"},
        {"names": {"terminals": "over"}, "max_episode_steps": 3},
        ("terminals=", *_WHERE, "over"),
        needed={"max_episode_steps": 3},
    ),
    "D4RL": Layout(
        "d4rl.hdf5",
        hdf5,
        {**_FLAT, "terminals": TERMINAL, "timeouts": LAST & ~TERMINAL, "infos/qpos": ACTIONS, "metadata/policy": "x"},
        {"timeouts": "cut_done"},
        {"timeouts": "cut_done"},
        (*_WHERE, "cut_done"),
    ),
    "D4RL with next observations": Layout(
        "d4rl.hdf5",
        hdf5,
        {**_FLAT, "terminals": TERMINAL, "timeouts": LAST & ~TERMINAL, "next_observations": _NEXT},
        {"terminals": "over", "timeouts": "cut"},
        {"names": {"terminals": "over", "timeouts": "cut", "next_observations": "next_observations"}},
        ("terminals=", *_WHERE),
        final=True,
    ),
    "stable-baselines3": Layout(
        "sb3.npz",
        npz,
        {"obs": SEEN[:, None], "actions": ACTIONS, "rewards": PAID, "episode_starts": np.isin(np.arange(6), [0, 3])},
        {"episode_starts": "begins"},
        {"names": {"observations": "obs", "episode_starts": "begins"}},
        _WHERE,
        kind=False,
        cut=False,
    ),
    "RLDS": Layout(
        "rlds.npz",
        npz,
        _RLDS,
        {"is_first": "a_first", "is_last": "a_last", "is_terminal": "a_terminal"},
        {
            "names": {
                "observations": "observation",
                "actions": "action",
                "rewards": "reward",
                "terminals": "a_terminal",
                "last_rows": "a_last",
            }
        },
        (*_WHERE, "a_first", "a_last", "a_terminal"),
        final=True,
    ),
    "robomimic": Layout(
        "robomimic.hdf5",
        hdf5,
        _of_episodes(
            "data/demo_{}",
            **{"obs/arm": SEEN[:, None], "next_obs/arm": _NEXT, "actions": ACTIONS, "rewards": PAID, "dones": TERMINAL},
        ),
        {"data/demo_0/dones": "data/demo_0/finished", "data/demo_1/dones": "data/demo_1/finished"},
        {
            "names": {
                "observations": "obs",
                "next_observations": "next_obs",
                "terminals": "finished",
            }
        },
        ("ends=", "finished"),
        final=True,
        cut=False,
    ),
    "groups with final observations": Layout(
        "maniskill.h5",
        hdf5,
        _of_episodes(
            "traj_{}",
            obs=ALL_SEEN[:, None],
            actions=ACTIONS,
            rewards=PAID,
            terminated=TERMINAL,
            truncated=LAST & ~TERMINAL,
        ),
        {f"traj_{number}/{name}": f"traj_{number}/{name[:5]}_flag" for number in range(2) for name in ("terminated",)},
        {"names": {"observations": "obs", "terminals": "termi_flag", "timeouts": "truncated"}},
        ("ends=", "termi_flag"),
        final=True,
    ),
    "Minari": Layout(
        "minari",
        minari,
        _of_episodes(
            "episode_{}",
            observations=ALL_SEEN[:, None],
            actions=ACTIONS,
            rewards=PAID,
            terminations=TERMINAL,
            truncations=LAST & ~TERMINAL,
        ),
        {
            f"episode_{number}/{old}": f"episode_{number}/{new}"
            for number in range(2)
            for old, new in (("terminations", "over"), ("truncations", "limit"))
        },
        {"names": {"terminals": "over", "timeouts": "limit"}},
        ("terminals=", "timeouts=", "over", "limit"),
        final=True,
    ),
    "imitation": Layout(
        "imitation.npz",
        npz,
        {
            "obs": ALL_SEEN[:, None],
            "acts": ACTIONS,
            "rews": PAID,
            "indices": np.array([3, 6]),
            "terminal": np.array([True, False]),
        },
        {"indices": "cuts"},
        {"episode": "cuts"},
        ("episode=", "cuts"),
        final=True,
        cut=False,
    ),
    "LeRobot": Layout(
        "lerobot",
        lerobot,
        {
            "observation.state": SEEN[:, None],
            "action": ACTIONS,
            "next.reward": PAID,
            "next.done": LAST,
            "episode_index": EPISODE,
            "frame_index": np.arange(6) % 3,
            "index": np.arange(6),
        },
        {"episode_index": "trajectory", "next.done": "next.finished"},
        {"episode": "trajectory", "ends": "unknown"},
        (*_WHERE, "trajectory"),
        kind=False,
        cut=False,
    ),
    "Parquet": Layout(
        "log.parquet",
        parquet,
        {
            "observation": SEEN[:, None],
            "action": ACTIONS,
            "reward": PAID,
            "terminated": TERMINAL,
            "truncated": LAST & ~TERMINAL,
        },
        {"terminated": "done_for", "truncated": "time_limit"},
        {
            "names": {
                "observations": "observation",
                "actions": "action",
                "rewards": "reward",
                "terminals": "done_for",
                "timeouts": "time_limit",
            }
        },
        (*_WHERE, "done_for", "time_limit"),
    ),
    "CSV": Layout(
        "log.csv",
        csv,
        {"obs_0": SEEN, "action_0": ACTIONS, "reward": PAID, "terminated": TERMINAL, "episode": EPISODE},
        {"episode": "trajectory"},
        {"episode": "trajectory"},
        (*_WHERE, "trajectory"),
        cut=False,
    ),
}
"""The layouts by name."""


def expected(layout: Layout) -> list[list[float]]:
    """The observations of each episode, as they must be read."""
    first = [0, 1, 2, 3] if layout.final else [0, 1, 2, 2] if layout.kind else [0, 1, 2]
    return [[*map(float, first)], [100.0, 101.0, 102.0, *[103.0] * layout.final]]


def observed(episode: Episode) -> list[float]:
    """The observations of an episode with one component in one part."""
    (part,) = episode.observations.values() if isinstance(episode.observations, dict) else (episode.observations,)
    values: list[float] = np.asarray(part)[:, 0].tolist()
    return values


def n_step_rows(dataset: Dataset) -> list[tuple[float, ...]]:
    """The distinct rows of observation, 3-step reward, discount and next observation."""
    storage = NStepReplayBuffer.create_factory(size=50, n_step=3)("cpu", None, SimpleNamespace(gamma=1.0), None)
    fill(storage, dataset)
    batch = next(storage.generate_batches(1, 500))
    parts = [next(iter(part.values())) if isinstance(part := batch[key], dict) else part for key in (OBS, OBS2)]
    columns = (parts[0], batch[REW], batch[DISCOUNT], parts[1])
    return sorted(set(zip(*(column.ravel().tolist() for column in columns), strict=True)))


def check_read(dataset: Dataset, layout: Layout) -> None:
    """Check episodes, their ends, and the n-step rewards, discounts and next observations of all steps."""
    episodes, values = list(dataset), expected(layout)
    assert [observed(one) for one in episodes] == values
    assert (len(dataset), dataset.steps) == (2, sum(map(len, values)) - 2)
    assert [(one.terminated, one.truncated) for one in episodes] == [(layout.kind, False), (False, layout.cut)]
    rows = []
    for seen, paid, terminal in zip(values, (1, 50), (layout.kind, False), strict=True):
        for step in range(len(seen) - 1):
            end = min(step + 3, len(seen) - 1)
            rows.append((seen[step], float(paid * (end - step)), float(not terminal), seen[end]))
    assert n_step_rows(dataset) == sorted(rows)
