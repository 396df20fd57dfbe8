"""The interface of explorers, and the state of exploration.

An explorer is an immutable value that holds only hyper-parameters. Everything that changes while actions are chosen
(random generators, the state of a noise process) is in an :class:`Exploration`, one for each set of environments.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.action_mask import AllowedActions
from pytorchrl.agent.actors.outputs import Distribution
from storages.component.schedule import Schedule, value_at
from storages.component.setting import Setting


class ActionSet(Protocol):
    """The actions of a space, as networks output them."""

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Draw a uniformly random action for each environment, (E, *action)."""

    def clip(self, action: Tensor) -> Tensor:
        """Clip actions to the bounds."""


class Exploration:
    """Random generators, progress and state of exploration in one set of environments.

    Args:
        codec: draws random actions, and clips actions to their bounds.
        num_envs: E, the number of environments.
        device: of the network's output.
        seed: of the random generators.
        deterministic: take the greedy action of each output, without the explorer; for evaluation.
        apart_from_training: draw the noise of networks from a generator of this seed, too, instead of the actor's own,
            whose draws are part of the training run.
    """

    def __init__(
        self,
        codec: ActionSet,
        num_envs: int,
        device: torch.device | str,
        seed: int | np.random.SeedSequence,
        deterministic: bool = False,
        *,
        apart_from_training: bool = False,
    ) -> None:
        self.codec = codec
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.deterministic = deterministic
        self.apart_from_training = apart_from_training
        self.noise: torch.Generator | None = None
        """Draws the noise of networks; None where the actor's own generator does."""
        self.steps, self.target_steps = 0, 1
        """Steps so far and at the end of the run, for schedules; set before each choice, and not part of the state."""
        self.starts: Tensor | None = None
        """(E, 1) float32, 1 where an episode begins; set before each choice, and not part of the state."""
        self.rewards: Tensor | None = None
        """(E, 1) float32, the rewards of the last actions; set before each choice in evaluation and recording, but not
        while experience is collected; not part of the state."""
        self.allowed: Callable[[], AllowedActions] | None = None
        """Reads the actions allowed in each environment, which only random choices need; set before each choice, and
        not part of the state. None where all are allowed."""
        self.taken: Tensor | None = None
        """(E, *action), actions of a recorded episode, as networks output them: memories of actions keep these in place
        of those chosen; set before each choice while recorded episodes are read, and not part of the state."""
        self.position, self.among = 0, num_envs
        """Index of the first environment among those of all collectors of the run, and the number of these."""
        self.state: dict[str, Tensor] = {}
        """State of explorers, (E, ...) each, by a name that the explorer chooses."""
        self.seed(seed)

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Reseed the random generators."""
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        on_device, on_host, of_noise = sequence.generate_state(3, np.uint64)
        # There are no generators on the meta device, whose tensors have no data.
        place = torch.device("cpu") if self.device.type == "meta" else self.device
        self.generator = torch.Generator(place).manual_seed(int(on_device) >> 1)
        self.random = np.random.default_rng(int(on_host))
        if self.apart_from_training:
            self.noise = torch.Generator(place).manual_seed(int(of_noise) >> 1)

    def of_rows(self, rows: int, steps: int, target_steps: int) -> "Exploration":
        """Return an exploration that treats each row of a batch as an environment, with the same generators.

        Args:
            rows: number of rows.
            steps: of the run so far.
            target_steps: of the whole run.
        """
        exploration = copy.copy(self)
        exploration.num_envs, exploration.state = rows, {}
        exploration.starts = exploration.rewards = exploration.allowed = exploration.taken = None
        exploration.position, exploration.among = 0, rows
        exploration.steps, exploration.target_steps = steps, target_steps
        return exploration

    def at(self, value: float | Schedule) -> float:
        """Return the current value of a hyper-parameter that may be a schedule."""
        return value_at(value, self.steps, self.target_steps)

    def uniform_actions(self) -> Tensor:
        """Draw a uniformly random action for each environment, of those allowed, (E, *action)."""
        allowed = self.allowed
        drawn = self.codec.uniform(self.random, self.num_envs) if allowed is None else allowed().uniform(self.random)
        return drawn.to(self.device)

    def clip(self, action: Tensor) -> Tensor:
        """Clip actions to the bounds."""
        return self.codec.clip(action)

    def state_dict(self) -> dict[str, Any]:
        """Return the random generators and the state per environment, as tensors and plain data."""
        return {
            "generator": self.generator.get_state(),
            "random": self.random.bit_generator.state,
            "state": {name: tensor.clone() for name, tensor in self.state.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: it is of another number of environments.
        """
        for name, tensor in state["state"].items():
            if len(tensor) != self.num_envs:
                raise ValueError(
                    f"Exploration: the saved state {name!r} is of {len(tensor)} environments, there are {self.num_envs}"
                )
        generator = state["generator"].cpu()
        if generator.shape == self.generator.get_state().shape:
            # The state of a generator of another kind of device cannot be restored.
            self.generator.set_state(generator)
        self.random.bit_generator.state = state["random"]
        self.state = {name: tensor.to(self.device, copy=True) for name, tensor in state["state"].items()}


