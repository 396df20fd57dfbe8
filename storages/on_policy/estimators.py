"""How returns and advantages follow from the rewards and values of a rollout.

An :class:`Estimator` is a part of an on-policy storage. The arrays of a :class:`RewardStream` are (T, E). Where an
episode was cut, ``next_values`` is the value of its final observation, and 0 where the environment terminated.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels import returns as kernels
from storages.transition import ADV, RET


class RewardStream(NamedTuple):
    """The environments' rewards, or intrinsic ones, and the values that belong to them; arrays are (T, E)."""

    rewards: NDArray[np.floating]
    values: NDArray[np.floating]
    """Of what each row saw."""
    next_values: NDArray[np.floating]
    """Of what followed."""
    ends: NDArray[np.bool_]
    """Where the next row does not continue one."""
    gamma: float
    """Discount factor of one step."""
    return_key: str = RET
    """The field that its returns become."""
    advantage_key: str = ADV
    """The field that its advantages become."""
    ratios: NDArray[np.floating] | None = None
    """Probability of each action under the current policy over that under the one that acted, if it is asked for."""
    action_values: NDArray[np.floating] | None = None
    """Of what each row saw and did, if they are asked for."""


class Estimator(Protocol):
    """Makes returns and advantages of a rollout."""

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""


class DiscountedReturns(Estimator):
    """Discounted sums of rewards up to the end of the episode or rollout, and these less values."""

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        kernels.discounted_returns(stream.rewards, stream.next_values, stream.ends, stream.gamma, returns)
        np.subtract(returns, stream.values, out=advantages)


@dataclass
class GeneralizedAdvantages(Estimator):
    """Generalized advantage estimates (arXiv 1506.02438, equation 16), and these plus values.

    Args:
        gae_lambda: 0 for one-step errors, 1 for whole returns.
    """

    gae_lambda: float

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        kernels.generalized_advantages(rewards, values, next_values, ends, gamma, self.gae_lambda, advantages)
        np.add(advantages, values, out=returns)


@dataclass
class LambdaReturns(Estimator):
    """Lambda returns (Sutton and Barto, 2018, equation 12.2), and these less values.

    Args:
        trace_lambda: 0 for one-step targets, 1 for whole returns.
    """

    trace_lambda: float

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        kernels.lambda_returns(rewards, next_values, ends, gamma, self.trace_lambda, returns)
        np.subtract(returns, values, out=advantages)


@dataclass
class DifferentialAdvantages(Estimator):
    """Generalized advantages of rewards less their average, without a discount, and these plus values.

    Args:
        average_reward: of one step.
        gae_lambda: 0 for one-step errors, 1 for whole sums.
    """

    average_reward: float
    gae_lambda: float

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        above_average = stream._replace(rewards=stream.rewards - self.average_reward, gamma=1.0)
        GeneralizedAdvantages(self.gae_lambda).estimate(above_average, returns, advantages)


@dataclass
class VTrace(Estimator):
    """V-trace targets and policy-gradient advantages (arXiv 1802.01561, section 4).

    Args:
        rho_bar: truncation level of an error's importance weight.
        c_bar: truncation level of the weight of what follows.
        trace_lambda: 0 for one-step targets.
    """

    rho_bar: float
    c_bar: float
    trace_lambda: float

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        assert stream.ratios is not None
        weights = (stream.ratios, gamma, self.rho_bar, self.c_bar, self.trace_lambda)
        kernels.vtrace(rewards, values, next_values, ends, *weights, returns, advantages)


@dataclass
class Retrace(Estimator):
    """Retrace targets of action values (arXiv 1606.02647, equations 3 and 4), and these less state values.

    Args:
        trace_lambda: 0 for one-step targets.
    """

    trace_lambda: float

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        assert stream.ratios is not None
        assert stream.action_values is not None
        weights = (stream.ratios, gamma, self.trace_lambda)
        kernels.retrace(rewards, stream.action_values, next_values, ends, *weights, returns)
        np.subtract(returns, values, out=advantages)
