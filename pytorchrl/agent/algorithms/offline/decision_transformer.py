"""DecisionTransformer: actions that follow from a return to reach and the last steps, by supervised learning."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, Features, GaussianPolicy, Policy, in_units_of_environments
from pytorchrl.agent.actors.layers.mlp import Dropout
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.parts.acting_history import ActingHistory
from pytorchrl.agent.algorithms.offline.parts.episode_windows import draw_windows
from pytorchrl.agent.algorithms.offline.parts.trajectory_network import Steps, TrajectoryNetwork
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy, best_action, drawing_from
from pytorchrl.agent.optimizers import AdamW, Optimizer
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive
from storages.transition import MASK


class DecisionTransformer(OffPolicyAlgorithm):
    """Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling" (arXiv 2106.01345).

    A causal transformer sees the last steps of an episode as returns-to-go, states and actions, and is trained to say
    the data's actions. It acts by asking for a return, of which rewards are taken off as they come. It has no values:
    ``gamma`` stays 1, and the actor needs no memory. The actor's dropout is the transformer's, too.

    Args:
        lr: learning rate.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
        distribution: of actions; None takes the paper's: a softmax, or where a Box has bounds a normal with a fixed
            deviation around a tanh, whose loss is a squared error.
        context_length: steps that are seen, the present one included.
        embedding_size: numbers of a token, three of which make a step.
        num_layers: of the transformer.
        num_heads: of its attention.
        max_timestep: steps of an episode that are told apart by number; later ones count as the last of them.
        windows_per_episode: windows of ``context_length`` steps that are drawn from each episode of a batch.
        return_scale: what returns are divided by before they are seen.
        target_return: of an episode that is acted in; None asks for the largest of the data that was learnt from.

    Raises:
        ValueError: ``gamma`` is not 1, the actor has a memory, or the heads cannot share the numbers of a token.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", collected=False, whole_episodes=True)}
    reads_rewards = True
    unchangeable = OffPolicyAlgorithm.unchangeable | {
        "gamma", "distribution", "context_length", "embedding_size", "num_layers", "num_heads", "max_timestep",
    }  # fmt: skip

    gamma = 1.0
    optimizer: Optimizer = AdamW(weight_decay=1e-4)
    start_steps: CountOrZero = 0
    mini_batch_size: Count = 16
    lr: NonNegativeOrSchedule = 1e-4
    max_grad_norm: Positive | None = 0.25
    distribution: DistributionHead | None = None
    context_length: Count = 20
    embedding_size: Count = 128
    num_layers: Count = 3
    num_heads: Count = 1
    max_timestep: Count = 1_000
    windows_per_episode: Count = 4
    return_scale: Positive = 1_000.0
    target_return: float | None = None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse a discount, which returns-to-go do not have."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["gamma"] != 1:
            raise ValueError(f"{cls.__name__}: gamma must be 1, for returns-to-go, got {hyper_parameters['gamma']}")

    def build(self) -> None:
        """What embeds observations, and the transformer."""
        actor = self.actor
        if actor.memory is not None:
            raise ValueError(f"{type(self).__name__} keeps the last steps itself; leave out memory={actor.memory!r}")
        self.states = actor.make("states", Features(self.embedding_size), acts=True)
        head = in_units_of_environments(self._head()).build(self.embedding_size, actor)
        dropout = Dropout(actor.dropout, actor.generator)
        sizes = (self.codec.size, self.embedding_size, self.num_layers, self.num_heads, self.max_timestep)
        self.trajectory = TrajectoryNetwork(head, *sizes, dropout)
        actor.add("trajectory", self.trajectory, acts=True)
        self.trained = self.train("policy", self.states, self.trajectory, max_grad_norm="max_grad_norm")

    def default_explorer(self) -> Explorer:
        """The best action, or draws from a distribution that was chosen."""
        return Greedy() if self.distribution is None else drawing_from(self.distribution)

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """The distribution of actions after the exploration's history."""
        return self._after(self._history(view, exploration))

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Actions, which the exploration's history has from now on."""
        history = self._history(view, exploration)
        policy = self._after(history)
        action = best_action(policy) if exploration.deterministic else self._explorer.act(lambda: policy, exploration)
        exploration.state |= history.with_action(self.codec.features(action)).state_dict()
        return action, {}

    def losses(self, rows: Rows) -> Losses:
        """The negative log probability of the actions in windows of the batch's episodes."""
        windows = draw_windows(rows.batch, self.context_length, self.windows_per_episode, self.generator)
        self.trajectory.learn_return(windows.episode_returns)
        action = self.codec.from_storage(windows.action)
        states, actions = (
            numbers.view(*windows.weight.shape[:2], -1)
            for numbers in (self.states(self.actor.view(windows.obs)), self.codec.features(action))
        )
        features = self.trajectory(Steps(windows.returns / self.return_scale, states, actions, windows.first))
        policy: Distribution = self.trajectory.policy(features.flatten(0, 1))
        surprise = -policy.log_prob(action).view(windows.weight.shape)
        loss = (windows.weight * surprise).sum()
        errors = windows.per_episode(surprise.detach()).expand(rows.batch[MASK].shape)
        return Losses({self.trained: loss}, {"loss": loss.detach()}, errors)

    def _history(self, view: View, exploration: Exploration) -> ActingHistory:
        target = self.trajectory.largest_return if self.target_return is None else self.target_return
        return ActingHistory.continued(exploration, self.states(view), self.context_length, self.codec.size, target)

    def _after(self, history: ActingHistory) -> Distribution:
        features = self.trajectory(history.steps(self.return_scale))
        policy: Distribution = self.trajectory.policy(history.present(features))
        return policy

    def _head(self) -> DistributionHead:
        space = self.action_space
        if self.distribution is not None:
            return self.distribution
        is_bounded = isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).all()
        return GaussianPolicy("fixed", bounded_mean=True, initial_log_std=0.0) if is_bounded else Policy()