@dataclass(frozen=True)
class Explorer(Setting, ABC):
    """An exploration strategy, which chooses actions by a network's output.

    Random numbers come from the exploration's generators alone: the same seed gives the same actions.
    """

    @abstractmethod
    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """Choose an action for each environment, (E, *action), as networks output them.

        Args:
            output: computes the network's output for the current observations: action values, a distribution, or
                actions. An explorer that does not need it does not call it.
            exploration: random generators, progress and state per environment.

        Raises:
            TypeError: the output is of a kind that the explorer cannot use.
        """

    def act_with_log_prob(self, distribution: Distribution, exploration: Exploration) -> tuple[Tensor, Tensor]:
        """Choose actions as :meth:`act`; return them and their log probabilities (E, 1) under the distribution."""
        action = self.act(lambda: distribution, exploration)
        return action, distribution.log_prob(action)

    def log_prob(self, output: Any, action: Tensor, exploration: Exploration) -> Tensor:
        """Return the log probabilities (densities) (E, 1) with which :meth:`act` chooses actions (E, *action).

        Raises:
            NotImplementedError: they are not known in closed form, or the actions have none.
        """
        raise NotImplementedError(f"{self!r} gives no probabilities of actions")

    def check_output(self, output: Any) -> None:
        """Refuse an output of a kind that :meth:`act` cannot use, before the first observation.

        Args:
            output: of the network, for any observations.

        Raises:
            TypeError: the message names an explorer that fits.
        """


def best_action(output: Any) -> Tensor:
    """Return the greedy actions (B, *action) of values, the mode of a distribution, or the actions given.

    Raises:
        TypeError: the output is none of these.
    """
    # Before the attributes are read: a tensor has a `mode`, too.
    if isinstance(output, Tensor):
        return output
    best: Callable[[], Tensor] | None = getattr(output, "greedy", None) or getattr(output, "mode", None)
    if best is None:
        raise TypeError(
            f"a {type(output).__name__} has no greedy action: it is no tensor of actions and has neither "
            f"greedy(), as action values have, nor mode(), as distributions have"
        )
    return best()


def has_attribute(output: Any, name: str) -> bool:
    """Whether an output has this attribute and is not a tensor of actions."""
    return not isinstance(output, Tensor) and hasattr(output, name)


_OUTPUTS = (
    "a head returns an object of prl.outputs: ScalarValues(values), (B, n), for discrete actions, or a Distribution, "
    "such as Categorical(logits) or DiagonalGaussian(...)"
)


def output_error(explorer: Explorer, needs: str, output: Any) -> TypeError:
    """Make the error of an explorer that cannot use an output; it names one that can."""
    if isinstance(output, np.ndarray):
        return TypeError(
            f"{type(explorer).__name__} needs {needs}, the network gives an array; {_OUTPUTS}, of torch's tensors"
        )
    if isinstance(output, Tensor):
        given = f"a tensor of {output.dtype}"
        way_out = "Greedy"
        if output.is_floating_point():
            way_out = f"GaussianNoise or OrnsteinUhlenbeck if it is an action; {_OUTPUTS}"
    else:
        given = type(output).__name__
        way_out = (
            "Sample"
            if has_attribute(output, "sample")
            else "EpsilonGreedy"
            if has_attribute(output, "greedy")
            else "Greedy"
        )
    return TypeError(f"{type(explorer).__name__} needs {needs}, the network gives {given}; explore with {way_out}")
