"""Natural gradients in pieces of a batch are those of the whole batch, in less memory."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from tests.support.lessons import Wandering, collect

ACTIONS = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-2, 2, (3,), np.float32)}


def stepped(size: int | None, actions: str, memory: str | None, cls: Any, **storage: Any) -> dict[str, torch.Tensor]:
    """The weights of the policy after a step of the natural gradient."""
    scheme = prl.Scheme(
        cls.create_factory(fisher_mini_batch_size=size, damping=0.1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(6,), memory=memory, memory_size=4),
        prl.VanillaOnPolicyBuffer.create_factory(size=12, **storage),
        prl.VecEnv.create_factory(Wandering, 4, env_kwargs={"actions": ACTIONS[actions]}),
        seed=2,
    )
    with scheme:
        before = {name: weight.clone() for name, weight in scheme.algorithm.pi.state_dict().items()}
        collect(scheme)
        list(scheme.update())
        after: dict[str, torch.Tensor] = scheme.algorithm.pi.state_dict()
        assert any(not torch.equal(after[name], before[name]) for name in before)
        return {name: weight - before[name] for name, weight in after.items()}


@pytest.mark.parametrize("size", [5, 1000])
@pytest.mark.parametrize(("memory", "storage"), [(None, {}), ("gru", {}), ("gru", {"sequence_length": 4})])
@pytest.mark.parametrize("actions", ACTIONS)
def test_a_step_in_pieces_is_that_of_the_whole_batch(actions: str, memory: Any, storage: Any, size: int) -> None:
    whole, pieces = (stepped(each, actions, memory, prl.TRPO, **storage) for each in (None, size))
    for name, moved in whole.items():
        torch.testing.assert_close(pieces[name], moved, rtol=1e-3, atol=1e-5)


def test_dropped_episodes_count_as_little_as_in_the_whole_batch() -> None:
    settings: Any = ("discrete", None, prl.TRPOSinglePath)
    whole, pieces = (stepped(each, *settings, cut_episodes="drop") for each in (None, 5))
    for name, moved in whole.items():
        torch.testing.assert_close(pieces[name], moved, rtol=1e-3, atol=1e-5)


def test_an_entropy_bonus_keeps_a_policy_more_random() -> None:
    entropies = []
    for coefficient in (0.0, 10.0):
        scheme = prl.Scheme(
            prl.TRPO.create_factory(entropy_coef=coefficient, test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(6,)),
            prl.GAEBuffer.create_factory(size=64),
            prl.VecEnv.create_factory(Wandering, 2, env_kwargs={"actions": ACTIONS["continuous"]}),
            seed=2,
        )
        with scheme:
            for _ in range(5):
                collect(scheme)
                (metrics,) = scheme.update()
            entropies.append(float(metrics["entropy"]))
    assert entropies[1] > entropies[0] + 0.1


class Watched(prl.TRPO):
    """Notes how many rows its policy evaluates at once."""

    rows: list[int] = []  # noqa: RUF012

    def policy(self, view: Any, exploration: Any) -> Any:
        """Return the policy's distribution."""
        found = super().policy(view, exploration)
        if exploration is None:
            self.rows.append(len(found.entropy()))
        return found


def test_pieces_are_no_larger_than_asked_for() -> None:
    Watched.rows.clear()
    stepped(5, "discrete", None, Watched)
    # The surrogate and the line search evaluate all 48 rows, products with the matrix a piece.
    assert set(Watched.rows) == {48, 5, 3}
