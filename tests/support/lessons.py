"""Batches that an algorithm learns from in a tiny composition, and twins of the algorithm that compute their losses."""

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from tests.support.every_algorithm import ACTIONS, OFF_POLICY, ON_POLICY, WITH_MEMORY, Constant, expert_data

BODY: dict[str, Any] = {"hidden_sizes": (5, 4), "activation": "tanh"}


class Wandering(gym.Env[Any, Any]):
    """Random observations and rewards; each episode terminates after five steps."""

    def __init__(self, actions: Any) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = actions
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._seen(), float(self.np_random.normal()), self.steps >= 5, False, {}

    def _seen(self) -> Any:
        return self.np_random.normal(size=2).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An algorithm of the tables, with actions of a kind that it supports."""

    name: str
    actions: str

    @property
    def algorithm(self) -> type[prl.Algorithm]:
        """The class."""
        cls: type[prl.Algorithm] = (OFF_POLICY | ON_POLICY)[self.name][0]
        return cls

    @property
    def settings(self) -> dict[str, Any]:
        """Hyper-parameters with which it learns from a few transitions."""
        given: dict[str, Any] = (OFF_POLICY | ON_POLICY)[self.name][1]
        if hasattr(self.algorithm, "policy_delay"):
            # Every update has all losses.
            given = {**given, "policy_delay": 1}
        if self.name not in OFF_POLICY:
            return {**given, "test_every": 0}
        common: dict[str, Any] = {"start_steps": 12, "update_every": 6, "mini_batch_size": 4, "test_every": 0}
        expert = {"expert": Constant(ACTIONS[self.actions])} if self.algorithm is prl.DAgger else {}
        return {**given, **common, **expert}

    @property
    def memory(self) -> dict[str, Any]:
        """The memory of the actor, where the algorithm needs one."""
        return {"memory": "gru", "memory_size": 4} if self.algorithm in WITH_MEMORY else {}

    def __str__(self) -> str:
        return f"{self.name}-{self.actions}"


CASES = [Case(name, actions) for name, (_, _, kinds) in (OFF_POLICY | ON_POLICY).items() for actions in kinds]


def make_scheme(
    case: Case, algorithm: type[prl.Algorithm] | None = None, body: Mapping[str, Any] = BODY, **changes: Any
) -> prl.Scheme:
    """Make a scheme of a case, with changed hyper-parameters; a subclass may stand for the algorithm."""
    needs = case.algorithm.sources["main"]
    envs = prl.VecEnv.create_factory(Wandering, 2, env_kwargs={"actions": ACTIONS[case.actions]})
    factory = (algorithm or case.algorithm).create_factory(**case.settings | changes)
    in_sequences = case.memory or needs.segments or needs.multi_step_rows
    windows: dict[str, Any] = {"sequences": prl.Sequences(4)} if in_sequences else {}
    if needs.whole_episodes:
        windows = {"sequences": prl.Episodes()}
    replay = prl.ReplayBuffer.create_factory(size=40, **windows)
    data = prl.from_dataset(replay, _data(case.actions)) if "box" not in case.actions else None
    if case.name in OFF_POLICY:
        actor = prl.OffPolicyActor.create_factory(**body, **case.memory)
        if not needs.collected:
            return prl.Scheme(factory, actor, data, test_envs_factory=envs, seed=3)
        return prl.Scheme(factory, actor, replay, envs, seed=3)
    actor = prl.OnPolicyActor.create_factory(**body)
    storage = _rollouts(needs).create_factory(size=8, **({} if needs.values else {"cut_episodes": "drop"}))
    sources: dict[str, Any] = {"expert": data} if "expert" in case.algorithm.sources else {}
    if "demonstrations" in case.algorithm.sources:
        sources = {"demonstrations": data, "repeated": storage}
    return prl.Scheme(factory, actor, storage, envs, sources=sources, seed=3)


def _rollouts(needs: prl.Needs) -> type[prl.Storage]:
    if not needs.values:
        return prl.VanillaOnPolicyBuffer
    return prl.VTraceBuffer if needs.older_policies and not needs.intrinsic else prl.GAEBuffer


@cache
def _data(actions: str) -> Path:
    space = ACTIONS[actions]
    return expert_data(_folder(actions), "vector", space, Wandering(space))


@cache
def _folder(_: str) -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory())
    return Path(_FOLDERS[-1].name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def collect(scheme: prl.Scheme) -> None:
    """Collect until an update phase is due; data sets are there already."""
    due = 0 if scheme.collector is not None else 1
    while not due:
        _, due = scheme.collect(scheme.steps + 4)


def learn(scheme: prl.Scheme, phases: int = 2) -> None:
    """Run update phases, with the collection before each."""
    for _ in range(phases):
        collect(scheme)
        for _ in scheme.update():
            pass


def parameters(algorithm: prl.Algorithm) -> dict[str, nn.Parameter]:
    """The trained parameters by name: those of the groups, and those that are trained without an optimiser."""
    groups = algorithm.training.groups.items()
    grouped = {f"{group}.{name}": each for group, trained in groups for name, each in trained.parameters.items()}
    known = {id(parameter) for parameter in grouped.values()}
    others = algorithm.actor.networks.named_parameters()
    return grouped | {name: each for name, each in others if each.requires_grad and id(each) not in known}


@dataclass
class Lesson:
    """Two batches of which an algorithm computes `losses`, and its state before the first; none if it computes none.

    Args:
        case: the algorithm and the kind of actions.
    """

    case: Case

    def __post_init__(self) -> None:
        self.batches: list[Any] = []
        self._envs = prl.VecEnv(Wandering, 2, env_kwargs={"actions": ACTIONS[self.case.actions]})
        scheme = make_scheme(self.case)
        algorithm = scheme.algorithm
        losses = algorithm.losses

        def recorded(rows: prl.Rows) -> prl.Losses:
            if not self.batches:
                self._state = copy.deepcopy(algorithm.state_dict())
            if len(self.batches) < 2:
                self.batches.append(copy.deepcopy(rows.batch))
            return losses(rows)

        algorithm.losses = recorded  # type: ignore[method-assign]
        for _ in range(4):
            if len(self.batches) < 2:
                learn(scheme, 1)
        scheme.close()

    def twin(
        self,
        change: Callable[[type[prl.Algorithm]], type[prl.Algorithm]] = lambda cls: cls,
        actor: Callable[[type[prl.Actor]], type[prl.Actor]] = lambda cls: cls,
    ) -> prl.Algorithm:
        """Make an algorithm in the state before the first batch, of changed classes."""
        case = self.case
        actors: type[prl.Actor] = prl.OffPolicyActor if case.name in OFF_POLICY else prl.OnPolicyActor
        made = actor(actors).create_factory(**BODY, **case.memory)("cpu", self._envs)
        algorithm = change(case.algorithm).create_factory(**case.settings)("cpu", made, self._envs)
        self.restore(algorithm)
        return algorithm

    def restore(self, algorithm: prl.Algorithm) -> None:
        """Load the state before the first batch; modules of users' classes add a generator, which goes on."""
        state, present = copy.deepcopy(self._state), algorithm.random_state()
        if len(present) > len(state["generators"]):
            # Behind the algorithm's and the actor's, before those that a subclass adds.
            state["generators"].insert(2, present[2])
        algorithm.load_state_dict(state)

    def gradients(self, algorithm: prl.Algorithm) -> dict[str, Tensor]:
        """The gradients of the losses of the first batch, by parameter."""
        gradients: dict[str, Tensor] = {}
        for losses in self.all_losses(algorithm):
            losses.backward()
            gradients |= losses.copied_gradients()
        return gradients

    def losses(self, algorithm: prl.Algorithm, position: int = 0) -> prl.Losses:
        """The losses of a batch."""
        return algorithm.losses(algorithm.read(copy.deepcopy(self.batches[position])))

    def all_losses(self, algorithm: prl.Algorithm) -> Iterator[prl.Losses]:
        """The losses of the first batch, and those after the step at the same weights."""
        rows = algorithm.read(copy.deepcopy(self.batches[0]))
        yield algorithm.losses(rows)
        later = algorithm.losses_after_step(rows.without_features())
        if later is not None:
            yield later


@cache
def lesson(case: Case) -> Lesson:
    """The lesson of a case, made once."""
    return Lesson(case)


def owners(algorithm: prl.Algorithm, names: Iterable[str]) -> dict[str, nn.Module]:
    """The modules that hold the parameters of these names, by the names of the parameters.

    A `torch.nn.MultiheadAttention` reads the parameters of its own layers without calling them.
    """
    trained = parameters(algorithm)
    uncalled = {
        id(inner)
        for module in algorithm.actor.modules()
        if isinstance(module, nn.MultiheadAttention)
        for inner in module.modules()
        if inner is not module
    }
    by_id = {
        id(parameter): module
        for module in algorithm.actor.modules()
        if id(module) not in uncalled
        for parameter in module.parameters(recurse=False)
    }
    return {name: by_id[id(trained[name])] for name in names if id(trained[name]) in by_id}


def difference(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> set[str]:
    """The names of the gradients that are not the same; a missing gradient is zero."""
    return {
        name
        for name in ours.keys() | theirs.keys()
        if not torch.equal(
            *(each.get(name, torch.zeros(())).expand_as(_either(name, ours, theirs)) for each in (ours, theirs))
        )
    }


def _either(name: str, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Tensor:
    return ours[name] if name in ours else theirs[name]
