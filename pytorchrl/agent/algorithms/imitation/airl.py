"""AIRL: a reward that explains an expert, apart from the environment's dynamics."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.parts.adversarial import AdversarialReward
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.storage import Storage
from storages.transition import DONE2


class AIRLReward(AdversarialReward):
    """Pays by a reward that explains the expert; `AIRL` on another on-policy algorithm than TRPO.

    Args:
        reward_of: what the reward that is kept depends on: one of the "state" alone is the expert's goal, apart from
            how the environment leads there; one of the "state-action" can explain more.
    """

    expert: ClassVar[Needs] = Needs("replay", collected=False, single_steps=True)
    unchangeable = AdversarialReward.unchangeable | {"reward_of"}

    reward_of: Literal["state", "state-action"] = "state"

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, object]) -> None:
        """Refuse policies that do not tell the probabilities of actions."""
        super().check_hyper_parameters(hyper_parameters)
        if not cls.sources["main"].log_probs:
            raise ValueError(
                f"{cls.__name__}: AIRL's discriminator compares a reward with the probabilities of actions, which "
                f"only a stochastic policy has; let the second base be a policy gradient, such as PPO"
            )

    def make_discriminator(self) -> tuple[Network, ...]:
        """G and h of the paper: the reward, and the potential that shapes it."""
        codec = self.codec if self.reward_of == "state-action" else None
        self.kept_reward = self.actor.make("reward", StateValue(gain=None), codec=codec)
        self.potential = self.actor.make("potential", StateValue(gain=None))
        return self.kept_reward, self.potential

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Improve the discriminator, pay by it, and then improve the policy (algorithm 1)."""
        batch = self.all_of(sources["main"])
        yield from self.discriminate(batch, sources["expert"])
        paid = self.pay(sources["main"], batch)
        for metrics in super().update_phase(sources):
            yield metrics | {"imitation_reward": paid}

    def reward(self, rows: Rows) -> Tensor:
        """(N, 1): ``log D - log(1 - D)``, which is the shaped reward less the log probability of the action."""
        return self.logits(rows)

    def reward_to_keep(self, view: View, action: Tensor) -> Tensor:
        """(N, 1): g, without the potential."""
        takes_action = self.reward_of == "state-action"
        reward: Tensor = self.kept_reward(view, self.codec.clip(action)) if takes_action else self.kept_reward(view)
        return reward

    def logits(self, rows: Rows) -> Tensor:
        """(N, 1): those of ``exp(f) / (exp(f) + pi)``, with the shaped reward f and the present policy."""
        with torch.no_grad():
            log_prob: Tensor = self.actor.networks["policy"](rows.now).log_prob(rows.action)
        return self.shaped_reward(rows) - log_prob

    def shaped_reward(self, rows: Rows) -> Tensor:
        """(N, 1): f, ``g(s, a) + gamma h(s') - h(s)`` (equation 4), where h is 0 after the environment has ended."""
        following = self.gamma * (1 - rows[DONE2]) * self.potential(rows.next)
        shaped: Tensor = self.reward_to_keep(rows.now, rows.action) + following - self.potential(rows.now)
        return shaped


class AIRL(AIRLReward, TRPO):
    """Fu et al., "Learning Robust Rewards with Adversarial Inverse Reinforcement Learning" (arXiv 1710.11248), on TRPO.

    The environments' rewards are not used. What is learnt is kept with the weights: `LearntReward` trains another
    policy on it. ``class ImitatingPPO(AIRLReward, PPO)`` is the same on another on-policy algorithm.
    """
