"""A checkpoint in which a part was changed can be resumed, or is refused with one line that names the file."""

import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorchrl as prl
from pytorchrl.agent.envs.vec_env import check_saved
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


@pytest.mark.parametrize("value", [None, "text", torch.zeros(3)], ids=str)
def test_a_metric_of_a_checkpoint_that_is_no_number_is_refused(run: Path, value: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    state["learner"]["metrics"]["steps"] = value
    torch.save(state, folder / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match="as the metric 'steps', which is a number"):
        prl.Learner.resume(folder, target_steps=80)


def test_a_part_missing_from_a_checkpoint_is_reported_in_one_line() -> None:
    with (
        pytest.raises(prl.CheckpointError, match="it lacks tensor") as refused,
        as_checkpoint_error(Path("checkpoint.pt")),
    ):
        raise KeyError(torch.zeros(2, 2))
    assert "\n" not in str(refused.value)


# Test environments, which are restored at the next evaluation only


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    learner = prl.Learner(dqn_scheme(algorithm={"test_every": 50, "num_test_episodes": 1}), 64, folder)
    learner.run()
    learner.close()
    return folder


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda tests: tests["histories"][0].pop(name)


def having(**changed: Any) -> Callable[[dict[str, Any]], object]:
    return lambda tests: tests["histories"][0].update(changed)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no histories": lambda tests: tests.pop("histories"),
    "histories that are a text": lambda tests: tests.update(histories="all"),
    "a history that is a number": lambda tests: tests.update(histories=[3]),
    "histories of two environments": lambda tests: tests["histories"].append(tests["histories"][0]),
    "steps that are a text": lambda tests: tests.update(steps="many"),
    "fewer steps than actions": lambda tests: tests.update(steps=0),
    "no due seed": without("seed_due"),
    "no actions": without("actions"),
    "a due seed that is a number": having(seed_due=7),
    "a negative seed": having(seed=-1),
    "a generator that is a text": having(seeds="PCG64"),
    "states of wrappers that are missing": having(lasting=None),
    "a reward that is a list": having(reward=[]),
    "an observation that is a text": having(observation="here"),
    "an observation of texts": having(observation={"camera": "here"}),
    "actions that are a list": having(actions=[0, 1]),
    "actions that do not exist": having(actions=torch.full((5,), 9)),
    "actions that are fractions": having(actions=torch.full((5,), 0.5)),
    "actions of two axes": having(actions=torch.zeros(5, 2, dtype=torch.int64)),
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_state_of_the_test_environments_is_refused_when_the_run_is_resumed(
    change: str, evaluated: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluated, folder)
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert len(state["scheme"]["test_envs"]["histories"][0]["actions"]) > 0
    CHANGES[change](state["scheme"]["test_envs"])
    torch.save(state, folder / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=r"checkpoint\.pt does not fit its own composition: VecEnv: "):
        prl.Learner.resume(folder, target_steps=80)


def test_a_state_of_native_test_environments_without_a_generator_is_refused() -> None:
    native = prl.VecEnv.create_factory("CartPole-v1", vectorization_mode="vector_entry_point")
    check_saved(native, {"num_envs": 1, "seeds": np.random.default_rng(0).bit_generator.state}, None)
    for state in (None, {"num_envs": 1}, {"num_envs": 1, "seeds": {}}, {"num_envs": 2, "seeds": {}}):
        with pytest.raises(ValueError, match="VecEnv: the saved state of the environments"):
            check_saved(native, state, None)
