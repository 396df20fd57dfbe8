"""DQN: Q-learning with a deep network, a replay buffer and a target network."""

from torch import Tensor

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.discrete_q_learning import DiscreteQLearning
from pytorchrl.agent.algorithms.value_based.parts.replayed_q_learning import ReplayedQLearning
from pytorchrl.agent.optimizers import RMSprop
from pytorchrl.agent.preset import Preset
from storages.component.declared import hyper_parameters_of
from storages.component.factory import make_factory
from storages.component.hyper_parameters import Count
from storages.component.schedule import PiecewiseSchedule
from storages.off_policy.replay_buffer import ReplayBuffer

_NATURE = {
    "lr": 2.5e-4,
    # The paper adds 0.01 to squares of gradients that are summed over the 32 rows of a batch; here they are means.
    "optimizer": RMSprop(alpha=0.95, eps=0.01 / 32**2, centered=True, eps_inside_root=True),
    "epsilon": PiecewiseSchedule(((0, 1.0), (1_000_000, 0.1)), positions="steps"),
    "double": False,
    "start_steps": 50_000,
    "update_every": 4,
    "mini_batch_size": 32,
    "polyak": 0.0,
    "target_update_interval": 10_000,
    "max_grad_norm": None,
}


class DQN(DiscreteQLearning, ReplayedQLearning):
    """Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015).

    Args:
        double: select the next action with the online network and evaluate it with the target network (double DQN,
            van Hasselt et al., arXiv 1509.06461).
    """

    update_every: Count = 4
    double: bool = True

    @classmethod
    def nature(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's extended data table 1, for Atari with clipped rewards and stacks of 4 frames.

        Frames in the table are those that the agent sees, one per transition; runs had 50 million. The target network
        is copied every 10,000 updates, as the table says, where the authors' code copies it every 10,000 transitions. A
        variant of DQN without one of these hyper-parameters takes the others.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        known = hyper_parameters_of(cls)
        return Preset(
            algo_factory=make_factory(cls, (), {name: value for name, value in _NATURE.items() if name in known}),
            actor_factory=OffPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=()),
            storage_factory=ReplayBuffer.create_factory(capacity // num_envs),
        )

    def next_value(self, rows: Rows) -> Value:
        """Return the target network's values of the next actions, selected by the online network if ``double``."""
        values: ActionValues = self.q_target(rows.next)
        chooser: ActionValues = self.q(rows.next) if self.double else values
        return values.of(self.chosen_next(rows, chooser))

    def chosen_next(self, rows: Rows, values: ActionValues) -> Tensor:
        """Return the next actions (N, 1) to bootstrap on: the greedy ones by ``values``."""
        return values.greedy()
