"""Presets of published distributed algorithms: their settings, and updates of small versions of them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode

import pytorchrl as prl
from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from storages.component.factory import make_factory
from storages.transition import DISCOUNT, OBS, OBS2
from tests.support.clocks import Clocks
from tests.support.profiles import FULL
from tests.support.training import train

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1")
PENDULUM = prl.VecEnv.create_factory("Pendulum-v1")


def small(preset: Mapping[str, Any], num_workers: int, **algorithm: Any) -> dict[str, Any]:
    """The preset with small networks for vectors, few processes, and changed hyper-parameters of the algorithm."""
    factory, body = preset["algo_factory"], preset["actor_factory"]
    shape = {"feature_extractor": "auto", "hidden_sizes": (8,)}
    if body.hyper_parameters.get("memory") is not None:
        shape["memory_size"] = 8
    kind = "num_gradient_workers" if "num_gradient_workers" in preset else "num_collectors"
    explorers = {"explorers": preset["explorers"][:num_workers]} if "explorers" in preset else {}
    return {
        **preset,
        **explorers,
        kind: num_workers,
        "algo_factory": make_factory(factory.cls, (), factory.hyper_parameters | {"test_every": 0} | algorithm),
        "actor_factory": make_factory(body.cls, (), body.hyper_parameters | shape),
    }


REPLAY = {"start_steps": 40, "update_every": 20, "mini_batch_size": 8}
PRESETS: dict[str, tuple[Callable[[], dict[str, Any]], Any, int]] = {
    "impala": (lambda: small(prl.distributed.impala(), 2) | {"slices_at_once": 2}, CARTPOLE, 200),
    "a3c": (lambda: small(prl.distributed.a3c(), 2), CARTPOLE, 100),
    "nsq": (lambda: small(prl.distributed.nsq(), 2), CARTPOLE, 100),
    "dd_ppo": (lambda: small(prl.distributed.dd_ppo(), 2), CARTPOLE, 400),
    "gorila": (lambda: small(prl.distributed.gorila(capacity=500), 2, **REPLAY), CARTPOLE, 200),
    "sac_distributed": (lambda: small(prl.distributed.sac_distributed(capacity=500), 2, **REPLAY), PENDULUM, 200),
    "ape_x": (lambda: small(prl.distributed.ape_x(capacity=500, num_replay_shards=2), 2, **REPLAY), CARTPOLE, 300),
    "r2d2": (
        lambda: (
            small(prl.distributed.r2d2(capacity=2_000, num_replay_shards=2), 2, **REPLAY)
            | {"slice_steps": 60}
            | {
                "storage_factory": prl.PERBuffer.create_factory(
                    size=2_000, n_step=5, alpha=0.9, beta=0.6, sequences=prl.Sequences(20, burn_in=5, overlap=10)
                )
            }
        ),
        CARTPOLE,
        300,
    ),
}
RESEMBLING = ("nsq", "ape_x")
"""Composed of the parts of other presets, or trained by another test; quick runs leave them out."""


@contextlib.contextmanager
def trained(name: str, envs: Any | None = None) -> Iterator[prl.RayScheme]:
    """A scheme of a preset that has collected, and updated its weights."""
    compose, default, steps = PRESETS[name]
    scheme = prl.RayScheme(**compose(), train_envs_factory=envs or default)
    before = scheme.algorithm.get_weights()
    try:
        train(scheme, steps)
        assert scheme.algorithm.updates > 0
        assert any((weights != before[name]).any() for name, weights in scheme.algorithm.get_weights().items())
        yield scheme
    finally:
        scheme.close()


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("name", [pytest.param(name, marks=FULL if name in RESEMBLING else ()) for name in PRESETS])
def test_a_preset_collects_and_updates_its_weights(name: str) -> None:
    with trained(name):
        pass


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_ape_x_learns_from_environments_that_skip_a_step_after_each_episode() -> None:
    envs = prl.VecEnv.create_factory(Clocks, 2, env_kwargs={"mode": AutoresetMode.NEXT_STEP})
    with trained("ape_x", envs) as scheme:
        batch = next(scheme.storage.generate_batches(1, 200))
        # Observations are the numbers of the episode and its step; episodes have 2 and 3 steps.
        episode, step, episode2, step2 = torch.cat([batch[OBS], batch[OBS2]], dim=1).T
        assert torch.equal(episode, episode2)
        assert set((step2 - step).tolist()) == {1, 2, 3}
        assert set(step2[batch[DISCOUNT][:, 0] == 0].tolist()) == {2, 3}


def test_presets_have_the_settings_of_their_papers() -> None:
    impala, ape_x, nsq = prl.distributed.impala(), prl.distributed.ape_x(), prl.distributed.nsq()
    assert (impala["slice_steps"], impala["slices_at_once"]) == (20, 32)
    assert ape_x["storage_factory"].hyper_parameters["n_step"] == 3
    assert (ape_x["num_replay_shards"], ape_x["initial_priorities"]) == (4, True)
    assert ape_x["algo_factory"].hyper_parameters["explorer"] == prl.ApeXEpsilonGreedy(0.4, 7.0)
    finals = [explorer.epsilon.final for explorer in nsq["explorers"]]
    assert len(finals) == 16
    assert set(finals) == {0.1, 0.01, 0.5}
    assert prl.distributed.dd_ppo()["preemption"] == 0.6
    a3c, gorila, sac = prl.distributed.a3c(), prl.distributed.gorila(), prl.distributed.sac_distributed()
    assert (a3c["algo_factory"].cls, a3c["storage_factory"].hyper_parameters["size"]) == (prl.A2C, 5)
    assert gorila["algo_factory"].cls is prl.DQN
    assert gorila["algo_factory"].hyper_parameters["target_update_interval"] == 60_000
    assert gorila["storage_factory"].hyper_parameters["size"] == 1_000_000
    assert (sac["algo_factory"].cls, sac["algo_factory"].hyper_parameters["update_every"]) == (prl.SAC, 1)
    assert [preset["num_gradient_workers"] for preset in (a3c, gorila)] == [16, 100]
    assert {preset["communication"] for preset in (impala, ape_x, nsq, a3c, gorila, sac)} == {"asynchronous"}


def first_step(
    preset: Mapping[str, Any], gradient: torch.Tensor, lr: float, max_grad_norm: float | None = None
) -> torch.Tensor:
    """How far the preset's optimizer moves weights by their first gradient."""
    weights = torch.nn.Parameter(torch.zeros_like(gradient))
    stepper = preset["algo_factory"].hyper_parameters["optimizer"].make(FlatParameters([weights]))
    stepper.learning_rate = lr
    weights.grad = gradient.clone()
    stepper.step(max_grad_norm)
    return weights.detach()


