"""Files of the layouts of other libraries, written by hand, of two episodes of three steps.

The first observes 0, 1, 2 and 3 with rewards of 1, the second 100 to 103 with rewards of 50; the first
terminates. Where final observations are not recorded, the last step of the second episode is not read.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STARTS = (0, 100)
PAID = np.array([1, 1, 1, 50, 50, 50], np.float32)
SEEN = np.array([0, 1, 2, 100, 101, 102], np.float32)
ALL_SEEN = np.array([0, 1, 2, 3, 100, 101, 102, 103], np.float32)
ACTIONS = np.arange(6, dtype=np.float32)[:, None]
LAST = np.array([0, 0, 1, 0, 0, 1], bool)
TERMINAL = np.array([0, 0, 1, 0, 0, 0], bool)
EPISODE = np.array([0, 0, 0, 1, 1, 1])


def renamed(arrays: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arrays with other names."""
    return {names.get(name, name): array for name, array in arrays.items()}


def hdf5(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an HDF5 file; names with slashes are in groups."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def parquet(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a Parquet file, with a list in each row of an array (N, k)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(array.tolist()) for name, array in arrays.items()}), path)


def csv(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a CSV file."""
    rows = zip(*(np.asarray(array).reshape(-1).tolist() for array in arrays.values()), strict=True)
    path.write_text("\n".join([",".join(arrays), *(",".join(map(str, row)) for row in rows)]) + "\n")


def lerobot(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a folder of LeRobot's, an episode in each table."""
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v2.1", "total_episodes": 2, "fps": 10}))
    for number in range(2):
        rows = number == EPISODE
        table = {name: array[rows] for name, array in arrays.items()}
        parquet(path / "data" / "chunk-000" / f"episode_{number:06d}.parquet", table)


def npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an npz file."""
    np.savez(path, **arrays)


@dataclass(frozen=True)
class Layout:
    """A file of a layout, and what is read from it.

    Args:
        name: of the file.
        write: writes arrays to a path.
        arrays: by name.
        final: whether final observations are recorded.
        kind: whether the file says which episode terminated.
        flags: other names of all its flags, under which it is refused.
        answers: what says the same as the flags under their other names.
        named: what the refusal must name.
    """

    name: str
    write: Callable[[Path, Mapping[str, Any]], None]
    arrays: Mapping[str, Any]
    flags: Mapping[str, str]
    answers: Mapping[str, Any]
    named: tuple[str, ...]
    final: bool = False
    kind: bool = True
    always: Mapping[str, Any] = field(default_factory=dict)

    def made(self, folder: Path, *, other_names: bool = False) -> Path:
        """Write the file."""
        path = folder / self.name
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
    ),
}
"""The layouts by name."""
