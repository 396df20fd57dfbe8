"""A feature extractor may be any module of the user, which is tried on a sample before training."""

import functools
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.heads import Policy
from pytorchrl.agent.explorers import Exploration
from storages.transition import LOGP
from tests.support.comparison import assert_equal
from tests.support.toys import Noise
from tests.support.training import train

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PARTS = spaces.Dict(speed=VECTOR, gear=spaces.Discrete(5, start=2), view=spaces.Box(0, 255, (4, 4), np.uint8))


class MyEncoder(nn.Module):
    """Declares no output_size."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        assert space.shape is not None
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(space.shape)), 7), nn.Tanh())

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.layers(observation.float())
        return features


class DictEncoder(nn.Module):
    def __init__(self, space: spaces.Dict, width: int = 2) -> None:
        super().__init__()
        self.gear = nn.Embedding(int(space["gear"].n), width)  # type: ignore[attr-defined]

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        assert observation["gear"].shape[1:] == (1,)
        assert observation["gear"].dtype == torch.int64
        assert observation["view"].dtype == torch.uint8
        gear: Tensor = self.gear(observation["gear"][:, 0] - 2)
        return torch.cat([observation["speed"], gear], dim=1)


def body_of(space: Any, extractor: Any) -> Body:
    return Body(space, (8,), "relu", "uniform", extractor=extractor)


def extractor_returning(make: Any) -> Any:
    class Wrong(nn.Module):
        def forward(self, observation: Tensor) -> Any:
            return make(observation)

    return lambda space: Wrong()


def test_the_output_size_of_a_users_class_is_inferred() -> None:
    body = body_of(VECTOR, MyEncoder)
    assert body.features.output_size == 7
    observation = torch.randn(4, 3)
    torch.testing.assert_close(body(observation), torch.relu(body.hidden.layers[0](body.features(observation))))
    body(observation).sum().backward()
    assert all(parameter.grad is not None for parameter in body.features.parameters())


def test_an_actor_uses_a_users_class_and_names_it_in_repr_and_config() -> None:
    envs = SimpleNamespace(observation_space=VECTOR, action_space=spaces.Discrete(2))
    factory = prl.OnPolicyActor.create_factory(feature_extractor=MyEncoder)
    actor = factory("cpu", envs)
    policy = actor.make("policy", Policy())
    assert policy(actor.view(torch.randn(4, 3))).mode().shape == (4, 1)
    assert "observations: MyEncoder" in repr(actor)
    assert factory.config["hyper_parameters"]["feature_extractor"] == {"callable": "MyEncoder"}


@pytest.mark.parametrize(
    "extractor", [DictEncoder, functools.partial(DictEncoder, width=6), lambda space: DictEncoder(space, width=4)]
)
def test_a_users_extractor_gets_the_whole_dict_in_the_layout_of_storages(extractor: Any) -> None:
    body = body_of(PARTS, extractor)
    assert body.features.output_size in (5, 7, 9)
    observation = {
        "speed": torch.randn(3, 3),
        "gear": torch.tensor([[2], [6], [3]]),
        "view": torch.zeros(3, 4, 4, dtype=torch.uint8),
    }
    assert body(observation).shape == (3, 8)


def test_lazy_layers_are_initialised_before_training() -> None:
    body = body_of(VECTOR, lambda space: nn.LazyLinear(5))
    assert body.features.weight.shape == (5, 3)


def test_the_trial_run_changes_no_state() -> None:
    class Counting(nn.Module):
        def __init__(self, space: gym.Space[Any]) -> None:
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout()
            self.drop.eval()

        def forward(self, observation: Tensor) -> Tensor:
            features: Tensor = self.drop(self.norm(observation))
            return features

    space = spaces.Box(-1, 1, (3,), np.float32, seed=3)
    features = body_of(space, Counting).features
    expected = spaces.Box(-1, 1, (3,), np.float32, seed=3).sample()
    assert np.array_equal(space.sample(), expected)
    assert features.norm.num_batches_tracked == 0
    assert features.training
    assert not features.drop.training


@pytest.mark.parametrize(
    ("extractor", "error", "message"),
    [
        (
            extractor_returning(lambda obs: [obs]),
            TypeError,
            r"feature_extractor <lambda> must return .*it returned a list",
        ),
        (extractor_returning(lambda obs: (obs, obs)), TypeError, "it returned a tuple of 2"),
        (extractor_returning(lambda obs: obs.sum(1)), ValueError, r"it returned \(2,\) of torch.float32"),
        (extractor_returning(lambda obs: obs[:1]), ValueError, r"it returned \(1, 3\) of torch.float32"),
        (extractor_returning(lambda obs: obs[..., None]), ValueError, r"it returned \(2, 3, 1\)"),
        (extractor_returning(lambda obs: obs.double()), ValueError, r"it returned \(2, 3\) of torch.float64"),
        (lambda space: 3, TypeError, "feature_extractor <lambda> must make a torch.nn.Module .* got a int"),
        (nn.Linear(3, 2), TypeError, r"is an instance of Linear; .* lambda space: Linear\(\.\.\.\)"),
    ],
)
def test_an_invalid_extractor_or_return_value_is_refused(extractor: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        body_of(VECTOR, extractor)


def test_a_wrong_output_size_is_refused() -> None:
    class Lying(MyEncoder):
        output_size = 8

    with pytest.raises(ValueError, match=r"feature_extractor Lying declares output_size = 8; .* it returned \(2, 7\)"):
        body_of(VECTOR, Lying)


def test_output_size_may_be_a_property() -> None:
    class Sized(MyEncoder):
        @property
        def output_size(self) -> int:
            return 7

    assert body_of(VECTOR, Sized)(torch.zeros(2, 3)).shape == (2, 8)


def test_an_exception_of_an_own_network_says_what_it_was_given() -> None:
    class OfTheWrongSize(nn.Module):
        def __init__(self, space: gym.Space[Any]) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 8)

        def forward(self, observation: Any) -> Tensor:
            return self.layer(observation["speed"])  # type: ignore[no-any-return]

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as error:
        body_of(PARTS, OfTheWrongSize)
    (note,) = error.value.__notes__
    assert note.startswith("feature_extractor OfTheWrongSize raised this when it was tried with 2 observations, ")
    assert "gear (2, 1) of torch.int64" in note
    assert "speed (2, 3) of torch.float32" in note


class InPlace(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, observation: Tensor) -> Tensor:
        observation /= 255
        features: Tensor = self.layer(observation)
        return features


class InPlaceOfParts(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        observation["speed"].clamp_(0, 0.1)
        return observation["speed"]


class RemovesParts(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        return observation.pop("speed")


@pytest.mark.parametrize(("space", "extractor"), [(VECTOR, InPlace), (PARTS, InPlaceOfParts), (PARTS, RemovesParts)])
def test_a_network_that_would_change_stored_observations_is_refused(space: Any, extractor: Any) -> None:
    with pytest.raises(ValueError, match=f"feature_extractor {extractor.__name__} changes the observations"):
        body_of(space, extractor)


class ModeDependent(nn.Module):
    """Computes other features in training mode than in evaluation mode."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5))
        self.fixed = nn.Dropout(0.9).eval()

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.fixed(self.layers(observation))
        return features


