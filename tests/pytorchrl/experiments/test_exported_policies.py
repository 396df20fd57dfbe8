"""An exported policy is the policy, a user's own included, or is refused with the reason, and its file describes it."""

import json
import resource
import signal
import zipfile
from collections.abc import Callable, Mapping
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
from tests.support.by_hand import envs_with, perturb
from tests.support.exported import exported_actions, loaded_policy, loaded_script, skip_without_onnx
from tests.support.finished_runs import RUNS
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
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
def test_an_overridden_act_acts_in_the_file_too(suffix: str, tmp_path: Path) -> None:
    skip_without_onnx(suffix)
    policy = policy_of(AlwaysSafe)
    path = policy.export(tmp_path / f"policy{suffix}")
    seen = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    (found,) = exported_actions(path, [torch.from_numpy(seen)])
    np.testing.assert_array_equal(found.ravel(), policy(seen))
    assert (found.ravel()[seen[:, 0] > 0] == 1).all()
    assert (found == 0).any()


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".pt2", ".ts"])
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
    algorithm: Any, error: Any, reason: str, suffix: str, tmp_path: Path
) -> None:
    policy = policy_of(algorithm)
    with pytest.raises(error, match=reason):
        policy.export(tmp_path / f"policy{suffix}")
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


def test_a_script_of_a_running_learner_holds_only_the_network_that_acts(tmp_path: Path) -> None:
    sac = prl.Scheme(
        prl.SAC.create_factory(**OFF),
        prl.OffPolicyActor.create_factory(hidden_sizes=(128, 128)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("Pendulum-v1"),
    )
    with prl.Learner(sac, 15, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.ts")]) as learner:
        learner.run()
        networks: Any = learner.scheme.algorithm
        acting, both = (sum(each.nbytes for each in of.parameters()) for of in (networks.pi, networks.actor))
    assert both > 2 * acting, "the actor must have other networks, such as critics"
    assert (tmp_path / "run" / "policy.ts").stat().st_size < 1.5 * acting


def test_a_run_ends_with_an_exported_policy(tmp_path: Path) -> None:
    with prl.Learner(scheme(), 40, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.pt2")]) as learner:
        learner.run()
    seen = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    (found,) = exported_actions(tmp_path / "run" / "policy.pt2", [torch.from_numpy(seen)])
    np.testing.assert_array_equal(found.ravel(), prl.load_policy(tmp_path / "run")(seen))


@pytest.mark.parametrize("file", ["policy.h5", "folder/policy.onnx", "../policy.onnx", ""])
def test_an_exported_policy_has_a_name_in_the_run_folder(file: str) -> None:
    with pytest.raises(ValueError, match=r"ExportPolicy: file must be a name that ends in \.onnx, \.pt2 or \.ts"):
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
    extra: dict[str, Any] = {"metadata.json": ""}
    if suffix == ".ts":
        loaded_script(path, extra)
    else:
        torch.export.load(path, extra_files=extra)
    return policy, json.loads(extra["metadata.json"]), path


@pytest.mark.long
@pytest.mark.parametrize(("memory", "suffix"), [(None, ".pt2"), ("lstm", ".onnx"), ("lstm", ".ts")])
def test_a_file_tells_spaces_bounds_normalisation_names_and_version(suffix: str, memory: Any, tmp_path: Path) -> None:
    skip_without_onnx(suffix)
    policy, metadata, _ = described(tmp_path, suffix, memory=memory)
    texts = ("pytorchrl_version", "algorithm")
    # An ONNX file holds texts alone, so that numbers and lists are JSON in them.
    of = {n: json.loads(v) if suffix == ".onnx" else v for n, v in metadata.items() if n not in texts}
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


def exported_file(policy: TrainedPolicy, path: Path) -> Path:
    """Export a policy; skips the test if an older torch refuses with the error that names a later version."""
    skip_without_onnx(path.suffix)
    try:
        return policy.export(path)
    except RuntimeError as error:
        if torch.__version__ < (2, 13) and "A later version may" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.long
@pytest.mark.quick_share(0, long=0.6)
@pytest.mark.parametrize(
    ("name", "suffix"),
    [*zip(RUNS, [".pt2", ".onnx", ".onnx", ".pt2"] * 2, strict=True), *((name, ".ts") for name in RUNS)],
)
def test_an_exported_policy_returns_the_same_actions(
    name: str, suffix: str, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished(name))
    path = exported_file(policy, tmp_path / f"policy{suffix}")
    generator = np.random.default_rng(0)
    states = policy.algorithm.actor.initial_memory(5)
    for _ in range(4):
        observations = generator.normal(size=(5, *policy.observation_space.shape)).astype(np.float32)
        outputs = exported_actions(path, [torch.from_numpy(observations), *([] if states is None else [states])])
        if states is not None:
            states = torch.from_numpy(np.array(outputs[1]))
        np.testing.assert_allclose(outputs[0].reshape(5, -1), policy(observations).reshape(5, -1), rtol=1e-4, atol=1e-5)
    # Classes that torch derives from the networks' during the export do not hide them from runs loaded later.
    assert type(prl.load_policy(finished(name)).algorithm) is type(policy.algorithm)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    "actions",
    [
        spaces.Discrete(3, start=5),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 2], start=[1, 5]),
        spaces.MultiDiscrete([3, 2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".pt2", ".ts", pytest.param(".onnx", marks=pytest.mark.long)])
def test_an_exported_policy_counts_actions_as_the_environment_does(actions: Any, suffix: str, tmp_path: Path) -> None:
    envs = envs_with(actions)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    perturb(actor, 1, 2.0)
    policy = TrainedPolicy(prl.PPO.create_factory()("cpu", actor, envs))
    path = exported_file(policy, tmp_path / f"policy{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    observations = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    chosen = policy(observations)
    assert len(np.unique(chosen, axis=0)) > 1
    (found,) = exported_actions(path, [torch.from_numpy(observations)])
    np.testing.assert_array_equal(found.reshape(chosen.shape), chosen)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cls", "suffix"),
    [
        (prl.BCQ, ".pt2"),
        (prl.BEAR, ".pt2"),
        (prl.BEAR, ".onnx"),
        (prl.BEAR, ".ts"),
        (prl.QtOpt, ".onnx"),
        (prl.FQL, ".onnx"),
    ],
)
def test_an_exported_policy_draws_proposals_for_any_number_of_rows(cls: Any, suffix: str, tmp_path: Path) -> None:
    envs = envs_with(spaces.Box(-2, 2, (1,)))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(16,))("cpu", envs)
    policy = TrainedPolicy(cls.create_factory()("cpu", actor, envs))
    exported = loaded_policy(exported_file(policy, tmp_path / f"policy{suffix}"))
    for rows in (1, 2, 5):
        seen = torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows))
        drawn = [exported([seen])[0] for _ in range(2)]
        assert drawn[0].shape == (rows, 1)
        assert np.abs(drawn[0]).max() <= 2
        # The best of BCQ's proposals often has the clipped latents that were the best before, QtOpt's is often a bound.
        assert cls not in (prl.BEAR, prl.FQL) or (drawn[0] != drawn[1]).any()


