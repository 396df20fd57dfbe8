"""Components of rewards that environments report reach the storage, in every way of collecting."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages import Episode
from storages.datasets import write_dataset
from storages.transition import ACT, DONE2, OBS2, REW, REWC
from tests.support.comparison import assert_equal
from tests.support.paid_moves import PaidMoves
from tests.support.training import train

TERMS = ("place", "force")


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def moving(
    components: Any = TERMS,
    weights: Any = None,
    storage: Any = None,
    mode: str = "sync",
    wrappers: Any = (),
    **changes: Any,
) -> prl.Scheme:
    env = {name: changes.pop(name) for name in ("length", "reports", "pays") if name in changes}
    return prl.Scheme(
        prl.SACDecomposed.create_factory(
            reward_components=components,
            component_weights=weights,
            start_steps=20,
            update_every=4,
            mini_batch_size=8,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage or prl.PERBuffer.create_factory(size=100, n_step=2, alpha=0.6),
        prl.VecEnv.create_factory(PaidMoves, num_envs=2, mode=mode, env_kwargs=env, wrappers=wrappers),
        **changes,
    )


def assert_own_terms(data: Any) -> None:
    """Assert that each transition has the terms of its own step, last ones of episodes included."""
    place, force = data[OBS2], -0.1 * data[ACT] ** 2
    assert_equal(data[REWC].dtype, torch.float32)
    torch.testing.assert_close(data[REWC], torch.cat([place, force], -1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(data[REWC].sum(-1, keepdim=True), data[REW], rtol=1e-4, atol=1e-5)
    assert data[DONE2].any()


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
@pytest.mark.parametrize("components", [TERMS, ("both[0]", "both[1]"), ("place", "both[1]")])
def test_each_transition_has_the_components_of_its_own_step(components: Any, mode: str) -> None:
    scheme = train(moving(components, mode=mode), 100)
    assert_own_terms(scheme.storage.get_all_buffer_data())
    scheme.close()


def test_components_are_in_the_order_of_their_names() -> None:
    scheme = train(moving(("force", "both[1]", "place"), {"both[1]": 0.0}), 40)
    data = scheme.storage.get_all_buffer_data()[REWC]
    assert torch.equal(data[..., 0], data[..., 1])
    assert not torch.equal(data[..., 0], data[..., 2])
    scheme.close()


def test_without_names_nothing_is_stored_besides_the_reward() -> None:
    scheme = train(moving(None), 40)
    assert REWC not in scheme.storage.get_all_buffer_data()
    scheme.close()


@pytest.mark.parametrize(
    ("env", "components"),
    [
        ("HalfCheetah-v5", ("reward_forward", "reward_ctrl")),
        pytest.param(
            "Ant-v5", ("reward_forward", "reward_ctrl", "reward_contact", "reward_survive"), marks=pytest.mark.long
        ),
    ],
)
def test_the_rewards_of_mujoco_are_the_sums_of_the_components_that_it_reports(env: str, components: Any) -> None:
    pytest.importorskip("mujoco")
    scheme = prl.Scheme(
        prl.SACDecomposed.create_factory(reward_components=components, start_steps=1_000, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(env, num_envs=2),
    )
    while scheme.steps < 60:
        scheme.collect(60)
    data = scheme.storage.get_all_buffer_data()
    torch.testing.assert_close(data[REWC].sum(-1, keepdim=True), data[REW], rtol=1e-4, atol=1e-5)
    scheme.close()


def test_environments_that_skip_a_step_have_no_components_in_it() -> None:
    scheme = prl.Scheme(
        prl.SACDecomposed.create_factory(reward_components=TERMS, start_steps=1_000, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(lambda num_envs: gym.vector.SyncVectorEnv([PaidMoves] * num_envs), 3),
    )
    while scheme.steps < 60:
        scheme.collect(60)
    assert_own_terms(scheme.storage.get_all_buffer_data())
    scheme.close()


MISSING: dict[str, tuple[Any, str]] = {
    "an info": (("place", "fuel"), "reward_components names 'fuel', but not every environment reported it"),
    "an array": (("both",), r"names 'both', of which the environments reported 2 numbers; name one of them, such as"),
    "an element": (("both[2]",), r"names 'both\[2\]', of which the environments reported 2 numbers"),
    "an element of a number": (("place[1]",), r"names 'place\[1\]', of which the environments reported 1 numbers"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_component_that_no_environment_reports_is_refused_by_name(name: str) -> None:
    components, message = MISSING[name]
    scheme = moving(components)
    with pytest.raises(ValueError, match=f"VecEnv: .*{message}"):
        scheme.collect(10)
    scheme.close()


def test_hindsight_is_refused_because_it_cannot_recompute_components() -> None:
    storage = prl.HERBuffer.create_factory(size=50, her_function=lambda *given: given[:5])
    message = "SACDecomposed learns from reward_components, but HERBuffer recomputes rewards for other goals"
    with pytest.raises(prl.CompositionError, match=f"Scheme: {message}, and no function gives .* such as PERBuffer"):
        moving(storage=storage)
    with pytest.raises(prl.CompositionError, match=message):
        moving(sources={"other": storage}, mixed={"main": prl.MixedSource({"main": 0.5, "other": 0.5})})
    moving(None, storage=storage).close()


class OfPlace(prl.SACDecomposed):
    """Fixes its components."""

    reward_components: ClassVar[Any] = TERMS  # type: ignore[misc]


def test_a_class_that_fixes_its_components_is_checked_and_collects_them() -> None:
    storage = prl.HERBuffer.create_factory(size=50, her_function=lambda *given: given[:5])
    algorithm, actor = OfPlace.create_factory(), prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    envs = prl.VecEnv.create_factory(PaidMoves)
    with pytest.raises(prl.CompositionError, match="OfPlace learns from reward_components, but HERBuffer recomputes"):
        prl.Scheme(algorithm, actor, storage, envs)
    scheme = prl.Scheme(algorithm, actor, prl.ReplayBuffer.create_factory(size=50), envs)
    scheme.collect(1)
    assert scheme.storage.get_all_buffer_data()[REWC].shape == (1, 1, 2)
    scheme.close()


def test_normalised_rewards_are_refused_because_components_would_not_be() -> None:
    with pytest.raises(prl.CompositionError, match="reward_components, which normalize_rewards does not normalise"):
        moving(normalize_rewards="returns")
    moving(None, normalize_rewards="returns").close()


DIFFERENT: dict[str, dict[str, Any]] = {
    "a forgotten component": {"components": ("place",)},
    "another weight": {"weights": {"force": 3.0}, "pays": 2.0},
    "a wrapper that changes rewards": {"wrappers": [("ScaleReward", {"factor": 0.1})]},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_rewards_that_no_sum_of_components_explains_give_one_warning(name: str) -> None:
    scheme = moving(**DIFFERENT[name])
    with pytest.warns(
        UserWarning, match=r"the environments paid .* for a step whose reward_components \(place"
    ) as given:
        train(scheme, 20)
    assert len(given) == 1
    scheme.close()


@pytest.mark.parametrize(("weights", "pays"), [(None, 1.0), ({"force": 7.0}, 1.0), ({"place": 2.0, "force": 2.0}, 2.0)])
def test_rewards_that_are_the_sum_or_the_weighted_sum_of_components_give_no_warning(weights: Any, pays: float) -> None:
    train(moving(weights=weights, pays=pays), 20).close()


def episodes(with_components: bool) -> Iterator[Episode]:
    random = np.random.default_rng(0)
    for _ in range(6):
        fields: dict[str, Any] = {
            ACT: random.uniform(-2, 2, (5, 1)).astype(np.float32),
            REW: random.normal(size=(5, 1)).astype(np.float32),
        }
        if with_components:
            fields[REWC] = random.normal(size=(5, 2))
        yield Episode(random.normal(size=(6, 1)).astype(np.float32), fields, True, False)


def test_data_with_components_are_learnt_from_and_others_are_refused_by_name(tmp_path: Path) -> None:
    def offline(path: Path) -> prl.Scheme:
        return prl.Scheme(
            prl.SACDecomposed.create_factory(reward_components=TERMS, mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.from_dataset(prl.NStepReplayBuffer.create_factory(size=100, n_step=2), path),
            test_envs_factory=prl.VecEnv.create_factory(PaidMoves),
        )

    for with_components in (True, False):
        path = tmp_path / f"{with_components}.npz"
        write_dataset(path, episodes(with_components), format="npz")
        scheme = offline(path)
        scheme.collect(1)
        if with_components:
            assert list(scheme.update())
        else:
            with pytest.raises(ValueError, match=r"batches must have 2 reward_components .*, got 0"):
                list(scheme.update())
        scheme.close()


def test_collected_steps_go_beside_those_of_a_data_set_of_another_precision(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    write_dataset(path, episodes(with_components=True), format="npz")
    filled = prl.from_dataset(prl.NStepReplayBuffer.create_factory(size=100, n_step=2), path)
    scheme = train(moving(storage=filled), 40)
    assert scheme.storage.get_all_buffer_data()[REWC].dtype == torch.float32
    scheme.close()
