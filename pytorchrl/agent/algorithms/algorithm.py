"""What every algorithm is: how to act, how to make gradients of a batch and how to apply them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.flat_adam import FlatAdam
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.other_names import ALGORITHM_NAMES
from storages.factory import Component
from storages.schedule import Schedule, value_at
from storages.transition import Batch

STOP_UPDATES = "StopUpdates"
"""In an update's ``info``: this batch was not learnt from and the rest of the update phase is to be left out."""

Info: TypeAlias = dict[str, Any]
"""What an update says: numbers to log (floats, or tensors of no axes, so that no device is waited for), per-row errors
under ``storages.transition.ERRORS`` where there are any, and :data:`STOP_UPDATES`."""


class ActingStep(NamedTuple):
    """What an algorithm does in one step of the environments; tensors on its device."""

    action: Tensor
    """(E, 1) or (E, *action): to be stored as ACT."""
    env_action: Tensor
    """As ``action``: to be given to the environments; differs where an action outside their bounds was drawn."""
    rhs: Any
    """Memory before the next observation; None without a memory."""
    fields: Mapping[str, Tensor]
    """What else the storage is to keep: values, log probabilities."""


class Algorithm(Component, ABC):
    """Learns from batches how to act.

    Args:
        device: where it computes.
        actor: gets from here the heads that the algorithm needs.
        envs: say what an observation and an action are.
        gamma: discount factor of one step.
        test_every: environment transitions between evaluations; 0 for none.
        num_test_episodes: episodes of an evaluation.
    """

    context = ("device", "actor", "envs")
    other_names = ALGORITHM_NAMES
    on_policy: ClassVar[bool]
    """Whether it learns from what the current policy did alone."""
    actor_class: ClassVar[type[Actor]]
    """The actors that it knows how to use."""
    learns_from_packed: ClassVar[bool] = False
    """Whether it knows how to learn from batches of packed episodes."""

    start_steps: int = 0
    """Environment transitions before the first update; actions are random until then."""
    num_epochs: int = 1
    """Times that an update phase goes through its batches."""
    update_every: int | None = None
    """Environment transitions between update phases; None: when the storage's rollout is full."""
    num_mini_batch: int = 1
    """Batches of an epoch."""
    mini_batch_size: int | None = None
    """Transitions in a batch; None: what the rollout and the number of batches make."""

    def __init__(
        self,
        device: torch.device | str,
        actor: Actor,
        envs: VecEnv,
        gamma: float,
        test_every: int,
        num_test_episodes: int,
    ) -> None:
        self.check_spaces(envs)
        if not isinstance(actor, self.actor_class):
            raise TypeError(f"{type(self).__name__} needs an {self.actor_class.__name__}, got {type(actor).__name__}")
        self.device = find_device(device)
        self.actor: Actor = actor
        self.action_space = envs.action_space
        self.gamma = gamma
        self.test_every = test_every
        self.num_test_episodes = num_test_episodes
        self.steps, self.target_steps = 0, 1
        self._optimizer: FlatAdam
        self.seed(np.random.SeedSequence())

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """Refuse environments that the algorithm cannot act in.

        Raises:
            UnsupportedSpaceError: the message names the space and an algorithm that handles it.
        """

    # Acting

    @abstractmethod
    def acting_step(self, obs: Any, rhs: Any, done: Tensor, deterministic: bool = False) -> ActingStep:
        """Act in ``E`` environments.

        Args:
            obs: (E, *obs) on the algorithm's device, or a dict of such.
            rhs: memory before ``obs``; None without a memory.
            done: (E, 1) float32, 1 where ``obs`` is the first of an episode.
            deterministic: act as well as it can instead of exploring; draws no random number.
        """

    # Learning

    def compute_gradients(self, batch: Batch) -> tuple[dict[str, Tensor], Info]:
        """Gradients by parameter name, copies; none where ``info`` says to stop."""
        info = self._backward(batch)
        if info.get(STOP_UPDATES):
            return {}, info
        return {n: p.grad.clone() for n, p in self._trained().items() if p.grad is not None}, info

    def apply_gradients(self, gradients: Mapping[str, Tensor] | None = None) -> None:
        """Take an optimiser's step along the gradients computed last, or along those given (none: no step)."""
        if gradients is not None:
            if not gradients:
                return
            for name, parameter in self._trained().items():
                parameter.grad = gradients[name].to(self.device, copy=True) if name in gradients else None
        self._step()

    def update(self, batch: Batch) -> Info:
        """Compute and apply gradients, without copying them."""
        info = self._backward(batch)
        if not info.get(STOP_UPDATES):
            self._step()
        return info

    @abstractmethod
    def _backward(self, batch: Batch) -> Info:
        """Leave the gradients of a batch in the parameters."""

    @abstractmethod
    def _step(self) -> None:
        """Take an optimiser's step, and whatever follows each."""

    def _trained(self) -> dict[str, nn.Parameter]:
        """The parameters that gradients are for, by name."""
        return dict(self.actor.named_parameters())

    # Weights and hyper-parameters

    def get_weights(self) -> dict[str, Tensor]:
        """Copies of the actor's weights, on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.actor.state_dict().items()}

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Act and learn from now on with these weights of the actor."""
        self.actor.load_state_dict(weights)

    def update_algorithm_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the algorithm is in use.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range.
        """
        self._update_parameter(name, value)
        self._follow_schedules()

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Say how far the run has come, in environment transitions; schedules follow."""
        self.steps, self.target_steps = steps, target_steps
        self._follow_schedules()

    def current(self, hyper_parameter: float | Schedule) -> float:
        """What a hyper-parameter that may be a schedule is worth now."""
        return value_at(hyper_parameter, self.steps, self.target_steps)

    @abstractmethod
    def _follow_schedules(self) -> None:
        """Put what the learning rates are worth now where the optimiser reads them."""

    # Randomness and disk

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Start the random generators of exploration and of sampled actions anew."""
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        acting, exploring = sequence.generate_state(2, np.uint64)
        self._generator = torch.Generator(self.device).manual_seed(int(acting) >> 1)
        self._exploration = np.random.default_rng(int(exploring))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next action and the next update depend on, as tensors and plain data."""
        return {
            "actor": self.actor.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "generator": self._generator.get_state(),
            "exploration": self._exploration.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved."""
        self.actor.load_state_dict(state["actor"])
        self._optimizer.load_state_dict(state["optimizer"])
        generator = state["generator"].cpu()
        if generator.shape == self._generator.get_state().shape:
            # The state of a generator on another kind of device cannot be continued from.
            self._generator.set_state(generator)
        self._exploration.bit_generator.state = state["exploration"]
