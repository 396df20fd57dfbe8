"""Base class of algorithms that combine on-policy updates with experience replay."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes, EveryTransitions, UpdatePlan
from pytorchrl.agent.explorers import Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, Positive
from storages.storage import Storage
from storages.transition import Batch


class OnAndOffPolicy(Algorithm):
    """A stochastic policy trained on the newest steps of all environments and on replayed sequences.

    One storage serves as rollout and replay buffer. An update phase is one on-policy update on the newest steps, then a
    Poisson-distributed number of updates on replayed batches.

    Args:
        explorer: exploration strategy; None samples from the policy.
        lr: learning rate.
        online_update: begin each update phase with an update on the newest steps; False learns from replay alone.
        update_every: environment transitions between update phases, over all environments, and size of the on-policy
            batch.
        replay_ratio: mean number of replayed batches per update phase; 0 is on-policy.
        episodes_per_update: episodes, over all environments, after which an update phase is due, instead of after
            ``update_every`` transitions; None for none.
        start_steps: environment transitions before the first replay.
        mini_batch_size: sequences, or episodes, in a replayed batch.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", segments=True)}

    explorer: Explorer | None = None
    lr: NonNegativeOrSchedule = 7e-4
    max_grad_norm: Positive | None = 0.5
    online_update: bool = True
    update_every: Count = 80
    replay_ratio: NonNegative = 4.0
    episodes_per_update: Count | None = None
    start_steps: CountOrZero = 1_000
    mini_batch_size: Count = 16

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse update phases without updates."""
        super().check_hyper_parameters(hyper_parameters)
        if not hyper_parameters["online_update"] and hyper_parameters["replay_ratio"] == 0:
            raise ValueError(
                f"{cls.__name__}: with online_update=False and replay_ratio=0 nothing is learnt; choose a larger "
                f"replay_ratio"
            )

    def make_explorer(self) -> Explorer:
        """Return the explorer, or sampling from the policy."""
        return Sample() if self.explorer is None else self.explorer

    def update_plan(self) -> UpdatePlan:
        """Return an update phase every ``update_every`` environment transitions, or at the end of episodes."""
        if self.episodes_per_update is not None:
            return EveryEpisodes(self.episodes_per_update)
        return EveryTransitions(self.update_every)

    def request_fields(self, source: str, storage: Storage) -> None:
        """Let the storage keep the steps of an on-policy batch, too."""
        super().request_fields(source, storage)
        if self.online_update:
            # The number of environments may not be known yet.
            storage.keep_newest_steps(self.update_every)

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the newest steps, if they are learnt from, then replayed sequences."""
        if self.online_update:
            yield source.newest_steps(-(-self.update_every // source.num_envs))
        if self.steps < self.start_steps:
            return
        rate = torch.tensor(self.replay_ratio, device=self.device)
        replays = int(torch.poisson(rate, generator=self.generator))
        if replays:
            yield from source.generate_batches(replays, self.mini_batch_size)