@pytest.mark.parametrize(("num_collectors", "num_slices"), [(48, 32), (8, 8)])
@pytest.mark.parametrize("norm", [0.02, 5.0])
def test_a_step_of_impala_is_the_papers_on_losses_that_are_summed(
    num_collectors: int, num_slices: int, norm: float
) -> None:
    """Appendix G: a gradient norm of 40; RMSprop with a decay of 0.99, and an epsilon of 0.01 below the root."""
    preset = prl.distributed.impala(num_collectors)
    settings, rows = preset["algo_factory"].hyper_parameters, 20 * preset["slices_at_once"]
    assert rows == 20 * num_slices
    mean = norm * torch.tensor([0.6, -0.8])
    moved = first_step(preset, mean, 6e-4, settings["max_grad_norm"])
    summed = mean * rows * min(1.0, 40 / (rows * norm))
    expected = -6e-4 * summed / (0.01 * summed**2 + 0.01).sqrt()
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_a_step_of_a3c_and_of_nsq_is_that_of_losses_summed_over_five_steps(size: float) -> None:
    """The wiki of github.com/muupan/async-rl has their e-mail: decay 0.99, and epsilon 0.1, below the root."""
    summed = torch.tensor([size, -2 * size])
    expected = -7e-4 * summed / (0.01 * summed**2 + 0.1).sqrt()
    torch.testing.assert_close(first_step(prl.distributed.nsq(), summed, 7e-4), expected, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(first_step(prl.distributed.a3c(), summed / 5, 7e-4), expected, rtol=1e-4, atol=0.0)


def test_dd_ppo_does_not_normalise_advantages() -> None:
    """The authors' configuration, ddppo_pointnav.yaml of habitat-lab, has ``use_normalized_advantage: False``."""
    settings = prl.distributed.dd_ppo()["algo_factory"].hyper_parameters
    names = ("lr", "num_epochs", "num_mini_batch", "entropy_coef", "max_grad_norm", "normalize_advantages")
    assert [settings[name] for name in names] == [2.5e-4, 2, 2, 0.01, 0.2, False]


def test_an_update_of_gorila_is_that_of_the_single_dqn() -> None:
    """Nature's table adds 0.01 to squares of gradients that are summed over 32 rows, where losses here are means."""
    settings, single = (
        preset["algo_factory"].hyper_parameters for preset in (prl.distributed.gorila(), prl.DQN.nature())
    )
    assert {name for name, value in settings.items() if value != single[name]} == {"target_update_interval"}
    assert settings["optimizer"].eps * settings["mini_batch_size"] ** 2 == pytest.approx(0.01)


def test_r2d2_has_the_storage_of_its_paper_among_shards() -> None:
    preset = prl.distributed.r2d2(num_collectors=3, capacity=5_000, num_replay_shards=8)
    assert (preset["num_collectors"], preset["num_replay_shards"], preset["initial_priorities"]) == (3, 8, True)
    assert preset["algo_factory"].cls is prl.R2D2
    assert preset["actor_factory"].hyper_parameters["memory"] == "lstm"
    storage = preset["storage_factory"].hyper_parameters
    assert {name: storage[name] for name in ("size", "n_step", "alpha", "beta", "sequences")} == {
        "size": 5_000,
        "n_step": 5,
        "alpha": 0.9,
        "beta": 0.6,
        "sequences": prl.Sequences(80, burn_in=40, overlap=40),
    }
    assert preset["communication"] == "asynchronous"
    assert preset["slice_steps"] == 400
