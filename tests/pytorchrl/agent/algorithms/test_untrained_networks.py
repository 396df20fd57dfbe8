"""A network that updates leave as it was built is told, whichever part of its training is missing."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pytorchrl as prl
from pytorchrl.agent.algorithms.untrained import UPDATES_BEFORE


class Predictive(prl.DQN):
    """DQN with a model, whose loss a test returns or leaves out."""

    is_grouped, is_returned = True, True

    def build(self) -> None:
        super().build()
        self.model = self.actor.linear(self.q.body.output_size + 2, 4)
        self.actor.add("model", self.model)
        if self.is_grouped:
            self.train_model = self.train("model", self.model)

    def losses(self, rows: prl.Rows) -> prl.Losses:
        losses = super().losses(rows)
        inputs = torch.cat([rows.now.features(self.q.body), F.one_hot(rows.action[:, 0], 2)], dim=1)
        error = rows.mean((self.model(inputs) - rows.change).square().sum(1, keepdim=True))
        if not self.is_returned:
            return losses
        if self.is_grouped:
            losses.of = {**losses.of, self.train_model: error}
        else:
            losses.of = {self.trained: losses.of[self.trained] + error}
        return losses


class WithoutLoss(Predictive):
    """Its losses leave the model out."""

    is_returned = False


class WithoutGroup(Predictive):
    """Its model has no parameter group."""

    is_grouped = False


def trained(algorithm: type[prl.DQN], updates: int = UPDATES_BEFORE, **settings: Any) -> prl.Algorithm:
    scheme = prl.Scheme(
        algorithm.create_factory(start_steps=8, update_every=1, num_mini_batch=1, mini_batch_size=4, **settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=1_000),
        prl.VecEnv.create_factory("CartPole-v1"),
        seed=1,
    )
    while scheme.algorithm.updates < updates:
        scheme.collect(scheme.steps + 1)
        for _ in scheme.update():
            pass
    scheme.close()
    return scheme.algorithm


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (WithoutLoss, "took no step on the parameter group model, as no loss of it was returned"),
        (WithoutGroup, "model receives gradients, but is in no parameter group, so that it does not learn"),
    ],
)
def test_a_network_that_does_not_learn_is_told_after_a_hundred_updates(algorithm: type[prl.DQN], words: str) -> None:
    with pytest.warns(UserWarning, match=f"{algorithm.__name__}: .*{words}"):
        trained(algorithm)


def test_a_network_that_learns_is_not_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(Predictive)


def test_a_network_that_was_frozen_is_not_told() -> None:
    class Frozen(WithoutLoss):
        def build(self) -> None:
            super().build()
            self.model.requires_grad_(False)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(Frozen)


def test_features_of_the_body_are_shaped_by_a_loss_of_another_group() -> None:
    alone, together = trained(WithoutLoss, 1), trained(Predictive, 1)
    with torch.no_grad():
        before, after = (each.actor.networks["q"].body.state_dict() for each in (alone, together))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
