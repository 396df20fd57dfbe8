"""A rollout buffer with discounted returns: filled, used for a few epochs, emptied."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from storages.checks import checked_gamma, refuse_counts, refuse_if_empty
from storages.compatibility import both_spellings
from storages.component.declared import parameter
from storages.component.hyper_parameters import WholeCount
from storages.core.device.transfer import to_batch
from storages.core.kernels.returns import lambda_returns
from storages.core.parts import RingObserver
from storages.core.ring.layout import SCALAR, SampleError
from storages.core.ring.ring import Ring
from storages.core.sampling.uniform import permuted
from storages.core.windows.segments import in_time
from storages.on_policy.estimators import Estimator, RewardStream
from storages.on_policy.evaluation import RolloutEvaluation, begins_of
from storages.protocols import Curiosity, Discounting, Environments, IntrinsicValueFunction
from storages.storage import Storage
from storages.transition import (
    ACT,
    ACTPROBS,
    ADV,
    DONE,
    DONE2,
    IADV,
    IRET,
    IREW,
    IVAL,
    LOGP,
    MASK,
    OBS,
    OBS2,
    RET,
    REW,
    REWC,
    RHS,
    RHS2,
    SKIPPED,
    TRUNC2,
    VAL,
    Batch,
    Sample,
)


class VanillaOnPolicyBuffer(Storage):
    """Rollouts whose returns are discounted sums of rewards, and whose advantages are returns minus values.

    A return reaches to the end of its episode or of the rollout; where the episode was truncated, or the rollout ends,
    it bootstraps from the actor's value of the next observation. From IREW and IVAL, where present, IRET and IADV are
    computed in the same way, with the algorithm's discount factor of intrinsic rewards. Samples hold VAL and IVAL, or
    the actor evaluates those that the algorithm names in ``values_when_full``.

    Args:
        size: steps of a rollout; ``size * num_envs`` transitions.
        sequence_length: steps of the sequences that a recurrent actor is trained on; None for whole rollouts.
        cut_episodes: "bootstrap" bootstraps from the actor's values as above. "drop" makes batches only of steps whose
            episode terminates within the rollout, so that returns are sums of rewards alone, and samples need no VAL.
            Truncated and running episodes are lost, which biases towards short ones.
    """

    size: WholeCount = parameter(kw_only=False)
    sequence_length: WholeCount | None = None
    cut_episodes: Literal["bootstrap", "drop"] = "bootstrap"

    on_policy = True
    example = "size=128"
    storage_tensors = (
        *(OBS, RHS, DONE, ACT, REW, IREW, REWC, OBS2, RHS2, DONE2, TRUNC2, SKIPPED, ACTPROBS),
        *(VAL, IVAL, LOGP, RET, IRET, ADV, IADV),
    )
    keeps_skipped_rows = True
    needs_values: ClassVar[bool] = True
    """Whether bootstrapped returns need the VAL of samples."""
    computed_fields = frozenset({RET, ADV, IRET, IADV})
    unchangeable = frozenset({"size", "sequence_length", "cut_episodes"})

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        super().build(device, actor, algorithm, envs)
        leans_on_values = self.needs_values and self.cut_episodes == "bootstrap"
        self._values_when_full: frozenset[str] = getattr(algorithm, "values_when_full", frozenset())
        needs_val = leans_on_values and VAL not in self._values_when_full
        needed = [*((LOGP,) if self.needs_log_probs else ()), *((VAL,) if needs_val else ())]
        self.observers.add(RolloutGuard(needed))
        self.evaluation = RolloutEvaluation(self.ring, self.device)
        """Evaluates the rollout with the current actor."""

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse a sequence length that does not divide the rollout."""
        super().check_hyper_parameters(hyper_parameters)
        size, length = hyper_parameters.get("size"), hyper_parameters["sequence_length"]
        if None not in (size, length) and size % length:
            raise ValueError(f"{cls.__name__}: sequence_length must divide size={size}, got {length}")

    @both_spellings
    def insert_data_slice(self, data: Mapping[str, Any]) -> None:
        """Store consecutive steps (steps, E, ...), without the values that are evaluated when the rollout is full."""
        asked_for = {key for key in self._values_when_full if (key,) not in self.ring.layout}
        super().insert_data_slice({key: value for key, value in data.items() if key not in asked_for})

    def before_gradients(self) -> None:
        """Compute RET and ADV of the rollout so far.

        Raises:
            EmptyStorageError: nothing is stored yet.
            ValueError: the actor does not return one finite number for each observation; nothing was computed.
        """
        refuse_if_empty(self, self.ring)
        ring, streams = self.ring, self.streams()
        estimator = self.make_estimator()
        # Only after the actor was evaluated: if it raises an error, there must be no returns.
        for stream in streams:
            for key in (stream.return_key, stream.advantage_key):
                ring.columns.add_computed(key, SCALAR)
            returns, advantages = ring.rollout(stream.return_key)[..., 0], ring.rollout(stream.advantage_key)[..., 0]
            estimator.estimate(stream, returns, advantages)
            if stream.order is not None:
                returns[...], advantages[...] = stream.in_order(returns), stream.in_order(advantages)

    def normalize_advantages(self) -> None:
        """Normalise ADV to mean 0 and standard deviation 1 over all transitions that batches are made of.

        Raises:
            RuntimeError: ``before_gradients`` was not called since the contents last changed.
        """
        self._refuse_without_returns()
        advantages = self.ring.rollout(ADV)[..., 0]
        learnt = advantages[self._learnt_from()].astype(np.float64)
        if len(learnt) > 1:
            advantages[:] = (advantages - learnt.mean()) / (learnt.std(ddof=1) + _TINY)

    def measure_values(self) -> dict[str, float]:
        """Return the mean of the values VAL that batches hold, and how much of the returns' variance they explain.

        "explained_variance" is ``1 - var(RET - VAL) / var(RET)``: 1 where values are the returns, 0 where they are no
        better than a constant, negative where worse; it is left out where returns are equal. Those of IVAL and IRET end
        in "/intrinsic". Without values, or before :meth:`before_gradients`, there are none.
        """
        ring, measured = self.ring, {}
        for value_key, return_key, name in ((VAL, RET, ""), (IVAL, IRET, "/intrinsic")):
            if (return_key,) not in ring.columns.computed or not self._has(value_key):
                continue
            learnt = self._learnt_from()
            values, returns = (ring.rollout(key)[..., 0][learnt].astype(np.float64) for key in (value_key, return_key))
            if len(returns):
                measured[f"mean_value{name}"] = float(values.mean())
            if len(returns) and (variance := returns.var()) > 0:
                measured[f"explained_variance{name}"] = float(1 - (returns - values).var() / variance)
        return measured

    def _has(self, key: str) -> bool:
        return (key,) in self.ring.layout or (key,) in self.ring.columns.computed

    def in_order(self) -> Batch:
        """Return all steps in the order of their insertion, (T, E, ...), as one batch of a sequence per environment.

        As in batches of sequences, RHS (E, *hidden) is of the first step, and DONE is 1 wherever the recurrent state is
        reset. No step is omitted.
        """
        batch = self.get_all_buffer_data()
        if RHS in batch:
            batch[RHS] = batch[RHS][0]
            begins = torch.from_numpy(begins_of(self.ring)).reshape(batch[DONE].shape)
            batch[DONE] = batch[DONE].maximum(begins.to(self.device))
        return batch

    def most_batches(self, steps: int, recurrent: bool) -> int:
        """Return how many batches an epoch over a rollout divides into at most: one for each row.

        Args:
            steps: of the rollout.
            recurrent: whether rows are sequences, rather than transitions.
        """
        return steps * self.num_envs // ((self.sequence_length or steps) if recurrent else 1)

    # Parts

    def make_estimator(self) -> Estimator:
        """Return the estimator of returns and advantages, with the current hyper-parameters."""
        return self

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        lambda_returns(stream.rewards, stream.next_values, stream.ends, stream.gamma, 1.0, returns)
        np.subtract(returns, stream.values, out=advantages)

    def streams(self) -> list[RewardStream]:
        """Return the stream of rewards and, where there are any, of intrinsic rewards, with their values."""
        streams = [self._environments_stream(None)]
        has_values = (IVAL,) in self.ring.layout or IVAL in self._values_when_full
        has_intrinsic = has_values and (IREW,) in self.ring.layout and IRET in self.computed_fields
        if has_intrinsic and hasattr(self.algorithm, "intrinsic_gamma"):
            streams.append(self._intrinsic_stream())
        return streams

    def _environments_stream(self, values: NDArray[np.floating] | None) -> RewardStream:
        """Return the stream of environment rewards, with values (T, E) of observations; those of VAL where None."""
        ring = self.ring
        broken = ring.broken()
        values = self._values(VAL, values)
        terminated = ring.rollout(DONE2)[..., 0] | ring.skipped()
        if self.cut_episodes == "drop":
            # No return that is learnt from is bootstrapped, and an actor need not have values.
            next_values = np.zeros(broken.shape, np.float32)
        else:
            next_values = self.evaluation.next_values(values, broken, terminated, self.actor.value)
        gamma = checked_gamma(self.algorithm.gamma, type(self).__name__)
        return RewardStream(ring.rollout(REW)[..., 0], values, next_values, broken, gamma)

    def _values(self, key: str, known: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Return values (T, E) of observations; those named in ``values_when_full`` become a field.

        Args:
            key: VAL or IVAL.
            known: the values, if they were evaluated already.
        """
        ring = self.ring
        is_stored, is_wanted = (key,) in ring.layout, key in self._values_when_full
        values = known
        if values is None and is_stored:
            values = ring.rollout(key)[..., 0]
        elif values is None and is_wanted:
            values = self.evaluation.values(getattr(self.actor, _ASKED_FOR[key]))
        elif values is None:
            values = np.zeros((ring.live_steps, ring.envs), np.float32)
        if is_wanted and not is_stored:
            ring.columns.add_computed(key, SCALAR)
            ring.rollout(key)[..., 0] = values
        return values

    def _intrinsic_stream(self) -> RewardStream:
        """Return the stream of intrinsic rewards, non-episodic unless ``intrinsic_returns_end`` of the algorithm.

        Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894), section 2.3.
        """
        ring, curiosity = self.ring, cast("Curiosity", self.algorithm)
        ends = ring.broken()
        if not curiosity.intrinsic_returns_end:
            # An interruption without an end, as by a resumed run, still ends the return.
            ends &= ~ring.ended()
        ask = cast("IntrinsicValueFunction", self.actor).intrinsic_value
        values = self._values(IVAL)
        without_value = ring.rollout(DONE2)[..., 0] & curiosity.intrinsic_returns_end
        next_values = self.evaluation.next_values(values, ends, without_value, ask)
        rewards = ring.rollout(IREW)[..., 0]
        stream = RewardStream(rewards, values, next_values, ends, curiosity.intrinsic_gamma, IRET, IADV)
        skipped = ring.skipped()
        return stream if curiosity.intrinsic_returns_end or not skipped.any() else stream.over_skipped(skipped)

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None = None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator over ``num_epochs`` epochs of ``num_mini_batch`` batches, nearly equal in size.

        An epoch holds every transition once, in random order, without those of dropped episodes (``cut_episodes``) and
        skipped ones (SKIPPED); batches are smaller then, and may be fewer. A warning says if none is left.

        If hidden states were inserted, batches are of sequences, time first: fields (T, B, ...), RHS (B, *hidden)
        before the first step, DONE where the recurrent state is reset: at the start of an episode, and where the
        rollout continues with experience of another worker. MASK is 0 at skipped steps and at steps of dropped
        episodes, which stay in a sequence because the recurrent state runs through them.

        Args:
            num_mini_batch: batches in an epoch.
            mini_batch_size: None, or exactly the number of transitions divided by ``num_mini_batch``.
            num_epochs: epochs over the rollout.

        Raises:
            EmptyStorageError: nothing is stored, now or when a batch is requested.
            RuntimeError: ``before_gradients`` was not called since the contents last changed, or the contents changed
                since the call, which is raised when the next batch is requested.
            ValueError: a count is not an int of at least 1, or the rollout does not divide into so many batches, or
                not of that size.
        """
        refuse_if_empty(self, self.ring)
        refuse_counts(num_mini_batch, mini_batch_size, num_epochs, type(self).__name__)
        self._refuse_without_returns()
        if num_mini_batch > len(self):
            raise ValueError(f"{type(self).__name__}: {len(self)} transitions cannot fill {num_mini_batch} batches")
        if mini_batch_size is not None and num_mini_batch * mini_batch_size != len(self):
            raise ValueError(
                f"{type(self).__name__}: {len(self)} transitions do not divide into {num_mini_batch} batches of "
                f"mini_batch_size={mini_batch_size}; mini_batch_size=None makes batches of nearly equal size"
            )
        if self.cut_episodes == "drop" and not self._learnt_from().any():
            warnings.warn(
                f"{type(self).__name__}: no episode terminates in a rollout of {self.ring.live_steps} steps, and "
                f"cut_episodes='drop' omits all others, so that nothing is learnt; choose a larger size, or "
                f"cut_episodes='bootstrap'",
                RuntimeWarning,
                stacklevel=2,
            )
        if (RHS,) not in self.ring.layout:
            return self._epochs(num_mini_batch, num_epochs, self._rollout)
        length = self.sequence_length or self.ring.live_steps
        if self.ring.live_steps % length or num_mini_batch > self.most_batches(self.ring.live_steps, recurrent=True):
            raise ValueError(
                f"{type(self).__name__}: {self.ring.live_steps} steps of {self.num_envs} environments do not "
                f"divide into {num_mini_batch} batches of sequences of {length} steps; choose another "
                f"sequence_length, or fewer batches"
            )
        return self._epochs_of_sequences(num_mini_batch, num_epochs, self._rollout)

    def _epochs(self, num_mini_batch: int, num_epochs: int, rollout: tuple[int, int]) -> Iterator[Batch]:
        for _ in range(num_epochs):
            self._refuse_another_rollout(rollout)
            learnt = self.ring.oldest * self.num_envs + np.flatnonzero(self._learnt_from())
            for transitions in permuted(self._generator, learnt, num_mini_batch):
                self._refuse_another_rollout(rollout)
                if len(transitions):
                    yield to_batch(self.ring.gather(transitions), self.device)

    def _learnt_from(self) -> NDArray[np.bool_]:
        """(T, E): whether a transition is in batches."""
        ring = self.ring
        goes_on = ~ring.broken()
        if self.cut_episodes == "bootstrap":
            return np.ones_like(goes_on) if (SKIPPED,) not in ring.layout else ~ring.skipped()
        terminates = ring.rollout(DONE2)[..., 0].astype(np.bool_)
        for step in reversed(range(len(terminates) - 1)):
            terminates[step] |= goes_on[step] & terminates[step + 1]
        return terminates

    def _epochs_of_sequences(self, num_mini_batch: int, num_epochs: int, rollout: tuple[int, int]) -> Iterator[Batch]:
        self._refuse_another_rollout(rollout)
        ring, envs = self.ring, self.num_envs
        length = self.sequence_length or ring.live_steps
        pieces = ring.live_steps // length
        learnt, oldest = self._learnt_from(), ring.oldest * envs
        starts = ((ring.oldest + length * np.arange(pieces))[:, None] * envs + np.arange(envs)).ravel()
        starts = starts[learnt.reshape(pieces, length, envs).any(1).ravel()]
        begins = begins_of(ring)
        for _ in range(num_epochs):
            for chosen in np.array_split(self._generator.permutation(starts), num_mini_batch):
                self._refuse_another_rollout(rollout)
                if not len(chosen):
                    continue
                transitions = np.arange(length)[:, None] * envs + chosen
                fields = ring.gather(transitions.ravel(), self._keys_of_steps())
                batch = {key: in_time(value, transitions.shape) for key, value in fields.items()}
                # The first step needs no reset: its recurrent state is given as RHS.
                batch[DONE][1:] = np.maximum(batch[DONE][1:], begins[transitions[1:] - oldest])
                if self.cut_episodes == "drop" or (SKIPPED,) in ring.layout:
                    batch[MASK] = learnt.reshape(-1, 1)[transitions - oldest].astype(np.float32)
                yield to_batch(batch | ring.gather(chosen, {RHS}), self.device)

    @property
    def _rollout(self) -> tuple[int, int]:
        """The first step of the rollout, and the step after its last one."""
        return self.ring.oldest, self.ring.steps

    def _refuse_another_rollout(self, rollout: tuple[int, int]) -> None:
        refuse_if_empty(self, self.ring)
        self._refuse_without_returns()
        if self._rollout != rollout:
            raise RuntimeError(
                f"{type(self).__name__}: the rollout changed while its batches were generated; call "
                f"generate_batches() again"
            )

    def _refuse_without_returns(self) -> None:
        if (RET,) not in self.ring.columns.computed:
            raise RuntimeError(f"{type(self).__name__}: call before_gradients() first, which computes {RET} and {ADV}")

    def _keys_of_steps(self) -> set[str]:
        return {path[0] for path in (*self.ring.layout, *self.ring.columns.computed)} - {RHS, RHS2}


_ASKED_FOR = {VAL: "value", IVAL: "intrinsic_value"}
"""The actor's method that evaluates a field."""

_TINY = 1e-8
"""Prevents division by 0 where all advantages are equal."""


class RolloutGuard(RingObserver):
    """Refuses steps beyond a full rollout, and samples without a field that returns are computed from.

    Args:
        needed: the fields that samples must have.
    """

    def __init__(self, needed: Sequence[str]) -> None:
        self._needed = needed

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Raise an error if the rollout is full or the sample lacks a field."""
        if ring.live_steps == ring.size:
            raise RuntimeError(f"{ring.owner}: the rollout of {ring.size} steps is full; call reset() first")
        for field in self._needed:
            if field not in sample:
                raise SampleError(f"{ring.owner}: {_NEED[field]}; got {list(sample)}")

    def steps_at_once(self, ring: Ring) -> int:
        """Return the number of steps until the rollout is full."""
        return ring.size - ring.live_steps


_NEED = {
    LOGP: f"a sample needs {LOGP}, the log probability of its action under the policy that acted",
    VAL: f"an on-policy sample needs {VAL}, or an algorithm with {VAL} in its values_when_full",
}
