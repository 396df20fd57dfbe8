"""GAIL: a policy that a discriminator cannot tell from an expert."""

from collections.abc import Iterator, Mapping

import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.parts.adversarial import AdversarialReward
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.storage import Storage


class GAILReward(AdversarialReward):
    """Pays for what a discriminator takes for the expert's; `GAIL` on another on-policy algorithm than TRPO."""

    def make_discriminator(self) -> tuple[Network, ...]:
        """One network of observations and actions."""
        self.discriminator = self.actor.make("discriminator", StateValue(gain=None), codec=self.codec)
        return (self.discriminator,)

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Pay for what looks like the expert, improve the policy, and then the discriminator."""
        batch = self.all_of(sources["main"])
        paid = self.pay(sources["main"], batch)
        yield from super().update_phase(sources)
        for metrics in self.discriminate(batch, sources["expert"]):
            yield metrics | {"imitation_reward": paid}

    def reward(self, rows: Rows) -> Tensor:
        """(N, 1): ``-log(1 - D)``, where D is the discriminator's probability that a step is the expert's."""
        return F.softplus(self.logits(rows))

    def reward_to_keep(self, view: View, action: Tensor) -> Tensor:
        """(N, 1): as :meth:`reward`."""
        return F.softplus(self.discriminator(view, self.codec.clip(action)))

    def logits(self, rows: Rows) -> Tensor:
        """(N, 1): of what the environments made of actions."""
        logits: Tensor = self.discriminator(rows.now, self.codec.clip(rows.action))
        return logits


class GAIL(GAILReward, TRPO):
    """Ho and Ermon, "Generative Adversarial Imitation Learning" (arXiv 1606.03476), on TRPO.

    The environments' rewards are not used: the discriminator pays for what looks like the expert. Its rewards are never
    negative, so that an episode that ends early loses some: give it environments that end where the expert fails.
    ``class ImitatingPPO(GAILReward, PPO)`` is the same on another on-policy algorithm.
    """
