"""AIRL: adversarial inverse reinforcement learning of a reward function, disentangled from the dynamics."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialClassifier
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.storage import Storage
from storages.transition import DONE2


class AIRLReward(AdversarialClassifier):
    """AIRL's discriminator and reward, to combine with any on-policy algorithm.

    Args:
        reward_of: inputs of the learnt reward function: "state-action" can imitate any expert; "state" disentangles it
            from the dynamics, so that it transfers, but it cannot imitate one that returns to the same states in turn.
    """

    expert: ClassVar[Needs] = Needs("replay", collected=False, single_steps=True)
    unchangeable = frozenset({"reward_of"})

    reward_of: Literal["state", "state-action"] = "state-action"

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, object]) -> None:
        """Check that the policy computes log-probabilities of actions."""
        super().check_hyper_parameters(hyper_parameters)
        if not cls.sources["main"].log_probs:
            raise ValueError(
                f"{cls.__name__}: AIRL's discriminator needs the log-probabilities of actions, which the second base "
                f"does not store; let it be a policy-gradient algorithm that does, such as PPO"
            )

    def build(self) -> None:
        """Make the networks of the algorithm and of the discriminator."""
        super().build()
        if self.reward_of == "state":
            self.lag.advice = (
                ". In a cyclic task, no reward of states alone prefers one direction, whatever these are: take "
                'reward_of="state-action"'
            )

    def make_discriminator(self) -> tuple[Network, ...]:
        """Make the paper's g and h: the reward function and the shaping potential."""
        codec = self.codec if self.reward_of == "state-action" else None
        self.kept_reward = self.actor.make("reward", StateValue(gain=None), codec=codec)
        self.potential = self.actor.make("potential", StateValue(gain=None))
        return self.kept_reward, self.potential

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Train the discriminator, replace the rollout's rewards, then train the policy (algorithm 1)."""
        batch = self.all_of(sources["main"])
        yield from self.update_discriminator(batch, sources["expert"])
        paid = self.replace_rewards(sources["main"], batch)
        for metrics in super().update_phase(sources):
            yield metrics | {"imitation_reward": paid}

    def reward(self, rows: Rows) -> Tensor:
        """Return ``log D - log(1 - D)`` (N, 1): the shaped reward minus the action's log-probability."""
        return self.logits(rows)

    def exported_reward(self, view: View, action: Tensor) -> Tensor:
        """Return g (N, 1), without the shaping potential."""
        takes_action = self.reward_of == "state-action"
        reward: Tensor = self.kept_reward(view, self.codec.clip(action)) if takes_action else self.kept_reward(view)
        return reward

    def logits(self, rows: Rows) -> Tensor:
        """Return the logits (N, 1) of ``exp(f) / (exp(f) + pi)``, with shaped reward f and current policy."""
        with torch.no_grad():
            log_prob = cast("PolicyGradient", self).policy(rows.now, None).log_prob(rows.action)
        return self.shaped_reward(rows) - log_prob

    def shaped_reward(self, rows: Rows) -> Tensor:
        """Return f (N, 1): ``g(s, a) + gamma h(s') - h(s)`` (equation 4), with h 0 after termination."""
        following = self.gamma * (1 - rows[DONE2]) * self.potential(rows.next)
        shaped: Tensor = self.exported_reward(rows.now, rows.action) + following - self.potential(rows.now)
        return shaped


class AIRL(AIRLReward, TRPO):
    """Fu et al., "Learning Robust Rewards with Adversarial Inverse Reinforcement Learning" (arXiv 1710.11248), on TRPO.

    The environments' rewards are not used. The learnt reward function is saved with the weights, and `LearntReward`
    trains other policies on it. ``class ImitatingPPO(AIRLReward, PPO)`` is AIRL on another on-policy algorithm.
    """
