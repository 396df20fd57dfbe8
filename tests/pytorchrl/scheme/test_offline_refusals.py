"""Data from which a scheme cannot learn, and parts that do not fit them, are refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from storages import DatasetError
from storages.datasets import fill, open_dataset, write_dataset
from storages.episode import Episode
from storages.transition import ACT, REW
from tests.support.data_sets import cloning, recorded
from tests.support.toys import Counter

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)
PENDULUM = prl.VecEnv.create_factory("Pendulum-v1", num_envs=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "data.npz")


def test_a_partly_filled_directory_is_refused(data: Path, tmp_path: Path) -> None:
    factory = prl.ReplayBuffer.create_factory(size=100, directory=tmp_path / "kept")
    storage = factory("cpu", None, None, None)
    fill(storage, list(open_dataset(data))[:1])
    storage.close()
    with pytest.raises(DatasetError, match=r"kept holds 20 transitions, fewer than the 60 of .*data\.npz"):
        cloning(data, factory)


def test_a_storage_with_too_few_bytes_for_the_data_is_refused(data: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"has 60 transitions, the storage holds \d+ of them in max_bytes=1000; make"
    ):
        cloning(data, prl.ReplayBuffer.create_factory(size=None, max_bytes=1_000))


def test_a_storage_that_is_too_small_for_the_data_is_refused(data: Path) -> None:
    with pytest.raises(DatasetError, match=r"data\.npz has 60 transitions, the storage holds 59; make it larger"):
        cloning(data, prl.ReplayBuffer.create_factory(size=59))


WRONG_CHOICES: list[tuple[Any, list[Any], str]] = [
    (spaces.Discrete(4), [[0], [4]], r"action \[4\] in step 1 of episode 1 is not in Discrete\(4\)"),
    (spaces.Discrete(2, start=3), [[3], [0]], r"action \[3\] in step 0 of episode 1 .* counted from 0"),
    (spaces.Discrete(4), [[0], [0.5]], r"action \[0.5\] in step 1 of episode 1 is not in Discrete\(4\)"),
    (spaces.MultiDiscrete([2, 3]), [[1, 2], [2, 0]], r"action \[2, 0\] in step 1"),
    (spaces.MultiBinary(2), [[1, 0], [0, -1]], r"action \[0, -1\] in step 1"),
]


@pytest.mark.parametrize(
    ("space", "actions", "message"), WRONG_CHOICES, ids=[f"{space}-{actions[1]}" for space, actions, _ in WRONG_CHOICES]
)
def test_actions_that_are_not_among_the_choices_are_refused(
    space: Any, actions: list[Any], message: str, tmp_path: Path
) -> None:
    def episode(taken: Any) -> Episode:
        fields = {ACT: np.array(taken), REW: np.zeros((2, 1), np.float32)}
        return Episode(np.zeros((3, 2), np.float32), fields, terminated=True, truncated=False)

    right = np.zeros((2, len(actions[0])), np.array(actions).dtype)
    path = tmp_path / "wrong.npz"
    write_dataset(path, [episode(right), episode(actions)])
    envs = prl.VecEnv.create_factory(Counter, env_kwargs={"kind": "vector", "actions": space})
    with pytest.raises(DatasetError, match=rf"wrong\.npz: the {message}"):
        prl.Scheme(
            prl.BehaviourCloning.create_factory(test_every=0),
            prl.OffPolicyActor.create_factory(),
            prl.from_dataset(prl.ReplayBuffer.create_factory(size=10), path),
            test_envs_factory=envs,
        )


def test_a_data_set_without_spaces_is_refused_without_environments(tmp_path: Path) -> None:
    file = tmp_path / "flat.npz"
    np.savez(
        file,
        observations=np.zeros((6, 3), np.float32),
        actions=np.zeros((6, 1), np.float32),
        rewards=np.zeros(6, np.float32),
        terminals=np.arange(6) == 5,
        timeouts=np.zeros(6),
    )
    with pytest.raises(DatasetError, match=r"does not contain the spaces .* give the scheme test_envs_factory"):
        cloning(file)
    assert len(cloning(file, test_envs_factory=PENDULUM).storage) == 6


def test_an_environment_tells_of_actions_that_a_data_set_never_shows(tmp_path: Path) -> None:
    file = tmp_path / "flat.npz"
    np.savez(
        file,
        observations=np.zeros((6, 4), np.float32),
        actions=np.zeros(6, np.int64),
        rewards=np.zeros(6, np.float32),
        terminals=np.arange(6) == 5,
        timeouts=np.zeros(6),
    )
    assert cloning(file).actor.action_space.n == 1
    assert cloning(file, test_envs_factory=CARTPOLE).actor.action_space.n == 2


def parts(**changes: Any) -> dict[str, Any]:
    return {
        "algo_factory": prl.BehaviourCloning.create_factory(),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.ReplayBuffer.create_factory(size=100),
    } | changes


REPLAY = prl.ReplayBuffer.create_factory(size=100)
ROLLOUT = prl.GAEBuffer.create_factory(size=16)
GAIL = {
    "algo_factory": prl.GAIL.create_factory(),
    "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
    "storage_factory": ROLLOUT,
    "train_envs_factory": CARTPOLE,
}
MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown spaces": ({}, "the spaces of observations and actions are not known; give it test_envs_factory"),
    "an unknown source": (
        {"sources": {"expert": REPLAY}, "test_envs_factory": CARTPOLE},
        "BehaviourCloning knows no source 'expert'; it learns from 'main'",
    ),
    "no expert": (GAIL, r"GAIL needs a source 'expert'; give it sources=\{'expert': ...\}, such as from_dataset"),
    "an expert in a rollout": (
        GAIL | {"sources": {"expert": ROLLOUT}},
        "GAIL learns from replayed transitions, but GAEBuffer holds one rollout",
    ),
    "data in a rollout": (
        {"storage_factory": ROLLOUT, "test_envs_factory": CARTPOLE},
        "BehaviourCloning learns from replayed transitions, but GAEBuffer holds one rollout",
    ),
    "on-policy without environments": (
        GAIL | {"sources": {"expert": REPLAY}, "train_envs_factory": None, "test_envs_factory": CARTPOLE},
        "GAIL learns from steps of its own policy; give the scheme train_envs_factory",
    ),
    "collected steps beside the data": (
        {"train_envs_factory": CARTPOLE},
        "BehaviourCloning learns from a data set.*leave out train_envs_factory",
    ),
    "no factory": ({"sources": {"expert": "expert.npz"}}, r"sources\['expert'\] must be made by create_factory"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_incompatible_parts_are_refused_by_name(name: str) -> None:
    changes, message = MISFITS[name]
    with pytest.raises(prl.CompositionError, match=message):
        prl.Scheme(**parts(**changes))


def test_data_of_other_observations_is_refused_by_name(data: Path) -> None:
    pendulum = prl.VecEnv.create_factory("Pendulum-v1")
    with pytest.raises(DatasetError, match=r"Observation has shape \(4,\) in the data set, and \(3,\) in the environ"):
        cloning(data, test_envs_factory=pendulum)
