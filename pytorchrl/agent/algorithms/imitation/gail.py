"""GAIL: generative adversarial imitation, with a discriminator as reward function."""

from collections.abc import Iterator, Mapping

import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialClassifier
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.storage import Storage


class GAILReward(AdversarialClassifier):
    """GAIL's discriminator and reward, to combine with any on-policy algorithm."""

    def make_discriminator(self) -> tuple[Network, ...]:
        """Make the discriminator, a network of observations and actions."""
        self.discriminator = self.actor.make("discriminator", StateValue(gain=None), codec=self.codec)
        return (self.discriminator,)

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Replace the rollout's rewards, train the policy, then the discriminator."""
        batch = self.all_of(sources["main"])
        paid = self.replace_rewards(sources["main"], batch)
        yield from super().update_phase(sources)
        for metrics in self.update_discriminator(batch, sources["expert"]):
            yield metrics | {"imitation_reward": paid}

    def reward(self, rows: Rows) -> Tensor:
        """Return ``-log(1 - D)`` (N, 1), where D is the probability that a step is the expert's."""
        return F.softplus(self.logits(rows))

    def exported_reward(self, view: View, action: Tensor) -> Tensor:
        """(N, 1): as :meth:`reward`."""
        return F.softplus(self.discriminator(view, self.codec.clip(action)))

    def logits(self, rows: Rows) -> Tensor:
        """Return the logits (N, 1) of D, for actions clipped to their bounds."""
        logits: Tensor = self.discriminator(rows.now, self.codec.clip(rows.action))
        return logits


class GAIL(GAILReward, TRPO):
    """Ho and Ermon, "Generative Adversarial Imitation Learning" (arXiv 1606.03476), on TRPO.

    The environments' rewards are not used; the discriminator computes the reward. It is never negative, which favours
    long episodes, so use environments that terminate on failure.
    ``class ImitatingPPO(GAILReward, PPO)`` is GAIL on another on-policy algorithm.
    """