def test_a_policy_is_exported_to_known_formats_only(finished: Callable[[str], Path], tmp_path: Path) -> None:
    run = finished("dqn")
    with pytest.raises(ValueError, match=r"ends in \.onnx, \.pt2 or \.ts, got .*policy\.h5"):
        prl.load_policy(run).export(tmp_path / "policy.h5")


def test_an_export_makes_missing_folders_and_refuses_a_folder_in_place_of_a_file(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished("dqn"))
    assert policy.export(tmp_path / "new" / "folder" / "q.pt2").stat().st_size
    (tmp_path / "q.pt2").mkdir()
    for folder in (tmp_path, tmp_path / "q.pt2"):
        with pytest.raises(
            IsADirectoryError, match=f"^{folder} is a folder; name a file in it that ends in .onnx, .pt2 or"
        ):
            policy.export(folder)


def test_an_export_to_a_full_disk_names_the_disk_and_not_the_version_of_torch(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished("dqn"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"^\[Errno 27\] File too large"):
            policy.export(tmp_path / "policy.pt2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [pytest.param(".onnx", marks=pytest.mark.long), ".pt2", ".ts"])
def test_a_file_refuses_an_observation_of_another_size(
    suffix: str, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    skip_without_onnx(suffix)
    file = prl.load_policy(finished("sac")).export(tmp_path / f"policy{suffix}")
    run = as_function(file)
    assert run(np.zeros((2, 3), np.float32)).shape == (2, 1)
    for wrong in ((1, 1), (1, 2), (3,), (1, 4)):
        with pytest.raises(Exception, match=r"(?i)shape|dimension|rank|guard|size|index"):
            run(np.zeros(wrong, np.float32))


@pytest.mark.parametrize("suffix", [pytest.param(".onnx", marks=pytest.mark.long), ".pt2", ".ts"])
def test_a_file_tells_nothing_of_the_folders_of_the_machine_that_wrote_it(
    suffix: str, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    skip_without_onnx(suffix)
    file = prl.load_policy(finished("sac")).export(tmp_path / f"policy{suffix}")
    contents = [file.read_bytes()]
    if suffix != ".onnx":
        with zipfile.ZipFile(file) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
    for folder in (Path(prl.__file__).parent, Path(torch.__file__).parent, tmp_path):
        assert not any(str(folder).encode() in content for content in contents)


@pytest.mark.parametrize("name", ["sac", "ppo with memory", "dqn"])
def test_a_torch_export_holds_only_the_networks_that_act(
    name: str, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished(name))
    program = torch.export.load(policy.export(tmp_path / "policy.pt2"))
    used = {
        spec.target
        for spec, node in zip(program.graph_signature.input_specs, _inputs_of(program), strict=True)
        if node.users
    }
    assert used >= set(program.state_dict)
    if name == "sac":
        assert len(program.state_dict) < len(policy.algorithm.actor.networks.state_dict())
        assert not [each for each in program.state_dict if "critics" in each]


def _inputs_of(program: Any) -> list[Any]:
    return [node for node in program.graph.nodes if node.op == "placeholder"]


def as_function(file: Path) -> Callable[[Any], Any]:
    """The exported network, from arrays to arrays."""
    if file.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(file)
        return lambda rows: session.run(["action"], {"observation": rows})[0]
    network = torch.jit.load(file) if file.suffix == ".ts" else torch.export.load(file).module()
    return lambda rows: network(torch.from_numpy(rows)).detach().numpy()
