"""DecisionTransformer: supervised learning of actions conditioned on returns-to-go and recent steps."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.action_mask import Restrictable
from pytorchrl.agent.actors.heads import DistributionHead, Features, GaussianPolicy, Policy, in_units_of_environments
from pytorchrl.agent.actors.layers.mlp import Dropout
from pytorchrl.agent.actors.layers.trajectory_network import Trajectories, TrajectoryNetwork
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.trajectories import ActingHistory, draw_windows
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy, best_action, explorer_for
from pytorchrl.agent.optimizers import AdamW, Optimizer
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive
from storages.component.setting import text_of
from storages.transition import MASK


class DecisionTransformer(OffPolicyAlgorithm):
    """Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling" (arXiv 2106.01345).

    A causal transformer over returns-to-go, states and actions of the last steps is trained to predict the data's
    actions. When acting, it is conditioned on a target return, from which rewards are subtracted as they are received.
    It learns no values: ``gamma`` must be 1, and the actor must have no memory. The actor's dropout also applies
    to the transformer.

    Args:
        lr: learning rate.
        distribution: of actions; None takes the paper's: a softmax, or for a bounded Box a Gaussian with a tanh mean
            and fixed standard deviation, whose loss is a squared error.
        context_length: steps in the context, including the present one.
        embedding_size: size of a token; each step has three tokens.
        num_layers: layers of the transformer.
        num_heads: attention heads.
        max_timestep: number of timestep embeddings; later steps share the last one.
        windows_per_episode: windows of ``context_length`` steps drawn from each episode of a batch.
        return_scale: divisor of returns at the input.
        target_return: target return of an episode when acting; None takes the largest of the training data.

    Raises:
        ValueError: ``gamma`` is not 1, the actor has a memory, or ``embedding_size`` is not divisible by
            ``num_heads``.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", collected=False, whole_episodes=True)}
    constrained_to_data: ClassVar[bool] = True
    reads_rewards = True
    keeps_acting_state = True
    unchangeable = frozenset({
        "gamma", "distribution", "context_length", "embedding_size", "num_layers", "num_heads", "max_timestep",
    })  # fmt: skip

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
        """Check that returns-to-go are not discounted."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["gamma"] != 1:
            raise ValueError(
                f"{cls.__name__}: gamma must be 1, for undiscounted returns-to-go, got {hyper_parameters['gamma']}"
            )

    def build(self) -> None:
        """Make the observation encoder and the transformer."""
        actor = self.actor
        if actor.memory is not None:
            raise ValueError(
                f"{type(self).__name__} keeps its own context of past steps; leave out memory={text_of(actor.memory)}"
            )
        self.states = actor.make("states", Features(self.embedding_size), acts=True)
        distribution = self.distribution or _supervised_head(self.action_space)
        head = in_units_of_environments(distribution).build(self.embedding_size, actor)
        dropout = Dropout(actor.dropout, actor.generator)
        sizes = (self.codec.size, self.embedding_size, self.num_layers, self.num_heads, self.max_timestep)
        self.trajectory = TrajectoryNetwork(head, *sizes, dropout)
        actor.add("trajectory", self.trajectory, acts=True)
        self.trained = self.train("policy", self.states, self.trajectory)

    def losses(self, rows: Rows) -> Losses:
        """Return the negative log-likelihood of actions in windows of the batch's episodes."""
        windows = draw_windows(rows.batch, self.context_length, self.windows_per_episode, self.generator)
        self.trajectory.learn_return(windows.episode_returns)
        action = self.codec.from_storage(windows.action)
        view = self.actor.view(windows.obs)
        states, actions = (
            numbers.view(*windows.weight.shape[:2], -1) for numbers in (self.states(view), self.codec.features(action))
        )
        features = self.trajectory(Trajectories(windows.returns / self.return_scale, states, actions, windows.first))
        policy = self._distribution(features.flatten(0, 1), view)
        surprise = -policy.log_prob(action).view(windows.weight.shape)
        loss = (windows.weight * surprise).sum()
        errors = windows.per_episode(surprise.detach()).expand(rows.batch[MASK].shape)
        return Losses({self.trained: loss}, {"loss": loss.detach()}, errors)

    def default_explorer(self) -> Explorer:
        """Return the greedy action, or sampling if a distribution is given."""
        return Greedy() if self.distribution is None else explorer_for(self.distribution)

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions given the exploration's history."""
        return self._after(self._history(view, exploration), view)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and append them to the exploration's history."""
        history = self._history(view, exploration)
        policy = self._after(history, view)
        exploration.allowed = None if self.actor.mask is None else partial(self.actor.mask.of, view)
        action = best_action(policy) if exploration.deterministic else self._explorer.act(lambda: policy, exploration)
        exploration.state |= history.with_action(self.codec.features(action)).state_dict()
        return action, {}

    def _history(self, view: View, exploration: Exploration) -> ActingHistory:
        target = self.trajectory.largest_return if self.target_return is None else self.target_return
        return ActingHistory.continued(exploration, self.states(view), self.context_length, self.codec.size, target)

    def _after(self, history: ActingHistory, view: View) -> Distribution:
        features = self.trajectory(history.steps(self.return_scale))
        return self._distribution(history.present(features), view)

    def _distribution(self, features: Tensor, view: View) -> Distribution:
        """Return the distribution of the actions that each row of a view allows, for features (M, size)."""
        policy: Any = self.trajectory.policy(features)
        mask = self.actor.mask
        if mask is not None and isinstance(policy, Restrictable):
            policy = policy.allowing(mask.of(view).flags)
        restricted: Distribution = policy
        return restricted


def _supervised_head(space: spaces.Space[Any]) -> DistributionHead:
    """Return the paper's distribution of actions: with a softmax, or a squared error as loss for a bounded Box."""
    is_bounded = isinstance(space, spaces.Box) and np.isfinite([space.low, space.high]).all()
    return GaussianPolicy("fixed", bounded_mean=True, initial_log_std=0.0) if is_bounded else Policy()
