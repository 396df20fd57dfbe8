"""OptionCritic: options with learnt policies and terminations, by advantage actor-critic."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue, in_units_of_environments
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C
from pytorchrl.agent.algorithms.policy_gradient.options import (
    OPTION,
    OPTION_BEFORE,
    OptionInUse,
    PolicyPerOption,
    ValueOverOptions,
    bootstrap_from_options,
    option_in_use,
)
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitIntervalOrSchedule
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import DONE, LOGP, RET, VAL


class OptionCritic(A2C):
    """Bacon et al., "The Option-Critic Architecture" (arXiv 1609.05140), on rollouts as A2OC.

    Each option has a policy and a termination probability. The option in use acts until it terminates; then another is
    chosen, epsilon-greedily by its value. Harb et al., "When Waiting is not an Option: Learning Options with a
    Deliberation Cost" (arXiv 1709.04571), is the version on rollouts, with a cost of terminations.

    Args:
        num_options: number of options.
        option_epsilon: probability of a random option, where one is chosen.
        deliberation_cost: of a termination (eta), in the unit of returns; the larger, the longer options last.
        termination_coef: weight of the terminations' loss.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}
    keeps_acting_state = True
    unchangeable = frozenset({"num_options"})

    num_options: Count = 4
    option_epsilon: UnitIntervalOrSchedule = 0.1
    deliberation_cost: NonNegativeOrSchedule = 0.0
    termination_coef: NonNegative = 1.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse noise matrices, which options do not share."""
        super().check_hyper_parameters(hyper_parameters)
        distribution = hyper_parameters["distribution"]
        if distribution.noise_interval is not None:
            raise ValueError(
                f"{cls.__name__}: distribution must draw independent actions, which {distribution!r} does not; take "
                f"heads.Policy()"
            )

    def make_networks(self) -> tuple[Network, ...]:
        """Make the options' policies, values and terminations, and the value function that storages ask for."""
        count, policy = self.num_options, in_units_of_environments(self.distribution)
        self.pi = self.actor.make("policy", PolicyPerOption(policy, count), acts=True)
        self.option_values = self.actor.make("option_values", StateValue(count=count), acts=True)
        # Terminations have a probability of a half at first.
        self.termination = self.actor.make("termination", StateValue(gain=0.01, count=count), acts=True)
        self.over_options = ValueOverOptions(self.option_values)
        self.actor.add("value", self.over_options)
        return self.pi, self.option_values, self.termination

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of A2C for the options' policies and values, and of the terminations (theorem 2).

        An option is more likely to terminate where its value, plus the deliberation cost, is below that of choosing
        again (arXiv 1709.04571).
        """
        option, before, arrives = rows[OPTION], rows[OPTION_BEFORE], 1 - rows[DONE]
        log_prob, entropy_of_rows = self.policy(rows.now, None, option).evaluate(rows.action)
        policy_loss, entropy = -rows.mean(log_prob * self.advantages(rows)), rows.mean(entropy_of_rows)
        values = self.option_values(rows.now)
        value_loss = 0.5 * rows.mean((values.gather(1, option) - rows[RET]).square())

        probability = arrives * self.termination(rows.now).sigmoid().gather(1, before)
        fixed = values.detach()
        advantage = fixed.gather(1, before) - self.over_options.of(fixed) + self.current(self.deliberation_cost)
        termination_loss = rows.mean(probability * advantage)

        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        metrics["terminations"] = rows.mean(probability)
        return Losses(
            {self.trained: loss + self.termination_coef * termination_loss},
            {name: metric.detach() for name, metric in metrics.items()},
        )

    def _follow_schedules(self) -> None:
        super()._follow_schedules()
        self.over_options.epsilon = self.current(self.option_epsilon)

    # Acting

    def value_functions(self) -> Mapping[str, Network]:
        """Return none: the stored values are of the option in use, and :meth:`act` returns them."""
        return {}

    def policy(self, view: View, exploration: Exploration | None, option: Tensor | None = None) -> Distribution:
        """Return the distribution of actions of an option in each row, (N, 1); None for the options in use."""
        if option is None:
            assert exploration is not None
            option = self._option_in_use(view, exploration).option
        policy: Distribution = self.pi(view).of(option)
        return policy

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions of the option in use, with its value, and the option before."""
        in_use = self._option_in_use(view, exploration)
        exploration.state[OPTION] = in_use.option
        policy = self.policy(view, exploration, in_use.option)
        if exploration.deterministic:
            return policy.mode(), {}
        action, log_prob = self._explorer.act_with_log_prob(policy, exploration)
        value = in_use.values.gather(1, in_use.option)
        return action, {VAL: value, LOGP: log_prob, OPTION: in_use.option, OPTION_BEFORE: in_use.before}

    def _option_in_use(self, view: View, exploration: Exploration) -> OptionInUse:
        epsilon = exploration.at(self.option_epsilon)
        return option_in_use(self.option_values(view), self.termination(view).sigmoid(), exploration, epsilon)

    # Learning

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Let returns bootstrap from the option in use, then update."""
        rollout = sources["main"]
        assert isinstance(rollout, VanillaOnPolicyBuffer)
        bootstrap_from_options(rollout, self._excess, self.gamma)
        return super().update_phase(sources)

    def _excess(self, obs: Any, rhs: Any, done: Tensor, option: Tensor) -> Tensor:
        """Return the value (N, 1) of arriving with options (N, 1), less that of choosing again."""
        with self.actor.acting(noisy=True):
            view = self.actor.view(obs, rhs, done)
            values: Tensor = self.option_values(view)
            goes_on: Tensor = 1 - self.termination(view).sigmoid().gather(1, option)
            return goes_on * (values.gather(1, option) - self.over_options.of(values))
