"""PPO+D: PPO that also replays demonstrations and its own episodes of high return or value."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.episode_replay import EpisodeReplay, JoinedRollouts
from pytorchrl.agent.algorithms.imitation.replayed_episodes import ReplayedEpisodes, WholeEpisodes
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.results import Metrics
from storages.component.hyper_parameters import Count, NonNegative, UnitInterval
from storages.datasets import episodes_of
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import LOGP, SKIPPED, VAL


class PPOD(PPO):
    """Libardi et al., "Guided Exploration with PPO using a Single Demonstration" (arXiv 2007.03328).

    Next to the policy's own rollout, episodes are replayed into the rollout of the source "repeated": demonstrations
    and the agent's episodes whose return reaches theirs (D_R in the paper, here "rewarded"), and further episodes of
    the agent with large values (D_V, "valued"). Values and advantages are computed with the current networks.

    Args:
        rho: initial share of rewarded episodes in the transitions of an update.
        phi: initial share of valued episodes; each rewarded episode of the agent moves a part of it to ``rho``.
        alpha: a valued episode is drawn with probability proportional to its largest value to this power.
        capacity: episodes of the agent that are kept; the valued episode with the smallest value is dropped first, or,
            if there is none, the oldest rewarded one.
        repeated_as: behaviour probability of replayed actions: "certain" takes 1, as the paper's code does, so that
            positive advantages raise the action's probability and negative ones hardly lower it; "policy" takes that of
            the current policy.
    """

    sources: ClassVar[Mapping[str, Needs]] = {
        "main": Needs("rollout"),
        "repeated": Needs("rollout", collected=False),
        "demonstrations": Needs("replay", collected=False, sequences=True),
    }
    unchangeable = frozenset({"rho", "phi", "alpha", "capacity"})

    rho: UnitInterval = 0.1
    phi: UnitInterval = 0.3
    alpha: NonNegative = 10.0
    capacity: Count = 50
    repeated_as: Literal["certain", "policy"] = "certain"

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check the shares, and refuse what joined rollouts do not support."""
        super().check_hyper_parameters(hyper_parameters)
        rho, phi = hyper_parameters["rho"], hyper_parameters["phi"]
        if not (rho > 0 and rho + phi < 1):
            raise ValueError(
                f"{cls.__name__}: rho must be above 0, and rho + phi below 1, so that updates contain both replayed "
                f"episodes and the policy's own, got rho={rho} and phi={phi}"
            )
        if hyper_parameters["normalize_advantages"] == "rollout":
            raise ValueError(
                f"{cls.__name__}: normalize_advantages='rollout' would normalise the two rollouts separately; pass True"
            )

    def build(self) -> None:
        """Make PPO's networks; the replay of episodes begins with the first rollout."""
        super().build()
        self._agent_episodes = WholeEpisodes()
        self._replay: EpisodeReplay | None = None
        self._pending_state: Mapping[str, Any] | None = None
        self._rollouts: dict[str, VanillaOnPolicyBuffer] = {}

    def request_fields(self, source: str, storage: Storage) -> None:
        """Request fields of a storage's batches, and check that both rollouts make joint ones.

        Raises:
            ValueError: a rollout drops episodes, their sequences differ in length, or the repeated rollout has fewer
                rows than an epoch has minibatches.
        """
        super().request_fields(source, storage)
        if isinstance(storage, VanillaOnPolicyBuffer):
            if storage.cut_episodes == "drop":
                raise ValueError(
                    f"{type(self).__name__}: the rollout of the source {source!r} drops steps by cut_episodes='drop', "
                    f"so that it may make fewer batches than the other; take cut_episodes='bootstrap'"
                )
            self._rollouts[source] = storage
        if self._rollouts.keys() == {"main", "repeated"}:
            self._check_joint_batches(self._rollouts["main"], self._rollouts["repeated"])

    def _check_joint_batches(self, main: VanillaOnPolicyBuffer, repeated: VanillaOnPolicyBuffer) -> None:
        row, length = "transition", 1
        if self.actor.memory is not None:
            row, length = "sequence", repeated.sequence_length or repeated.size
            if length != (main.sequence_length or main.size):
                raise ValueError(
                    f"{type(self).__name__}: with a memory, both rollouts need sequences of the same length, but those "
                    f"of 'main' have {main.sequence_length or main.size} steps, and those of 'repeated' {length}; give "
                    f"both the same sequence_length"
                )
        rows = self._columns(main, repeated) * repeated.size // length
        if main.capacity and rows < self.num_mini_batch:
            raise ValueError(
                f"{type(self).__name__}: the rollout of the source 'repeated' has {rows} {row}{'s' * (rows != 1)}, "
                f"fewer than num_mini_batch={self.num_mini_batch}; choose num_mini_batch={rows} or less, a larger size "
                f"of both storages, or more environments{', or a smaller sequence_length' * (length > 1)}"
            )

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Keep the rollout's finished episodes, replay kept ones, and learn from both rollouts."""
        main, repeated = sources["main"], sources["repeated"]
        replay = self._replay = self._replay or self._start_replay(sources)
        episodes, self._pending_state = replay.episodes, None
        for episode in self._agent_episodes.ended_in(main):
            episodes.add(episode, float(episode.fields[VAL].max()))
        replay.fill(repeated, self._evaluate, with_skips=SKIPPED in main.get_data_slice(0, 1))
        counts = {"rewarded_episodes": len(episodes.rewarded), "valued_episodes": len(episodes.valued)}
        both = cast("Storage", JoinedRollouts([main, repeated]))
        for metrics in super().update_phase({"main": both}):
            yield metrics | counts | {"rho": episodes.rho, "phi": episodes.phi}

    @property
    def values_when_full(self) -> frozenset[str]:
        """Empty: values are needed while acting, to select episodes by their largest value."""
        return frozenset()

    def _start_replay(self, sources: Mapping[str, Storage]) -> EpisodeReplay:
        shown = list(episodes_of(sources["demonstrations"], whole=True))
        if not shown:
            raise ValueError(
                f"{type(self).__name__}: the source 'demonstrations' has no complete episode, from its first step to "
                f"its end; only those can be replayed"
            )
        episodes = ReplayedEpisodes(shown, self.capacity, self.rho, self.phi, self.alpha)
        columns = self._columns(sources["main"], sources["repeated"])
        return EpisodeReplay(columns, self.actor, episodes, self.generator, self._pending_state)

    def _columns(self, main: Storage, repeated: Storage) -> int:
        """Return how many columns of episodes are replayed for their share of an update; at least one."""
        assert repeated.size is not None
        share = self.rho + self.phi
        return max(1, round(share / (1 - share) * main.capacity / repeated.size))

    def _evaluate(self, view: View, action: Tensor) -> Mapping[str, Tensor]:
        values = {field: network(view) for field, network in self.value_functions().items()}
        if self.repeated_as == "policy":
            log_prob: Tensor = self.policy(view, None).log_prob(self.codec.from_storage(action))
        else:
            log_prob = torch.zeros_like(values[VAL])
        return {**values, LOGP: log_prob}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of PPO, the agent's episodes, and the position of each replay."""
        replay = self._pending_state if self._replay is None else self._replay.state_dict()
        return super().state_dict() | {"of_agent": self._agent_episodes.state_dict(), "repetition": replay}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self._agent_episodes.load_state_dict(state["of_agent"])
        self._replay, self._pending_state = None, state["repetition"]
