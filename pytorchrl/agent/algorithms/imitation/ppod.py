"""PPO+D: PPO whose updates also learn from demonstrations, and from episodes of its own that are worth repeating."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.parts.joined_rollouts import JoinedRollouts
from pytorchrl.agent.algorithms.imitation.parts.repetition import Repetition
from pytorchrl.agent.algorithms.imitation.parts.replayed_episodes import ReplayedEpisodes
from pytorchrl.agent.algorithms.imitation.parts.whole_episodes import WholeEpisodes
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.results import Metrics
from storages.component.hyper_parameters import Count, NonNegative, UnitInterval
from storages.datasets import episodes_of
from storages.storage import Storage
from storages.transition import LOGP, VAL


class PPOD(PPO):
    """Libardi et al., "Guided Exploration with PPO using a Single Demonstration" (arXiv 2007.03328).

    Beside the rollout of the policy, episodes are repeated into the rollout of the source "repeated": demonstrations
    and the agent's own whose return reaches theirs (rewarded), and others of the agent whose values are large (valued).
    Values are those of the present networks, so that advantages are, too.

    Args:
        rho: share of rewarded episodes in the transitions of an update, at the beginning.
        phi: share of valued ones; with each rewarded episode of the agent, a part of it goes over to ``rho``.
        alpha: a valued episode is drawn with a probability proportional to its largest value to this power.
        capacity: episodes of the agent that are kept; of valued ones the least valued is dropped first, and then the
            oldest rewarded one.
        repeated_as: "certain" takes the probability of a repeated action, when it was done, for 1, as the paper's code
            does, so that the policy is drawn to it as long as its advantage is positive, and hardly away from it;
            "policy" takes the present policy's, as if it had acted.
    """

    sources: ClassVar[Mapping[str, Needs]] = {
        "main": Needs("rollout"),
        "repeated": Needs("rollout", collected=False),
        "demonstrations": Needs("replay", collected=False, sequences=True),
    }
    unchangeable = PPO.unchangeable | {"rho", "phi", "alpha", "capacity"}

    rho: UnitInterval = 0.1
    phi: UnitInterval = 0.3
    alpha: NonNegative = 10.0
    capacity: Count = 50
    repeated_as: Literal["certain", "policy"] = "certain"

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse shares that leave nothing, and what a joined rollout cannot do."""
        super().check_hyper_parameters(hyper_parameters)
        rho, phi = hyper_parameters["rho"], hyper_parameters["phi"]
        if not (rho > 0 and rho + phi < 1):
            raise ValueError(
                f"{cls.__name__}: rho must be above 0, and rho + phi below 1, so that there is something to repeat and "
                f"something of the policy's own, got {rho} and {phi}"
            )
        if hyper_parameters["normalize_advantages"] == "rollout":
            raise ValueError(
                f"{cls.__name__}: normalize_advantages='rollout' would be of each of two rollouts apart; give it True"
            )

    def build(self) -> None:
        """PPO's networks; what is repeated is known with the first rollout."""
        super().build()
        self._of_agent = WholeEpisodes()
        self._repetition: Repetition | None = None
        self._state_to_come: Mapping[str, Any] | None = None

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Keep what the rollout brought, repeat episodes beside it, and learn from both."""
        main, repeated = sources["main"], sources["repeated"]
        repetition = self._repetition = self._repetition or self._begun(sources)
        episodes, self._state_to_come = repetition.episodes, None
        for episode in self._of_agent.ended_in(main):
            episodes.add(episode, float(episode.fields[VAL].max()))
        repetition.fill(repeated, self._judge)
        told = {"rewarded_episodes": len(episodes.rewarded), "valued_episodes": len(episodes.valued)}
        both = cast("Storage", JoinedRollouts([main, repeated]))
        for metrics in super().update_phase({"main": both}):
            yield metrics | told | {"rho": episodes.rho, "phi": episodes.phi}

    @property
    def values_when_full(self) -> frozenset[str]:
        """None: the largest value of an episode says whether it is worth repeating."""
        return frozenset()

    def _begun(self, sources: Mapping[str, Storage]) -> Repetition:
        shown = list(episodes_of(sources["demonstrations"], whole=True))
        if not shown:
            raise ValueError(
                f"{type(self).__name__}: the source 'demonstrations' has no episode from its first step to its end, "
                f"which alone can be repeated"
            )
        episodes = ReplayedEpisodes(shown, self.capacity, self.rho, self.phi, self.alpha)
        share, size = self.rho + self.phi, sources["repeated"].size
        assert size is not None
        # As many side by side as have that share of the transitions of an update, and at least one.
        columns = max(1, round(share / (1 - share) * len(sources["main"]) / size))
        return Repetition(columns, self.actor, episodes, self.generator, self._state_to_come)

    def _judge(self, view: View, action: Tensor) -> Mapping[str, Tensor]:
        values = self.values_while_acting(view)
        if self.repeated_as == "policy":
            log_prob: Tensor = self.pi(view).log_prob(self.codec.from_storage(action))
        else:
            log_prob = torch.zeros_like(values[VAL])
        return {**values, LOGP: log_prob}

    def state_dict(self) -> dict[str, Any]:
        """As of every algorithm, and the episodes of the agent and where each is repeated."""
        repetition = self._state_to_come if self._repetition is None else self._repetition.state_dict()
        return super().state_dict() | {"of_agent": self._of_agent.state_dict(), "repetition": repetition}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self._of_agent.load_state_dict(state["of_agent"])
        self._repetition, self._state_to_come = None, state["repetition"]
