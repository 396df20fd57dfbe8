"""R2D2: double DQN of a network with a memory, from prioritised sequences, on a scale that shrinks large returns."""

from pytorchrl.agent.actors.heads import Head, Values
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import ApeXEpsilonGreedy, Explorer
from pytorchrl.agent.optimizers import Adam
from pytorchrl.agent.preset import Preset
from storages.component.factory import make_factory
from storages.component.hyper_parameters import NonNegative
from storages.component.schedule import LinearSchedule
from storages.off_policy.per_buffer import PERBuffer
from storages.windows import Sequences

_INTERVALS = {"update_every": 8, "mini_batch_size": 16, "target_update_interval": 100}
_SMALL = _INTERVALS | {"gamma": 0.99, "lr": LinearSchedule(1e-3, 0.0), "optimizer": Adam()}
_REPLAY = {"n_step": 5, "alpha": 0.9, "beta": 0.6, "default_error": "largest", "weights_over": "batch"}
_LONG = _REPLAY | {"sequences": Sequences(80, burn_in=40, overlap=40)}
_SHORT = _REPLAY | {"sequences": Sequences(20, burn_in=5, overlap=10)}


class R2D2(DQN):
    """Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (ICLR 2019).

    The actor has the memory, and the storage makes prioritised sequences: :meth:`paper` and :meth:`small` are all of
    it. Epsilon is that of the first environment (:class:`ApeXEpsilonGreedy`). Gradients are limited as in Ape-X.

    Args:
        rescaling: eps of the scale ``sign(x) * (sqrt(|x| + 1) - 1) + eps * x`` of values (section 2.3).

    Raises:
        ValueError: the actor has no memory.
    """

    unchangeable = DQN.unchangeable | {"rescaling"}
    gamma = 0.997
    lr = 1e-4
    optimizer = Adam(eps=1e-3)
    epsilon = 0.4
    mini_batch_size = 64
    polyak = 0.0
    target_update_interval = 2_500
    max_grad_norm = 40.0
    huber_threshold = None
    rescaling: NonNegative = 1e-3

    def head(self) -> Head:
        """Expected values, rescaled."""
        return Values(self.huber_threshold, self.rescaling)

    def build(self) -> None:
        """One network with a memory, and its target."""
        if self.actor.memory is None:
            raise ValueError(f'R2D2: {type(self.actor).__name__} has no memory; give it memory="lstm", or choose DQN')
        super().build()

    def default_explorer(self) -> Explorer:
        """A random action with a probability that differs between environments."""
        return ApeXEpsilonGreedy(self.epsilon)

    @classmethod
    def paper(cls, capacity: int = 4_000_000, num_envs: int = 256) -> Preset:
        """The paper's table 2, for Atari without clipped rewards, but that memory sees no last action and reward.

        An update every 3,328 transitions is what 5 a second and 256 actors of 260 frames a second come to.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        return Preset(
            algo_factory=make_factory(cls, (), {"start_steps": 50_000, "update_every": 3_328}),
            actor_factory=OffPolicyActor.create_factory(
                feature_extractor="nature_cnn", hidden_sizes=(), memory="lstm", memory_size=512, dueling=True
            ),
            storage_factory=make_factory(PERBuffer, (capacity // num_envs,), _LONG),
        )

    @classmethod
    def small(cls, capacity: int = 50_000, num_envs: int = 4) -> Preset:
        """A set of ours for small observations and some 100,000 transitions; arguments as of :meth:`paper`.

        Adam's epsilon is its usual one: beside the paper's, gradients of a few rescaled values are small.
        """
        return Preset(
            algo_factory=make_factory(cls, (), _SMALL),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(128,), memory="lstm", memory_size=128),
            storage_factory=make_factory(PERBuffer, (capacity // num_envs,), _SHORT),
        )