@pytest.mark.parametrize("deterministic", [False, True])
def test_acting_changes_no_statistics_and_applies_no_dropout(deterministic: bool) -> None:
    envs: Any = SimpleNamespace(observation_space=VECTOR, action_space=spaces.Discrete(2))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor=ModeDependent)("cpu", envs)
    algorithm = prl.DQN.create_factory(epsilon=0.0, start_steps=0)("cpu", actor, envs)
    weights = algorithm.get_weights()
    obs, done = torch.randn(50, 3), torch.zeros(50, 1)
    exploration = Exploration(algorithm.codec, 50, "cpu", seed=0, deterministic=deterministic)
    actions = [algorithm.acting_step(obs, None, done, exploration).action for _ in range(3)]
    assert torch.equal(actions[0], actions[1])
    assert torch.equal(actions[0], actions[2])
    assert_equal(algorithm.get_weights(), weights)
    extractor: Any = next(module for module in actor.modules() if isinstance(module, ModeDependent))
    assert extractor.layers[1].training, "batch norm stays in training mode"
    assert not extractor.fixed.training, "a layer that its author set to evaluation mode stays in it"
    one = Exploration(algorithm.codec, 1, "cpu", seed=0, deterministic=deterministic)
    assert torch.equal(algorithm.acting_step(obs[:1], None, done[:1], one).action, actions[0][:1])


@pytest.mark.parametrize("actor", [{"feature_extractor": ModeDependent}, {"dropout": 0.5}, {"batch_norm": True}])
@pytest.mark.parametrize("storage", [prl.GAEBuffer, prl.VTraceBuffer])
def test_bootstrap_values_after_a_rollout_are_computed_as_while_acting(storage: Any, actor: Any) -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **actor),
        storage.create_factory(size=16),
        prl.VecEnv.create_factory(Noise),
    )
    train(scheme, 32)
    before = scheme.algorithm.get_weights()
    obs, done = torch.randn(1, 3), torch.zeros(1, 1)
    step = scheme.algorithm.acting_step(obs, None, done, Exploration(scheme.algorithm.codec, 1, "cpu", seed=0))
    with torch.no_grad():
        value = scheme.actor.value(obs, None, done)
        torch.testing.assert_close(scheme.actor.value(obs, None, done), value)
        log_prob, again = scheme.actor.evaluate_actions(obs[None], None, done[None], step.action[None])
    torch.testing.assert_close(again[0], value)
    torch.testing.assert_close(log_prob[0], step.fields[LOGP])
    assert_equal(scheme.algorithm.get_weights(), before)
    scheme.close()
