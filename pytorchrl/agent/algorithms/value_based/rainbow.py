"""Rainbow: categorical double DQN with a noisy dueling network and prioritised three-step returns."""

from typing import ClassVar

from pytorchrl.agent.actors.layers.linear_layers import NoisyLinear
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.value_based.distributional_dqn import CategoricalDQN
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer, Greedy
from pytorchrl.agent.optimizers import Adam
from storages.component.factory import Factory, make_factory
from storages.component.hyper_parameters import Positive
from storages.component.schedule import LinearSchedule
from storages.off_policy.per_buffer import PERBuffer

SMALL = {
    "lr": LinearSchedule(1e-3, 0.0),
    "optimizer": Adam(eps=3.125e-4),
    "v_min": 0.0,
    "v_max": 100.0,
    "start_steps": 1_000,
    "update_every": 2,
    "mini_batch_size": 64,
    "target_update_interval": 250,
    "explorer": EpsilonGreedy(LinearSchedule(1.0, 0.01, fraction=1 / 3)),
}
"""Hyper-parameters of :meth:`Rainbow.small`."""


class Rainbow(CategoricalDQN):
    """Hessel et al., "Rainbow: Combining Improvements in Deep Reinforcement Learning" (arXiv 1710.02298).

    Categorical double DQN that explores with noisy layers. The noisy dueling actor and the prioritised n-step storage
    come with :meth:`paper` and :meth:`small`. Each forward pass draws new noise, shared by all rows of the batch.

    Raises:
        ValueError: the network has no noise to explore by, and no explorer is given.
    """

    epsilon: ClassVar[float] = 0.0  # type: ignore[misc]  # noisy layers explore
    lr = 6.25e-5
    optimizer = Adam(eps=1.5e-4)
    start_steps = 20_000
    mini_batch_size = 32
    polyak = 0.0
    target_update_interval = 2_000
    max_grad_norm: Positive | None = None

    def default_explorer(self) -> Explorer:
        """Return the greedy action of the noisy network."""
        if not any(isinstance(module, NoisyLinear) for module in self.q.modules()):
            raise ValueError(
                f"{type(self).__name__} explores with noisy layers, but {type(self.actor).__name__} has "
                f"none; give the actor noisy=True, or {type(self).__name__} an explorer"
            )
        return Greedy()

    @classmethod
    def paper(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's table 1, for Atari with clipped rewards and stacks of 4 frames, and 50 million transitions.

        A transition is four of the paper's frames, so its target network period of 32K frames is 2,000 updates. The
        gradient norm of 10 is that of its authors' runs: the paper leaves it out, and van Hasselt et al. (arXiv
        1906.05243) list it.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        return Preset(
            algo_factory=make_factory(cls, (), {"max_grad_norm": 10.0}),
            actor_factory=OffPolicyActor.create_factory(
                feature_extractor="nature_convolutions", hidden_sizes=(), dueling=True, dueling_size=512, noisy=True
            ),
            storage_factory=_replay(capacity // num_envs),
        )

    @classmethod
    def small(cls, capacity: int = 100_000, num_envs: int = 1) -> Preset:
        """For small observations, returns from 0 to 100, and about 100,000 transitions; arguments as of :meth:`paper`.

        Based on arXiv 2011.14826, with more updates, larger batches, and epsilon-greedy exploration at first.
        """
        return Preset(
            algo_factory=make_factory(cls, (), SMALL),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(128,), dueling=True, noisy=True),
            storage_factory=_replay(capacity // num_envs),
        )


def _replay(size: int) -> Factory[PERBuffer]:
    return PERBuffer.create_factory(
        size, n_step=3, alpha=0.5, beta=LinearSchedule(0.4, 1.0), default_error="largest", weights_over="batch"
    )
