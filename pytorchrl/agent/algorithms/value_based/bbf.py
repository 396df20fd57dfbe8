"""BBF: SPR with a larger network, weight decay and resets, that acts by its target network."""

from typing import Any, Literal

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.value_based.spr import AUGMENTATION, SPR, replay_of_sequences
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from pytorchrl.agent.optimizers import AdamW
from storages.component.factory import make_factory
from storages.component.hyper_parameters import UnitIntervalOrSchedule
from storages.component.schedule import PiecewiseSchedule
from storages.transition import OBS


class BBF(SPR):
    """Schwarzer et al., "Bigger, Better, Faster: Human-level Atari with human-level efficiency" (arXiv 2305.19452).

    It is SPR that acts by the target network, an average of the weights, without noisy layers. The other parts of the
    recipe are parts of a run: the network, and callbacks that reset it, and anneal ``gamma`` and the storage's
    ``n_step`` after each reset.
    """

    epsilon: UnitIntervalOrSchedule = PiecewiseSchedule(((2_000, 1.0), (4_000, 0.0)), positions="steps")  # type: ignore[assignment,misc]
    gamma = 0.997
    optimizer = AdamW(eps=1.5e-4, weight_decay=0.1)
    polyak = 0.995

    def build(self) -> None:
        """Make the networks of SPR; the target network is the actor's, too, as it acts."""
        super().build()
        self.actor.add("q_target", self.q_target, acts=True)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """Return the target network's values of all actions."""
        network: Network = self.q_target
        values: ActionValues = network(view)
        return values

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy exploration."""
        return EpsilonGreedy(self.epsilon)

    @classmethod
    def paper(cls, capacity: int = 200_000, num_envs: int = 1, width: Literal[1, 4] = 4) -> Preset:
        """The paper's settings for Atari with clipped rewards and stacks of 4 frames, at a replay ratio of 2.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
            width: factor of the channels of IMPALA's network: 4, as in the paper, or 1, with a quarter of the units of
                the streams, for computers without a GPU.
        """
        network: dict[str, Any] = {
            4: {"feature_extractor": "wide_impala_convolutions", "dueling_size": 2_048},
            1: {"feature_extractor": "impala_convolutions", "dueling_size": 512},
        }[width]
        return Preset(
            algo_factory=make_factory(cls, (), {}),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(), dueling=True, **network),
            storage_factory=replay_of_sequences(capacity // num_envs, n_step=3, transforms={OBS: AUGMENTATION}),
        )

    @classmethod
    def small(cls, capacity: int = 100_000, num_envs: int = 1) -> Preset:
        """The settings of :meth:`SPR.small` without noisy layers, and target network and optimiser of :meth:`paper`."""
        of_spr = super().small(capacity, num_envs)
        changed = of_spr["algo_factory"].hyper_parameters | {"gamma": 0.99, "polyak": 0.995, "optimizer": cls.optimizer}
        return Preset(
            algo_factory=make_factory(cls, (), changed),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(128,), dueling=True),
            storage_factory=of_spr["storage_factory"],
        )
