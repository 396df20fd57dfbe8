"""IQN: distributional DQN with an implicit quantile network."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ImplicitQuantiles
from pytorchrl.agent.actors.outputs import ImplicitQuantileValues
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.optimizers import Adam
from pytorchrl.agent.risk_measures import Neutral, RiskMeasure
from storages.component.factory import make_factory
from storages.component.hyper_parameters import Count, Positive
from storages.component.schedule import PiecewiseSchedule
from storages.off_policy.replay_buffer import ReplayBuffer

_PAPER = {
    "quantile_layers": (512,),
    "lr": 5e-5,
    "optimizer": Adam(eps=0.01 / 32),
    "epsilon": PiecewiseSchedule(((20_000, 1.0), (1_020_000, 0.01)), positions="steps"),
    "start_steps": 20_000,
    "mini_batch_size": 32,
    "polyak": 0.0,
    "target_update_interval": 2_500,
    "max_grad_norm": None,
}


class IQN(DQN):
    """Dabney et al., "Implicit Quantile Networks for Distributional Reinforcement Learning" (arXiv 1806.06923).

    Args:
        num_quantiles: N, fractions sampled for the values of actions taken.
        num_target_quantiles: N', fractions sampled for the values of next actions.
        num_action_quantiles: K, fractions sampled to select an action; evaluations take fixed ones.
        num_cosines: n, of the cosine embedding of a fraction.
        quantile_layers: units of the hidden layers between the product of features and embedding, and the quantiles.
        kappa: threshold of the quantile Huber loss, beyond which it is linear (equation 3).
        risk: risk measure that actions maximise, both in the environments and in targets (section 4).
    """

    unchangeable = frozenset(
        {
            *("num_quantiles", "num_target_quantiles", "num_action_quantiles", "num_cosines", "quantile_layers"),
            *("kappa", "risk"),
        }
    )
    num_quantiles: Count = 64
    num_target_quantiles: Count = 64
    num_action_quantiles: Count = 32
    num_cosines: Count = 64
    quantile_layers: Sequence[Count] = ()
    kappa: Positive = 1.0
    risk: RiskMeasure = Neutral()
    double: bool = False
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # kappa takes its place

    def build(self) -> None:
        """Make DQN's networks, the target with ``num_target_quantiles`` fractions for the values of next actions."""
        super().build()
        head: Any = self.q_target.head
        head.num_quantiles = self.num_target_quantiles

    def head(self) -> Head:
        """Return a head with the quantile function of each action's return."""
        numbers = self.num_quantiles, self.num_action_quantiles, self.num_cosines
        return ImplicitQuantiles(*numbers, self.kappa, self.risk, self.quantile_layers)

    def policy(self, view: View, exploration: Exploration) -> ImplicitQuantileValues:
        """Return the values of all actions, at fixed fractions if deterministic."""
        values: ImplicitQuantileValues = self.q(view)
        return values.at_midpoints() if exploration.deterministic else values.explorer_for(exploration.generator)

    @classmethod
    def paper(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's settings for Atari with clipped rewards and stacks of 4 frames, and 50 million transitions.

        Where it refers to DQN and QR-DQN, settings are those of its authors' code (DQN Zoo): a transition is 4 frames,
        and the target network is copied every 10,000 of them, or 2,500 updates. Arguments as of :meth:`DQN.nature`.
        """
        return Preset(
            algo_factory=make_factory(cls, (), _PAPER),
            actor_factory=OffPolicyActor.create_factory(feature_extractor="nature_convolutions", hidden_sizes=()),
            storage_factory=ReplayBuffer.create_factory(capacity // num_envs),
        )
