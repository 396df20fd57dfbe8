"""A checkpoint in which a part was changed can be resumed, or is refused with one line that names the file."""

import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorchrl as prl
from pytorchrl.experiments.runs.composition import as_checkpoint_error
from tests.support.compositions import dqn_scheme, ppo_scheme
from tests.support.profiles import examples

SCHEMES = {
    "off-policy": lambda: dqn_scheme(algorithm={"test_every": 0, "explorer": prl.Boltzmann(0.5)}, size=30),
    "on-policy": lambda: ppo_scheme(normalize_rewards="returns"),
}
UNEXPECTED_VALUES: list[Any] = [None, 3, -5, "text", [], {}, 0.5, torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64)]


@pytest.fixture(scope="module", params=SCHEMES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    learner = prl.Learner(SCHEMES[request.param](), 64, folder)
    learner.run()
    learner.close()
    return folder


def paths_of_parts(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all parts of a nested state."""
    keys = list(state) if isinstance(state, dict) else range(len(state)) if isinstance(state, list) else ()
    for key in keys:
        yield (*path, key)
        yield from paths_of_parts(state[key], (*path, key))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of numpy and torch, about tensors instead of numbers
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), value=st.sampled_from([*range(len(UNEXPECTED_VALUES)), "nothing", "shorter", "more exact"]))
def test_a_changed_part_of_a_checkpoint_is_refused_in_one_line_or_accepted(run: Path, data: Any, value: Any) -> None:
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    *path, last = data.draw(
        st.sampled_from(list(paths_of_parts({name: state[name] for name in ("scheme", "learner")})))
    )
    part = state
    for key in path:
        part = part[key]
    old = part[last]
    if value == "nothing":
        del part[last]
    elif value == "shorter":
        part[last] = old[: len(old) // 2] if isinstance(old, list) or getattr(old, "ndim", 0) else []
    elif value == "more exact":
        part[last] = old.double() if isinstance(old, torch.Tensor) else float("nan")
    else:
        part[last] = copy.deepcopy(UNEXPECTED_VALUES[value])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shutil.copytree(run, folder)
        torch.save(state, folder / "checkpoint.pt")
        message = "checkpoint.pt"
        try:
            prl.Learner.resume(folder, target_steps=80).close()
        except prl.CheckpointError as refused:
            message = str(refused)
    assert "checkpoint.pt" in message
    assert "\n" not in message


def test_a_part_missing_from_a_checkpoint_is_reported_in_one_line() -> None:
    with (
        pytest.raises(prl.CheckpointError, match="it lacks tensor") as refused,
        as_checkpoint_error(Path("checkpoint.pt")),
    ):
        raise KeyError(torch.zeros(2, 2))
    assert "\n" not in str(refused.value)
