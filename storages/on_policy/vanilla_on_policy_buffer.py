"""A rollout of the current policy: filled, used for a few epochs, emptied."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core import samplers
from storages.core.fields import SampleError
from storages.core.kernels.returns import discounted_returns
from storages.core.sequences import in_time
from storages.core.transfer import to_batch
from storages.hyper_parameters import Count
from storages.on_policy.answers import checked_answer
from storages.storage import Discounting, Environments, Storage, ValueFunction
from storages.transition import ADV, DONE, DONE2, OBS2, RET, REW, RHS, RHS2, VAL, Batch, Sample


class VanillaOnPolicyBuffer(Storage):
    """Rollouts whose returns are discounted sums of rewards, and whose advantages are returns less values.

    A return reaches to the end of its episode or of the rollout; where the episode was cut by a limit, or the rollout
    ends, it leans on the actor's value of the true next observation.

    Args:
        size: steps of a rollout; ``size * num_envs`` transitions.
        sequence_length: steps of the sequences that an actor with memory learns from; None takes whole rollouts.
        cut_episodes: "bootstrap" lets returns lean on the actor's values as above. "drop" makes batches only of steps
            whose episode terminates within the rollout, so that returns are sums of rewards alone. Episodes that a
            limit cut, or that still run, are lost, which favours short ones. Not with a memory.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    on_policy = True
    computed_fields = frozenset({RET, ADV})
    unchangeable = frozenset({"size", "sequence_length"})

    def __init__(
        self,
        device: torch.device | str,
        actor: ValueFunction,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        sequence_length: Count | None = None,
        cut_episodes: Literal["bootstrap", "drop"] = "bootstrap",
        allow_nonfinite: bool = False,
    ) -> None:
        super().__init__(device, actor, algorithm, envs, size, allow_nonfinite)
        self.sequence_length = sequence_length
        self.cut_episodes = cut_episodes

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse sequences that do not divide a rollout."""
        super().check_hyper_parameters(hyper_parameters)
        size, length = hyper_parameters.get("size"), hyper_parameters["sequence_length"]
        if None not in (size, length) and size % length:
            raise ValueError(f"{cls.__name__}: sequence_length must divide size={size}, got {length}")

    def before_gradients(self) -> None:
        """Make RET and ADV of the rollout so far.

        Raises:
            EmptyStorageError: nothing is stored yet.
            ValueError: the actor's answer is not one finite number for each observation; nothing was made.
        """
        self._refuse_if_empty()
        values = self._ring.rollout(VAL)[..., 0]
        broken = self._ring.broken()
        next_values = self._next_values(values, broken)
        # Not before the actor has answered: what it raises must leave no returns behind that nobody made.
        for key in (RET, ADV):
            self._ring.add_computed(key, (1,), np.dtype(np.float32))
        self._make_returns(self._ring.rollout(REW)[..., 0], values, next_values, broken)

    def _before_insertion(self, sample: Sample) -> None:
        if self._ring.live_steps == self.size:
            raise RuntimeError(f"{type(self).__name__}: the rollout of {self.size} steps is full; call reset() first")
        if VAL not in sample:
            raise SampleError(f"{type(self).__name__}: an on-policy sample needs {VAL}; got {list(sample)}")
        if self.cut_episodes == "drop" and RHS in sample:
            raise SampleError(
                f"{type(self).__name__}: cut_episodes='drop' leaves single transitions out, but an actor with a memory "
                f"learns from sequences; let it be 'bootstrap'"
            )
        super()._before_insertion(sample)

    def _steps_at_once(self) -> int:
        return self.size - self._ring.live_steps

    def _make_returns(
        self,
        rewards: NDArray[np.floating],
        values: NDArray[np.floating],
        next_values: NDArray[np.floating],
        ends: NDArray[np.bool_],
    ) -> None:
        returns, advantages = self._ring.rollout(RET)[..., 0], self._ring.rollout(ADV)[..., 0]
        discounted_returns(rewards, next_values, ends, self._gamma, returns)
        np.subtract(returns, values, out=advantages)

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None = None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Every transition once an epoch, in random order, in ``num_mini_batch`` batches as equal as can be.

        Where cut episodes are dropped, their transitions are in none; batches are smaller then, and may be fewer.

        Where hidden states were inserted, batches are of sequences, time first: fields (T, B, ...), RHS (B, *hidden)
        before the first step, DONE where memory starts anew: with an episode, and where the rollout goes on with
        another stream of experience, as after slices of several workers.

        Args:
            num_mini_batch: batches an epoch.
            mini_batch_size: None, or what the rollout's size divided by the number of batches is, without remainder.
            num_epochs: times that every transition is used.

        Raises:
            EmptyStorageError: nothing is stored, now or when a batch is asked for.
            RuntimeError: ``before_gradients`` was not called since what is stored last changed, or what is stored
                changed since the call, which a batch asked for then says.
            ValueError: a number is no int from 1 on, or the rollout does not divide into so many batches, or not of
                that size.
        """
        self._refuse_if_empty()
        self._refuse_counts(num_mini_batch, mini_batch_size, num_epochs)
        self._refuse_without_returns()
        if num_mini_batch > len(self):
            raise ValueError(f"{type(self).__name__}: {len(self)} transitions make no {num_mini_batch} batches")
        if mini_batch_size is not None and num_mini_batch * mini_batch_size != len(self):
            raise ValueError(
                f"{type(self).__name__}: {len(self)} transitions make no {num_mini_batch} batches of "
                f"mini_batch_size={mini_batch_size}; leave mini_batch_size None, which makes them as equal as can be"
            )
        if (RHS,) not in self._ring.layout:
            return self._epochs(num_mini_batch, num_epochs, self._rollout)
        length = self.sequence_length or self._ring.live_steps
        if self._ring.live_steps % length or num_mini_batch > len(self) // length:
            raise ValueError(
                f"{type(self).__name__}: {self._ring.live_steps} steps of {self.num_envs} environments make no "
                f"{num_mini_batch} batches of sequences of {length} steps; choose another sequence_length, or fewer "
                f"batches"
            )
        return self._epochs_of_sequences(num_mini_batch, num_epochs, self._rollout)

    def _epochs(self, num_mini_batch: int, num_epochs: int, rollout: tuple[int, int]) -> Iterator[Batch]:
        for _ in range(num_epochs):
            self._refuse_another_rollout(rollout)
            for transitions in samplers.permuted(self._generator, self._learnt_from(), num_mini_batch):
                self._refuse_another_rollout(rollout)
                if len(transitions):
                    yield to_batch(self._ring.gather(transitions), self.device)

    def _learnt_from(self) -> NDArray[np.int64]:
        """Numbers of the transitions that batches are made of."""
        ring, envs = self._ring, self.num_envs
        if self.cut_episodes == "bootstrap":
            return np.arange(ring.oldest * envs, ring.steps * envs)
        goes_on, terminates = ~ring.broken(), ring.rollout(DONE2)[..., 0].astype(np.bool_)
        for step in reversed(range(len(terminates) - 1)):
            terminates[step] |= goes_on[step] & terminates[step + 1]
        return ring.oldest * envs + np.flatnonzero(terminates)

    def _epochs_of_sequences(self, num_mini_batch: int, num_epochs: int, rollout: tuple[int, int]) -> Iterator[Batch]:
        self._refuse_another_rollout(rollout)
        ring, envs = self._ring, self.num_envs
        length = self.sequence_length or ring.live_steps
        pieces = ring.live_steps // length
        starts = ((ring.oldest + length * np.arange(pieces))[:, None] * envs + np.arange(envs)).ravel()
        begins = self._begins()
        for _ in range(num_epochs):
            for chosen in np.array_split(self._generator.permutation(starts), num_mini_batch):
                self._refuse_another_rollout(rollout)
                transitions = np.arange(length)[:, None] * envs + chosen
                fields = ring.gather(transitions.ravel(), self._keys_of_steps())
                batch = {key: in_time(value, transitions.shape) for key, value in fields.items()}
                # The memory before the first step is given, whichever stream it is of.
                batch[DONE][1:] = np.maximum(batch[DONE][1:], begins[transitions[1:] - ring.oldest * envs])
                yield to_batch(batch | ring.gather(chosen, {RHS}), self.device)

    def _begins(self) -> NDArray[np.float32]:
        """(T * E, 1): 1 where a step of the rollout does not continue the step before it."""
        broken = self._ring.broken()
        begins = np.zeros(broken.shape, np.float32)
        begins[1:] = broken[:-1]
        return begins.reshape(-1, 1)

    @property
    def _rollout(self) -> tuple[int, int]:
        """The first step of the rollout, and the step after its last."""
        return self._ring.oldest, self._ring.steps

    def _refuse_another_rollout(self, rollout: tuple[int, int]) -> None:
        self._refuse_if_empty()
        self._refuse_without_returns()
        if self._rollout != rollout:
            raise RuntimeError(
                f"{type(self).__name__}: another rollout is stored since these batches were begun; call "
                f"generate_batches() again"
            )

    def _refuse_without_returns(self) -> None:
        if not self._ring.has_computed(RET):
            raise RuntimeError(f"{type(self).__name__}: call before_gradients() first, it makes {RET} and {ADV}")

    def _keys_of_steps(self) -> set[str]:
        return {path[0] for path in self._ring.layout} - {RHS, RHS2} | {RET, ADV}

    def _next_values(self, values: NDArray[np.floating], broken: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(T, E): the value of what followed each transition, 0 where the environment terminated.

        Args:
            values: (T, E), of the observations.
            broken: (T, E), where the next row does not continue a transition.
        """
        next_values = np.empty(values.shape, np.float32)
        next_values[:-1] = values[1:]
        terminated = self._ring.rollout(DONE2)[..., 0]
        next_values[terminated] = 0
        unknown = broken & ~terminated
        unknown[-1] = ~terminated[-1]
        transitions = self._ring.oldest * self.num_envs + np.flatnonzero(unknown)
        if len(transitions):
            followed = to_batch(self._ring.gather(transitions, {OBS2, RHS2}), self.device)
            # What followed continues its episode, so the memory before it is not to be reset.
            done = torch.zeros((len(transitions), 1), device=self.device)
            with torch.no_grad():
                estimated = self.actor.value(followed[OBS2], followed.get(RHS2), done)
            shape, owner = (len(transitions), 1), type(self).__name__
            next_values[unknown] = checked_answer(estimated, shape, "actor.value", owner, self.allow_nonfinite)
        return next_values
