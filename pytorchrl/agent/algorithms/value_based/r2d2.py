"""R2D2: recurrent double DQN with prioritised replay of sequences and value rescaling."""

from pytorchrl.agent.actors.heads import Head, Values
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import ApeXEpsilonGreedy, Explorer
from pytorchrl.agent.optimizers import Adam
from storages.component.factory import make_factory
from storages.component.hyper_parameters import NonNegative, Positive
from storages.component.schedule import LinearSchedule
from storages.off_policy.per_buffer import PERBuffer
from storages.sequence_settings import Sequences

_INTERVALS = {"update_every": 8, "mini_batch_size": 16, "target_update_interval": 100}
_SMALL = _INTERVALS | {"gamma": 0.99, "lr": LinearSchedule(1e-3, 0.0), "optimizer": Adam()}
_REPLAY = {"n_step": 5, "alpha": 0.9, "beta": 0.6, "default_error": "largest", "weights_over": "batch"}
_LONG = _REPLAY | {"sequences": Sequences(80, burn_in=40, overlap=40)}
_SHORT = _REPLAY | {"sequences": Sequences(20, burn_in=5, overlap=10)}


class R2D2(DQN):
    """Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (ICLR 2019).

    It needs a recurrent actor and a storage of prioritised sequences; :meth:`paper` and :meth:`small` are complete
    presets. Epsilon is that of the first environment (:class:`ApeXEpsilonGreedy`). Gradients are clipped as in Ape-X.

    Args:
        rescaling: eps of the value rescaling ``sign(x) * (sqrt(|x| + 1) - 1) + eps * x`` (section 2.3).

    Raises:
        ValueError: the actor has no memory.
    """

    unchangeable = frozenset({"rescaling"})
    gamma = 0.997
    lr = 1e-4
    optimizer = Adam(eps=1e-3)
    epsilon = 0.4
    mini_batch_size = 64
    polyak = 0.0
    target_update_interval = 2_500
    max_grad_norm: Positive | None = 40.0
    huber_threshold = None
    rescaling: NonNegative = 1e-3

    def head(self) -> Head:
        """Return a head with rescaled action values."""
        return Values(self.huber_threshold, self.rescaling)

    def build(self) -> None:
        """Make a recurrent Q-network and its target."""
        if self.actor.memory is None:
            raise ValueError(f'R2D2: {type(self.actor).__name__} has no memory; give it memory="lstm", or choose DQN')
        super().build()

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy with an epsilon that differs between environments."""
        return ApeXEpsilonGreedy(self.epsilon)

    @classmethod
    def paper(cls, capacity: int = 4_000_000, num_envs: int = 256) -> Preset:
        """The paper's table 2, for Atari with unclipped rewards, but without the last action and reward as inputs.

        An update every 3,328 transitions matches 5 updates a second with 256 actors of 260 frames a second each.

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
        """For small observations and about 100,000 transitions, not from the paper; arguments as of :meth:`paper`.

        Adam's epsilon is its default: the paper's is large compared with the gradients of small rescaled values.
        """
        return Preset(
            algo_factory=make_factory(cls, (), _SMALL),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(128,), memory="lstm", memory_size=128),
            storage_factory=make_factory(PERBuffer, (capacity // num_envs,), _SHORT),
        )
