"""Processes of environments where this process may open too few files for them."""

import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.hogwild import a3c
from tests.support.open_files import files_left

ENVS = prl.VecEnv.create_factory("CartPole-v1", 8)


WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "asynchronous environments": (partial(prl.VecEnv, "CartPole-v1", 8, mode="async"), "VecEnv: 8 environments"),
    "overlapped collection": (
        partial(dqn_scheme, envs=ENVS, collection=prl.Overlapped(20, processes=8)),
        "Overlapped: 8 collector processes",
    ),
    "Hogwild": (lambda: prl.HogwildScheme(**a3c(), processes=8), "HogwildScheme: 8 processes"),
}


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left", [1, 6, 13])
def test_too_many_open_files_are_named_with_their_limit_and_no_process_remains(way: str, left: int) -> None:
    make, title = WAYS[way]
    # Modules that are imported on first use are files, too.
    with make() if left == 1 else prl.VecEnv("CartPole-v1"):
        pass
    with files_left(left), pytest.raises(OSError, match=rf"{title}.*: too many open files, .*`ulimit -n \d+`, or take"):
        make()
    assert not multiprocessing.active_children()
