"""Views: batches of observations as inputs of feed-forward and recurrent networks.

A network asks a view for the features of its body: ``view.features(body)``. Each kind of view supplies the state of
recurrent bodies, so that networks and algorithms need not distinguish them from feed-forward ones.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body, RecurrentBody, VectorBody
from pytorchrl.agent.actors.unrolling import Unrolling
from storages.transition import OBS, OBS2

AnyBody: TypeAlias = Body | RecurrentBody | VectorBody


class View(Protocol):
    """Observations of N rows. Features are cached: weights must not change while a view is in use."""

    def features(self, body: AnyBody) -> Tensor:
        """Return the features (N, size) of the observations by a body."""

    def part(self, name: str) -> Tensor:
        """Return a part (N, ...) of dict observations."""


class Observations:
    """Observations (N, *obs), or a dict of such, for feed-forward bodies; or vectors (N, size) for a `VectorBody`.

    Args:
        obs: as bodies take them that do not normalise.
        exact: the same before numbers were rounded to float32, for bodies that normalise; None where none were.
    """

    def __init__(self, obs: Any, exact: Any = None) -> None:
        self.observations = obs
        self._exact = obs if exact is None else exact
        self._features: dict[tuple[AnyBody, bool], Tensor] = {}
        self._normalised: dict[nn.Module, Any] = {}

    def features(self, body: AnyBody) -> Tensor:
        """Return features (N, size), cached for each body, separately with and without gradients."""
        key = body, torch.is_grad_enabled()
        features = self._features.get(key)
        if features is None:
            features = self._features[key] = self._computed(body)
        return features

    def without_features(self) -> "Observations":
        """Return a view of the same observations for use after a change of weights, which are not normalised again."""
        fresh = Observations(self.observations, self._exact)
        fresh._normalised = self._normalised
        return fresh

    def _computed(self, body: AnyBody) -> Tensor:
        # Most bodies share one normalisation, with their target networks, too.
        if type(body) is not Body or body.normalization is None:
            features: Tensor = body(self.observations)
            return features
        assert isinstance(body, Body)
        normalization = body.normalization
        normalised = self._normalised.get(normalization)
        if normalised is None:
            normalised = self._normalised[normalization] = normalization(self._exact)
        return body.of_normalised(normalised)

    def part(self, name: str) -> Tensor:
        """Return a part (N, ...) of dict observations."""
        part: Tensor = self.observations[name]
        return part

    def rhs_after(self) -> None:
        """Return None: feed-forward bodies have no state."""


class ActingView:
    """Observations (B, *obs) of one step, for recurrent bodies.

    Args:
        obs: (B, *obs), or a dict of such.
        rhs: (B, hidden), the states before the step, concatenated.
        done: (B, 1), 1 where an episode begins: states are reset to zeros.
        bodies: whose states are in ``rhs``.
    """

    def __init__(self, obs: Any, rhs: Tensor, done: Tensor, bodies: Sequence[RecurrentBody]) -> None:
        self._obs, self._rhs, self._done, self._bodies = obs, rhs, done, bodies
        self._features: dict[AnyBody, Tensor] = {}
        self._states: dict[int, tuple[slice, Tensor]] = {}

    @property
    def observations(self) -> Any:
        """(B, *obs), or a dict of such."""
        return self._obs

    def state(self, where: slice) -> Tensor:
        """Return states (B, size) before the step, which `Actor.reserve_state` reserved; zeros where episodes begin."""
        return self._rhs[:, where] * (1 - self._done)

    def set_state_after(self, where: slice, state: Tensor) -> None:
        """Set the states (B, size) after the step, of memories that depend on the actions chosen in it."""
        self._states[where.start] = where, state

    def features(self, body: AnyBody) -> Tensor:
        """Return features (B, size), and advance the state of the body."""
        features = self._features.get(body)
        if features is None:
            assert isinstance(body, RecurrentBody)
            where, done = body.stored_at, self._done
            before = body.initial_state(done.shape[0], done.device) if where is None else self._rhs[:, where]
            features, state = body(self._obs, before, done)
            self._features[body] = features
            if where is not None:
                self._states[where.start] = where, state
        return features

    def part(self, name: str) -> Tensor:
        """Return a part (B, ...) of dict observations."""
        part: Tensor = self._obs[name]
        return part

    def rhs_after(self) -> Tensor:
        """Return the states (B, hidden) after the step, also of bodies whose features were not used."""
        for body in self._bodies:
            self.features(body)
        if len(self._states) == 1:
            ((where, state),) = self._states.values()
            if state.shape == self._rhs.shape:
                return state
        after = self._rhs.clone()
        for where, state in self._states.values():
            after[:, where] = state
        return after


class SequenceSteps:
    """OBS of all steps of a batch of sequences, flattened to rows."""

    def __init__(self, unrolling: Unrolling) -> None:
        self._unrolling = unrolling

    def features(self, body: AnyBody) -> Tensor:
        """Return features (N, size)."""
        if not isinstance(body, RecurrentBody):
            return self._unrolling.memoryless(body, OBS)
        features, _ = self._unrolling.of(body)
        return features

    def part(self, name: str) -> Tensor:
        """Return a part (N, ...) of dict observations."""
        part: Tensor = self._unrolling.rows(OBS)[name]
        return part


class NextSequenceSteps:
    """OBS2 of all steps of a batch of sequences, flattened to rows, with the recurrent state before each."""

    def __init__(self, unrolling: Unrolling) -> None:
        self._unrolling = unrolling
        self._features: dict[tuple[AnyBody, bool], Tensor] = {}

    def features(self, body: AnyBody) -> Tensor:
        """Return features (N, size); no gradient flows to earlier steps."""
        key = body, torch.is_grad_enabled()
        features = self._features.get(key)
        if features is None:
            if isinstance(body, RecurrentBody):
                before = self._unrolling.states_before_next(body)
                features, _ = body(self._unrolling.next_observations, before, torch.zeros_like(before[:, :1]))
            else:
                features = self._unrolling.memoryless(body, OBS2)
            self._features[key] = features
        return features

    def part(self, name: str) -> Tensor:
        """Return a part (N, ...) of dict observations."""
        part: Tensor = self._unrolling.next_observations[name]
        return part


class Repeated:
    """Each row of a view repeated, as by ``repeat_interleave``, for several actions of each observation.

    Args:
        view: of N rows.
        times: how often each is repeated.
    """

    def __init__(self, view: View, times: int) -> None:
        self._view, self._times = view, times

    def features(self, body: AnyBody) -> Tensor:
        """Return features (N * times, size)."""
        return self._view.features(body).repeat_interleave(self._times, dim=0)

    def part(self, name: str) -> Tensor:
        """Return a part (N * times, ...) of dict observations."""
        return self._view.part(name).repeat_interleave(self._times, dim=0)


class JoinedViews:
    """The rows of two views, concatenated to one batch.

    Args:
        first: of N rows.
        second: of M rows.
    """

    def __init__(self, first: View, second: View) -> None:
        self._first, self._second = first, second

    def features(self, body: AnyBody) -> Tensor:
        """Return features (N + M, size)."""
        return torch.cat([self._first.features(body), self._second.features(body)])

    def part(self, name: str) -> Tensor:
        """Return a part (N + M, ...) of dict observations."""
        return torch.cat([self._first.part(name), self._second.part(name)])
