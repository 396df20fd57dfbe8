"""What algorithms have in common that learn from the newest steps first, and then from older ones."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.update_plan import EveryTransitions, UpdatePlan
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, Positive
from storages.storage import Storage
from storages.transition import Batch


class FreshAndReplayed(Algorithm):
    """A stochastic policy that learns from the newest steps of all environments, and from replayed sequences.

    One storage is rollout and replay. An update phase learns once from the newest steps, as the policy has just made
    them, and then from a number of replayed batches that Poisson's distribution gives.

    Args:
        lr: learning rate.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
        update_every: environment transitions, of all environments together, between update phases; each learns from as
            many new ones.
        replay_ratio: replayed batches of an update phase, on average; 0 learns on-policy.
        start_steps: environment transitions before the first replay.
        mini_batch_size: sequences, or episodes, in a replayed batch.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", segments=True)}

    lr: NonNegativeOrSchedule = 7e-4
    max_grad_norm: Positive | None = 0.5
    update_every: Count = 80
    replay_ratio: NonNegative = 4.0
    start_steps: CountOrZero = 1_000
    mini_batch_size: Count = 16

    def make_policy(self, head: Head) -> Network:
        """The policy, which acts."""
        self.pi = self.actor.make("policy", head, acts=True)
        return self.pi

    def make_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> Any:
        """The distribution of actions."""
        return self.pi(view)

    def update_plan(self) -> UpdatePlan:
        """Every so many environment transitions."""
        return EveryTransitions(self.update_every)

    def batches(self, source: Storage) -> Iterator[Batch]:
        """The newest steps, and replayed sequences."""
        yield source.newest_steps(-(-self.update_every // source.num_envs))
        if self.steps < self.start_steps:
            return
        rate = torch.tensor(self.replay_ratio, device=self.device)
        replays = int(torch.poisson(rate, generator=self.generator))
        if replays:
            yield from source.generate_batches(replays, self.mini_batch_size)
