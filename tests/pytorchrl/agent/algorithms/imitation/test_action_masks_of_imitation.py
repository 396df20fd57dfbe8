"""Imitation obeys action masks, and refuses experts that do not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages import DatasetError
from storages.datasets import write_dataset
from storages.episode import Episode
from storages.transition import ACT, OBS, REW
from tests.support.masked import NEVER, Masked, assert_learnt_alike, change_outputs_never_used
from tests.support.training import train

STEPS = 64


def largest_allowed(obs: Any) -> Any:
    """The largest choice that the mask allows, (E, 1)."""
    mask = obs["action_mask"]
    return (mask * np.arange(1, 1 + mask.shape[1])).argmax(1)[:, None]


def never_allowed(obs: Any) -> Any:
    return np.full((len(obs["action_mask"]), 1), NEVER)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "shown.npz"
    collect_demonstrations(largest_allowed, prl.VecEnv.create_factory(Masked, 2), path=path, steps=80)
    return path


def composed(name: str, data: Path, expert: Any = largest_allowed) -> prl.Scheme:
    replay = prl.ReplayBuffer.create_factory(size=200)
    shown = prl.from_dataset(replay, data)
    fields: dict[str, Any] = {"hidden_sizes": (8,), "action_mask": "action_mask"}
    off_policy, on_policy = prl.OffPolicyActor.create_factory(**fields), prl.OnPolicyActor.create_factory(**fields)
    envs, batches = prl.VecEnv.create_factory(Masked, num_envs=2), {"mini_batch_size": 8, "test_every": 0}
    rollout = prl.GAEBuffer.create_factory(size=16)
    if name == "BehaviourCloning":
        # It steps no environments without being evaluated.
        algorithm = prl.BehaviourCloning.create_factory(**batches)
        return prl.Scheme(algorithm, off_policy, shown, test_envs_factory=envs, seed=1)
    if name == "DecisionTransformer":
        transformer = prl.DecisionTransformer.create_factory(
            context_length=4, embedding_size=8, num_layers=1, distribution=prl.heads.Policy(), **batches
        )
        shown = prl.from_dataset(prl.ReplayBuffer.create_factory(size=200, sequences=prl.Episodes()), data)
        return prl.Scheme(transformer, off_policy, shown, test_envs_factory=envs, seed=1)
    if name == "DAgger":
        dagger = prl.DAgger.create_factory(expert=expert, start_steps=16, beta=0.5, **batches)
        return prl.Scheme(dagger, off_policy, replay, envs, seed=1)
    if name == "PPOD":
        sources = {"demonstrations": shown, "repeated": prl.GAEBuffer.create_factory(size=8)}
        ppod = prl.PPOD.create_factory(test_every=0, num_mini_batch=2)
        return prl.Scheme(ppod, on_policy, rollout, envs, sources=sources, seed=1)
    cls = {"GAIL": prl.GAIL, "AIRL": prl.AIRL}[name]
    adversarial = cls.create_factory(test_every=0, discriminator_batch_size=16)
    return prl.Scheme(adversarial, on_policy, rollout, envs, sources={"expert": shown}, seed=1)


def trained(scheme: prl.Scheme) -> prl.Scheme:
    if scheme.envs is not None:
        return train(scheme, STEPS)
    for _ in range(20):
        list(scheme.update())
    scheme.evaluate(5)
    return scheme


@pytest.mark.parametrize("name", ["BehaviourCloning", "DecisionTransformer", "DAgger", "GAIL", "AIRL", "PPOD"])
def test_imitation_takes_allowed_actions_and_ignores_outputs_of_those_never_allowed(name: str, data: Path) -> None:
    # The environment raises an error where an action is not allowed.
    plain, other = composed(name, data), composed(name, data)
    changed = change_outputs_never_used(other)
    assert changed
    for scheme in (plain, other):
        trained(scheme)
    assert plain.algorithm.updates > 0
    assert all(parameter.isfinite().all() for parameter in plain.actor.parameters())
    assert_learnt_alike(plain, other, changed)


def test_an_experts_label_that_the_mask_rules_out_is_refused(data: Path) -> None:
    with pytest.raises(ValueError, match=r"DAgger: the expert gave .*1.*, which action_mask='action_mask' rules out"):
        train(composed("DAgger", data, never_allowed), 16)


@pytest.mark.parametrize("choices", [(4,), (4, 3)])
def test_data_with_an_action_that_the_mask_rules_out_is_refused_and_named(choices: Any, tmp_path: Path) -> None:
    mask = np.ones((4, sum(choices)), np.int8)
    mask[2, -1] = 0
    actions = np.zeros((3, len(choices)), np.int64)
    obs = {"observation": np.zeros((4, 3), np.float32), "action_mask": mask}
    fields = {ACT: actions, REW: np.zeros((3, 1), np.float32)}
    good = Episode(obs, fields, True, False)
    broken = actions.copy()
    broken[2, -1] = choices[-1] - 1
    bad = Episode(obs, {**fields, ACT: broken}, True, False)
    for name, episodes in {"good": [good], "bad": [good, bad]}.items():
        write_dataset(tmp_path / f"{name}.npz", episodes)
    envs = prl.VecEnv.create_factory(Masked, env_kwargs={"choices": choices})
    actor = prl.OffPolicyActor.create_factory(action_mask="action_mask")
    algorithm = prl.BehaviourCloning.create_factory(test_every=0)

    def scheme(path: Path) -> prl.Scheme:
        return prl.Scheme(
            algorithm, actor, prl.from_dataset(prl.ReplayBuffer.create_factory(10), path), test_envs_factory=envs
        )

    assert len(scheme(tmp_path / "good.npz").storage.get_all_buffer_data()[OBS]["action_mask"]) == 3
    with pytest.raises(
        DatasetError, match=r"bad.npz: action_mask='action_mask' rules out the action \[.*\] in step 2 of"
    ):
        scheme(tmp_path / "bad.npz")
