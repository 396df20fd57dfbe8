"""An exported policy is the policy, a user's own included, or is refused with the reason, and its file describes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import pytorchrl as prl
from pytorchrl.agent.envs.spaces import space_from_data
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from tests.support.by_hand import perturb
from tests.support.memories import MinimalGatedUnit
from tests.support.toys import Counter

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
OFF: dict[str, Any] = {"start_steps": 10, "mini_batch_size": 4, "test_every": 0}
Acted = tuple[Tensor, Mapping[str, Tensor]]


class AlwaysSafe(prl.DQN):
    """Takes action 1 wherever the first number of the observation is positive."""

    def act(self, view: Any, exploration: prl.Exploration) -> Acted:
        """Replace unsafe actions."""
        action, fields = super().act(view, exploration)
        return torch.where(view.observations[:, :1] > 0, torch.ones_like(action), action), fields


class Branching(prl.DQN):
    """Reads a number from a tensor."""

    def act(self, view: Any, exploration: prl.Exploration) -> Acted:
        """Branch on all rows at once."""
        action, fields = super().act(view, exploration)
        return (torch.zeros_like(action) if view.observations.sum() > 0 else action), fields


class CountingRows(prl.DQN):
    """Counts rows in a way that a traced network takes for a constant."""

    def act(self, view: Any, exploration: prl.Exploration) -> Acted:
        """Return as many actions as there are observations."""
        action, fields = super().act(view, exploration)
        return action * torch.ones((len(action), 1), dtype=action.dtype), fields


class Starting(prl.DQN):
    """Reads where episodes begin, which an exported network is not told."""

    def act(self, view: Any, exploration: prl.Exploration) -> Acted:
        """Take action 0 where an episode begins."""
        action, fields = super().act(view, exploration)
        chosen = torch.ones_like(action)
        return chosen if exploration.starts is None else chosen * (exploration.starts == 0), fields


class Remembering(prl.DQN):
    """Repeats its first action."""

    def act(self, view: Any, exploration: prl.Exploration) -> Acted:
        """Take the action of the step before."""
        action, fields = super().act(view, exploration)
        return exploration.state.setdefault("first", action), fields


class Stepping(prl.DQN):
    """Overrides what no exported network calls."""

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, exploration: prl.Exploration) -> Any:
        """Act as before."""
        return super().acting_step(obs, rhs, done, exploration)


def scheme(algorithm: Any = prl.DQN, **actor: Any) -> prl.Scheme:
    return prl.Scheme(
        algorithm.create_factory(**OFF),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), **actor),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(Counter),
    )


def policy_of(algorithm: Any) -> TrainedPolicy:
    made = scheme(algorithm)
    perturb(made.actor, 2, 1.0)
    made.close()
    return TrainedPolicy(made.algorithm)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_an_overridden_act_acts_in_the_file_too(suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
    policy = policy_of(AlwaysSafe)
    path = policy.export(tmp_path / f"policy{suffix}")
    seen = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    if suffix == ".onnx":
        session = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files").InferenceSession(str(path))
        found = session.run(None, {"observation": seen})[0]
    else:
        found = torch.export.load(path).module()(torch.from_numpy(seen)).numpy()
    np.testing.assert_array_equal(found.ravel(), policy(seen))
    assert (found.ravel()[seen[:, 0] > 0] == 1).all()
    assert (found == 0).any()


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "error", "reason"),
    [
        (Branching, RuntimeError, "Its act must compute actions by torch alone, for all rows at once"),
        (CountingRows, RuntimeError, r"Its act must .* without len\(tensor\), which is tensor.shape\[0\]"),
        (Starting, ValueError, "acts otherwise than the policy in 32 of 32 observations .* numbers that they keep"),
        (Remembering, ValueError, "keeps what its actions depend on from one step to the next in Exploration.state"),
        (Stepping, ValueError, "Stepping overrides acting_step, which an exported network does not call"),
    ],
)
def test_a_policy_that_no_file_can_be_is_refused_with_the_reason(
    algorithm: Any, error: Any, reason: str, tmp_path: Path
) -> None:
    policy = policy_of(algorithm)
    with pytest.raises(error, match=reason):
        policy.export(tmp_path / "policy.pt2")
    assert not list(tmp_path.iterdir())
    assert policy.algorithm.actor.training


@pytest.mark.long
def test_a_policy_that_cannot_be_exported_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    learner = prl.Learner(scheme(Branching), 40, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.pt2")])
    with learner, pytest.raises(RuntimeError, match="Its act must compute actions by torch alone"):
        learner.run()
    assert learner.scheme.steps == 0


class BranchingCell(MinimalGatedUnit):
    """Reads a number from a tensor."""

    def forward(self, features: Tensor, state: Tensor | None = None) -> Tensor:
        """Branch on all rows at once."""
        after = super().forward(features, state)
        return after if after.sum() > 0 else -after


@pytest.mark.long
def test_a_memory_that_no_file_can_hold_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    recurrent = prl.Scheme(
        prl.DQN.create_factory(**OFF),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=BranchingCell, memory_size=4),
        prl.ReplayBuffer.create_factory(size=100, sequences=prl.Sequences(4)),
        prl.VecEnv.create_factory(Counter),
    )
    learner = prl.Learner(recurrent, 40, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.pt2")])
    with learner, pytest.raises(RuntimeError, match="Its BranchingCell must compute actions by torch alone"):
        learner.run()
    assert learner.scheme.steps == 0


def test_a_run_ends_with_an_exported_policy(tmp_path: Path) -> None:
    with prl.Learner(scheme(), 40, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.pt2")]) as learner:
        learner.run()
    exported = torch.export.load(tmp_path / "run" / "policy.pt2").module()
    seen = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        exported(torch.from_numpy(seen)).numpy().ravel(), prl.load_policy(tmp_path / "run")(seen)
    )


@pytest.mark.parametrize("file", ["policy.h5", "folder/policy.onnx", "../policy.onnx", ""])
def test_an_exported_policy_has_a_name_in_the_run_folder(file: str) -> None:
    with pytest.raises(ValueError, match=r"ExportPolicy: file must be a name that ends in \.onnx or \.pt2"):
        prl.ExportPolicy(file)


def described(folder: Path, suffix: str, *, memory: Any) -> tuple[Any, Any, Path]:
    """A policy of a dict of observations, the metadata of its file, and the file."""

    class Envs:
        num_envs, stacked_frames = 1, 0
        observation_space = spaces.Dict(gear=spaces.MultiDiscrete([3, 2]), time=spaces.Box(0, np.inf, (2,), np.float64))
        action_space = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 0.5], np.float32))

    actor = prl.OnPolicyActor.create_factory(
        hidden_sizes=(8,), memory=memory, memory_size=4, normalize_observations=True
    )("cpu", Envs())
    policy = TrainedPolicy(prl.PPO.create_factory()("cpu", actor, Envs()))
    assert policy.algorithm.actor.normalization is not None
    policy.algorithm.actor.normalization.use_scaling(
        [(torch.tensor([1.7e9 + 0.5, 2.0], dtype=torch.float64), torch.tensor([0.5, 3.0]))]
    )
    path = policy.export(folder / f"policy{suffix}")
    if suffix == ".onnx":
        onnx = pytest.importorskip("onnx")
        return policy, {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}, path
    extra = {"metadata.json": ""}
    torch.export.load(path, extra_files=extra)
    return policy, json.loads(extra["metadata.json"]), path


@pytest.mark.parametrize("memory", [None, pytest.param("lstm", marks=pytest.mark.long)])
@pytest.mark.long
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_file_tells_spaces_bounds_normalisation_names_and_version(suffix: str, memory: Any, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
    policy, metadata, _ = described(tmp_path, suffix, memory=memory)
    of = {name: json.loads(text) for name, text in metadata.items() if name not in ("pytorchrl_version", "algorithm")}
    assert space_from_data(of["observation_space"]) == policy.observation_space
    assert space_from_data(of["action_space"]) == policy.action_space
    assert of["normalisation"] == {"time": {"largest": 10.0, "shift": [1.7e9 + 0.5, 2.0], "scale": [0.5, 3.0]}}
    assert of["inputs"] == ["gear", "time"] + ["states"] * (memory is not None)
    assert of["outputs"] == ["action"] + ["states_after"] * (memory is not None)
    assert of["states"] == ({} if memory is None else {"size": 16, "where_an_episode_begins": 0.0})
    assert metadata["algorithm"] == "PPO"
    assert metadata["pytorchrl_version"][0].isdigit()


@pytest.mark.long
@pytest.mark.parametrize("memory", [None, "lstm"])
def test_the_axes_and_arrays_of_an_onnx_file_have_names(memory: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx and onnxscript write ONNX files")
    pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
    _, metadata, path = described(tmp_path, ".onnx", memory=memory)
    model = onnx.load(str(path))
    onnx.checker.check_model(model)
    graph = model.graph
    assert [each.name for each in graph.input] == json.loads(metadata["inputs"])
    assert [each.name for each in graph.output] == json.loads(metadata["outputs"])
    for each in (*graph.input, *graph.output):
        first, *others = each.type.tensor_type.shape.dim
        assert first.dim_param == "batch"
        assert all(size.dim_value > 0 for size in others)
