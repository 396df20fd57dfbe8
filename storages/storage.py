"""The interface of storages for collectors, learners and checkpoints."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from storages.checks import checked_device, checked_gamma, refuse_incomplete, slice_errors, steps_of
from storages.closing import Closing
from storages.component.changeable import Changeable
from storages.component.declared import parameter
from storages.component.factory import Factory, StandaloneComponent
from storages.component.hyper_parameters import WholeCount
from storages.component.schedule import Schedule, value_at
from storages.core.counts import saved_count
from storages.core.parts import RingObserver
from storages.core.ring.columns import saved_layout
from storages.core.ring.layout import FieldKey, Layout, as_array, leaves, nest, text
from storages.core.ring.ring import Ring
from storages.core.ring.staging import Staging
from storages.core.ring.validation import checked_environments
from storages.core.sampling.prioritized import Priorities
from storages.other_names import STORAGE_NAMES
from storages.overridden import adapt_overrides
from storages.protocols import Discounting, Environments, StorageLog
from storages.renamed import appends_to_dict, both_spellings, missing_attribute
from storages.stored_fields import StoredFields
from storages.transition import ERRORS, SKIPPED, Array, Batch, Leaf, Sample

T = TypeVar("T")
P = ParamSpec("P")


class EmptyStorageError(RuntimeError):
    """A batch was requested from an empty storage."""


class Storage(StandaloneComponent, Changeable, Closing):
    """Base class of storages, which hold transitions and yield batches of them.

    Storages are made by factories, or at once: ``(device, actor, algorithm, envs, size, ...)``, or as in PyTorchRL
    ``(size, device, actor, algorithm, envs, ...)``.

    Args:
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    device: torch.device = parameter(kw_only=False)
    actor: Any = parameter(kw_only=False)
    algorithm: Discounting = parameter(kw_only=False)
    envs: Environments | None = parameter(kw_only=False)
    size: WholeCount | None = parameter(kw_only=False)
    allow_nonfinite: bool = False

    context = ("device", "actor", "algorithm", "envs")
    other_names = STORAGE_NAMES
    unchangeable = frozenset({"size"})
    on_policy: ClassVar[bool]
    """Whether it holds transitions of the current policy alone."""
    needs_log_probs: ClassVar[bool] = False
    """Whether samples must hold LOGP, and the actor must re-evaluate log-probabilities of actions."""
    needs_action_values: ClassVar[bool] = False
    """Whether the actor must evaluate Q-values of actions."""
    knows_next_actions: ClassVar[bool] = False
    """Whether :meth:`include_next_actions` is supported."""
    knows_returns_to_go: ClassVar[bool] = False
    """Whether :meth:`include_returns_to_go` is supported."""
    knows_newest_steps: ClassVar[bool] = False
    """Whether :meth:`newest_steps` is supported."""
    keeps_skipped_rows: ClassVar[bool] = False
    """Whether rows in which an environment made no transition (SKIPPED) are stored."""
    computed_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that the storage computes from stored ones; samples must not have them."""
    states_kept = 2
    """With a directory, how many of the newest states returned by :meth:`state_dict` stay loadable."""
    storage_tensors: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that transitions have. A subclass that sets it stores these, and those that every sample
    must have or that environments, actor and algorithm need, alone; otherwise further fields are stored, too."""
    stored_fields: ClassVar[frozenset[str] | None] = None
    """Fields of samples that are stored, by ``storage_tensors`` of a subclass; all where None."""
    stores_slices_whole: ClassVar[bool] = True
    """Whether one call may store many steps of a slice, instead of :meth:`insert_transition` for each."""
    state_names: ClassVar[tuple[str, ...]] = ("ring", "generator")
    """Entries that a state must have to be loaded."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have a subclass's own :meth:`insert_transition` called for every step, those of slices included.

        One that does not take ``envs`` is called with whole steps alone, as soon as all environments have delivered
        theirs. Methods that are named in :mod:`storages.renamed` may have the parameters of PyTorchRL's.

        Raises:
            TypeError: a name of PyTorchRL's storages is overridden, which nothing calls here.
        """
        super().__init_subclass__(**options)
        adapt_overrides(cls)

    if TYPE_CHECKING:

        @classmethod
        def create_factory(
            cls: Callable[Concatenate[Any, Any, Any, Any, P], T], *args: P.args, **kwargs: P.kwargs
        ) -> Factory[T]:
            """Bind the hyper-parameters, without the four parameters of the context."""
            raise NotImplementedError

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already.

        Args:
            device: device of the batches.
            actor: a :class:`ValueFunction` for storages that need one, else anything.
            algorithm: provides ``gamma``, which is read at each use, so that it may change.
            envs: provide the number of environments; where None, it is that of the first sample.
        """
        self.device = checked_device(device, type(self).__name__)
        self.actor = actor
        self.algorithm = algorithm
        if algorithm is not None:
            checked_gamma(algorithm.gamma, type(self).__name__)
        self._ring = self.make_ring(envs)
        self._ring.fields = self.stored_fields
        self._generator = np.random.default_rng()
        self._progress = (0, 1)
        self._inserted = 0
        """Transitions inserted so far."""
        self._staging: Staging | None = None
        """Buffer of incomplete steps, which some environments have not delivered yet; None where there are none."""
        self._errors_of_slice: list[NDArray[np.float32]] | None = None
        """TD errors (E,) of the steps that the slice being inserted has completed; None outside of such insertions."""
        self._log: StorageLog | None = None
        self._observers: list[RingObserver] = []
        self._find_overridden()

    def make_ring(self, envs: Environments | None) -> Ring:
        """Make the ring that holds the transitions."""
        return Ring(
            self.size,
            type(self).__name__,
            envs.num_envs if envs is not None else None,
            self.allow_nonfinite,
            in_records=not self.on_policy,
            stacked_frames=getattr(envs, "stacked_frames", 0),
            computed=self.computed_fields if self.keeps_skipped_rows else self.computed_fields | {SKIPPED},
        )

    # Calls of collectors and learners

    def init_tensors(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a sample, without storing it; otherwise the first insertion fixes them."""
        self._ring.init_columns(sample)

    def insert_transition(self, sample: Sample, envs: Sequence[int] | None = None) -> None:
        """Store one step, a transition for each environment.

        Transitions of a subset of the environments are buffered until every environment has delivered its own; only
        then is the step stored, and can be drawn.

        Args:
            sample: arrays or tensors (E, ...) under the names of :mod:`storages.transition`, in any order.
            envs: indices (N,) of the environments of a sample (N, ...); where None, it is of all, in their order.

        Raises:
            IndexError: there is no such environment, or it is named twice.
            RuntimeError: ``envs`` is None while incomplete steps are buffered, or an environment is too far ahead.
            SampleError: a field is missing, unknown, of another shape or dtype than in the first sample, or holds NaN
                or infinity. Nothing of the sample was stored.
            RuntimeError: the storage holds a full rollout and was not reset.
            DeviceMemoryError: the fields kept on the device do not fit into its memory; nothing was stored.
            PersistenceError: earlier steps could not be written to the directory; nothing of this one was stored.
        """
        if envs is not None:
            self.insert_in_part(sample, envs, lambda step: Storage.insert_transition(self, step))
            return
        ring = self._ring
        for before_insert in self._before_insert:
            before_insert(ring, sample)
        ring.insert(sample)
        self._inserted += ring.envs
        for after_insert in self._after_insert:
            after_insert(ring, 1)

    def insert_masked(self, sample: Sample, mask: NDArray[np.bool_]) -> None:
        """Store the transitions of those environments that made one, as :meth:`insert_transition` with ``envs``.

        Where an environment is ahead of another by as many transitions as the storage holds steps, its episode is
        truncated at its newest stored transition, and further ones are dropped until the other has caught up.

        Args:
            sample: a step of all environments, (E, ...).
            mask: (E,) or (E, 1), whether each environment made a transition.

        Raises:
            ValueError: the mask has another shape. Nothing was stored.
        """
        given, mask = np.shape(mask), np.asarray(mask, np.bool_).reshape(-1)
        if given not in ((len(mask),), (len(mask), 1)) or (self.num_envs and len(mask) != self.num_envs):
            raise ValueError(
                f"{type(self).__name__}: a mask has a value for each environment, ({self.num_envs or 'E'},), got the "
                f"shape {given}"
            )
        if self._staging is not None:
            too_far = mask & self._staging.too_far
            if too_far.any():
                self.end_episode(np.flatnonzero(too_far).tolist())
                mask = mask & ~too_far
        envs = np.flatnonzero(mask)
        if len(envs):
            self.insert_transition(nest({path: leaf[envs] for path, leaf in leaves(sample)}), envs.tolist())

    def end_episode(self, envs: Sequence[int] | None = None) -> None:
        """Truncate the running episodes of environments, such as those that were reset by hand.

        TRUNC2 of their newest transitions becomes 1; OBS2 is still bootstrapped from, and the next step begins another
        episode. An environment without a running episode stays as it is.

        Args:
            envs: indices of the environments; all where None.

        Raises:
            IndexError: there is no such environment; nothing was changed.
        """
        self._tell_of_change(rows=True)
        numbers = self._end_staged_episodes(envs)
        ended = self._ring.interrupt(numbers, truncate=True)
        if len(ended):
            for observer in self._observers:
                observer.after_end(self._ring, ended)

    def include_next_actions(self) -> None:
        """Add ACT2 and TAKEN2, the next action, to batches; called for algorithms that need it.

        Raises:
            NotImplementedError: the storage does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know the action that followed a transition; ReplayBuffer and its "
            f"subclasses do"
        )

    def include_returns_to_go(self) -> None:
        """Add RTG, the discounted return to the end of the episode, to batches; called for algorithms that need it.

        It is NaN where the episode has not ended, and where hindsight has relabelled the rewards.

        Raises:
            NotImplementedError: the storage does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know the returns of episodes; ReplayBuffer and its subclasses do"
        )

    def keep_newest_steps(self, steps: int) -> None:
        """Keep at least so many steps for :meth:`newest_steps`, if the storage would not anyway."""

    def newest_steps(self, steps: int) -> Batch:
        """Return the newest steps of all environments, as a batch of sequences.

        Raises:
            NotImplementedError: the storage does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know its newest steps; ReplayBuffer and its subclasses do"
        )

    def before_gradients(self) -> None:
        """Prepare an update phase; on-policy storages compute returns and advantages here."""

    @abstractmethod
    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of batches: dicts of tensors on ``device``, owned by the caller.

        Raises:
            EmptyStorageError: nothing is stored yet; raised by the call, not by the first ``next``.
        """

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Process the result ``info`` of an update with a batch; return it with the storage's metrics added."""
        return dict(info)

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the progress of the run, in environment transitions, before an update phase; schedules follow it."""
        self._tell_of_change()
        self._progress = (steps, target_steps)

    def after_episodes(self, returns: Sequence[float]) -> None:
        """Receive the undiscounted returns of training episodes that have ended."""

    def reset(self) -> None:
        """Drop all transitions; keep the allocated memory.

        Nothing is kept for a recurrent actor, unlike in PyTorchRL, where the last steps stay: sequences of replay
        storages overlap by ``Sequences(overlap=, burn_in=)``, and schemes reset rollouts alone.
        """
        self._tell_of_change(rows=True)
        self._stage(None)
        self._ring.reset()
        self._tell_of_changed_rows()

    # Persistence

    def observe(self, observer: RingObserver) -> None:
        """Register an observer of the ring, to be called after those registered before."""
        self._observers.append(observer)
        self._find_overridden()

    def attach(self, log: StorageLog) -> None:
        """Attach a log that persists the storage and has restored its contents already."""
        self._log = log
        self.observe(log)

    @property
    def position(self) -> Any:
        """The last commit, as plain data that :meth:`roll_back` takes; None without a directory.

        Raises:
            PersistenceError: a pending commit could not be written.
        """
        return None if self._log is None else self._log.position

    def flush(self) -> None:
        """Commit everything, and wait until it is on disk; do nothing without a directory.

        Raises:
            PersistenceError: it could not be written; what is in memory stays usable.
        """
        if self._log is not None:
            self._log.flush(self)

    def roll_back(self, position: Any) -> None:
        """Restore a commit, and drop later ones.

        A commit is lost when steps that it holds are overwritten, unless :meth:`pin` keeps it.

        Raises:
            PersistenceError: the directory does not have the commit; nothing was changed.
            ValueError: there is no directory.
        """
        log = self._log_to("roll back in")
        self._tell_of_change()
        self._stage(None)
        self.load_extra_state(log.roll_back(position))

    def pin(self, position: Any) -> None:
        """Keep the data needed to roll back to a commit, instead of that of the commits pinned before.

        ``state_dict`` pins the commit that it refers to; the commits of the newest :attr:`states_kept` states stay
        pinned.

        Raises:
            PersistenceError: the directory does not have the commit.
            ValueError: there is no directory.
        """
        self._log_to("pin in").pin(self, position)

    def _log_to(self, use: str) -> StorageLog:
        if self._log is None:
            raise ValueError(f"{type(self).__name__}: there is no directory to {use}; make it with directory=")
        return self._log

    def close(self) -> None:
        """Commit everything and release the directory, if there is one; what is in memory can still be read.

        Raises:
            PersistenceError: not everything could be written; the directory is released all the same.
        """
        if self._log is not None:
            self._log.close(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an attribute that does not exist; called for no other."""
            raise missing_attribute(type(self).__name__, name)

    def __del__(self) -> None:
        if getattr(self, "_log", None) is not None:
            self.close()

    # Transfer between workers

    def get_all_buffer_data(self, data_to_cpu: bool = False) -> Batch:
        """Return copies of all fields of all steps, oldest first, as tensors (steps, E, ...)."""
        return steps_of(self._ring, 0, self._ring.live_steps, torch.device("cpu") if data_to_cpu else self.device)

    @property
    def data(self) -> StoredFields:
        """The fields of the stored steps by name, as copies that cannot be written to."""
        return StoredFields(self._ring)

    @overload
    def get_data_slice(self, start: int, end: int) -> Batch: ...
    @overload
    def get_data_slice(self, *, start_pos: int, end_pos: int) -> Batch: ...
    @both_spellings
    def get_data_slice(self, start: int, end: int) -> Batch:
        """Return copies of all fields of the steps [``start``, ``end``), counted from the oldest.

        The parameters may be named ``start_pos`` and ``end_pos``, as in PyTorchRL.

        Raises:
            IndexError: the steps are not all stored.
        """
        return steps_of(self._ring, start, end, self.device)

    def copy_single_tensor(self, key: str, position: int) -> Any:
        """Return a copy of one field of the ``position``-th oldest step, (E, ...), or a dict of such.

        Raises:
            IndexError: the step is not stored.
            KeyError: there is no such field.
        """
        step = steps_of(self._ring, position, position + 1, self.device)
        if key not in step:
            raise KeyError(f"{type(self).__name__}: there is no field {key!r}, only {', '.join(step)}")
        value = step[key]
        return {name: leaf[0] for name, leaf in value.items()} if isinstance(value, dict) else value[0]

    @overload
    def insert_data_slice(self, data: Mapping[str, Any]) -> None: ...
    @overload
    def insert_data_slice(self, *, new_data: Mapping[str, Any]) -> None: ...
    @both_spellings
    def insert_data_slice(self, data: Mapping[str, Any]) -> None:
        """Store consecutive steps (steps, E, ...), as returned by :meth:`get_data_slice`.

        Fields that this storage computes are dropped and computed again. Off-policy storages store a slice with SKIPPED
        (steps, E, 1) as :meth:`insert_masked` does. Where the slice does not continue the stored steps, no episode
        spans the two.

        A slice may have ERRORS (steps, E, 1), TD errors computed by its collector: a prioritised storage uses them
        instead of its initial error (Horgan et al., "Distributed Prioritized Experience Replay", arXiv 1803.00933,
        section 3). Other storages and ``PersistentEpisodicBuffer`` ignore them.

        The parameter may be named ``new_data``, as in PyTorchRL.

        Raises:
            ValueError: fields have different numbers of steps, or errors are not one finite number for each
                transition; nothing was stored.
            SampleError: a field does not fit; the steps before the one refused are stored.
            RuntimeError: as of :meth:`insert_transition`, as are the other errors there; the steps before the one
                refused are stored.
        """
        arrays = {
            path: as_array(leaf, path, type(self).__name__)
            for path, leaf in leaves(data)
            if path[0] not in self.computed_fields and path[0] != ERRORS
        }
        lengths = {text(path): len(array) if array.ndim else 0 for path, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{type(self).__name__}: fields of a slice must be equally long, got {lengths}")
        errors, first_step = slice_errors(data, arrays, type(self).__name__), self._ring.steps
        if not self.on_policy and (SKIPPED,) in arrays:
            self._insert_masked_steps(arrays, errors)
            return
        try:
            self._insert_steps(arrays, next(iter(lengths.values()), 0))
        finally:
            if errors is not None and (stored := self._ring.steps - first_step):
                self._take_errors(first_step * self._ring.envs, errors[: stored * self._ring.envs])

    @overload
    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> int: ...
    @overload
    def insert_single_tensor_slice(
        self, tensor_storage: MutableMapping[str, Any], tensor_key: str, tensor_values: Leaf
    ) -> int: ...
    @appends_to_dict
    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> int:
        """Overwrite one field in the steps from the ``start``-th oldest on, and return how many steps these are.

        As in PyTorchRL, ``insert_single_tensor_slice(tensor_storage, tensor_key, tensor_values)`` appends the values to
        a dict of one's own instead; see :func:`storages.stored_fields.append_values`.

        Args:
            key: any field but observations, hidden states and flags, on which neighbouring steps depend.
            values: (steps, E, ...).
            start: first step to replace, counted from the oldest.

        Raises:
            SampleError: there is no such field, the values do not fit, or the steps are not all stored.
            TypeError: ``key`` is no text, or arguments of the two calls are mixed.
        """
        if not isinstance(key, str):
            raise TypeError(f"{type(self).__name__}.insert_single_tensor_slice: key must be a str, got {key!r}")
        array = as_array(values, (key,), type(self).__name__)
        self._tell_of_change(rows=True)
        self._ring.overwrite((key,), array, start)
        self._tell_of_changed_rows()
        self.flush()
        return len(array)

    # Hyper-parameters, state and size

    @overload
    def update_storage_parameter(self, name: str, value: Any) -> None: ...
    @overload
    def update_storage_parameter(self, *, parameter_name: str, new_parameter_value: Any) -> None: ...
    @both_spellings
    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the storage is in use; its state holds the change, but a directory does not.

        The parameters may be named ``parameter_name`` and ``new_parameter_value``, as in PyTorchRL; unlike there, an
        unknown hyper-parameter is refused.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range, or
                conflicts with others. Nothing was changed.
        """
        self._update_parameters({name: value})

    def _update_parameters(self, values: Mapping[str, Any]) -> None:
        self._tell_of_change()
        super()._update_parameters(values)

    def _use_parameters(self) -> None:
        """Pass the current hyper-parameters on to the parts."""
        self._ring.allow_nonfinite = self.allow_nonfinite

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Seed the random generator that draws rows."""
        self._tell_of_change()
        self._generator = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, random generator included, as tensors and plain data.

        A storage that loads it draws the same next batch. With a directory, the state holds the position of a commit
        instead of the transitions.
        """
        staged = {} if self._staging is None else {"staged": self._staging.state_dict()}
        if self._log is not None:
            return self._log.save(self) | self._changes_to_save() | staged
        return {"ring": self._ring.state_dict()} | self.state_without_contents() | staged

    def state_without_contents(self) -> dict[str, Any]:
        """Return the state without the transitions, for callers that keep these elsewhere."""
        state, priorities = self.extra_state() | self._changes_to_save(), self.priorities
        return state if priorities is None else state | {"priorities": priorities.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; with a directory, the commit that the state refers to.

        Raises:
            ValueError: it is no such state, or was saved with another size or number of environments, or with a
                directory while this storage has none.
            PersistenceError: the directory does not have the commit, or was made for other fields; nothing was changed.
        """
        with self._with_changes_of(state):
            self._load_contents(state)

    @contextmanager
    def _with_changes_of(self, state: Mapping[str, Any]) -> Iterator[None]:
        """Restore changed hyper-parameters, under which the context loads the rest; an error undoes that."""
        before = self.changed_parameters
        self._load_changes(state)
        try:
            yield
        except BaseException:
            self.take_changes(before)
            raise

    def _load_contents(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, except the hyper-parameters."""
        if "position" in state:
            if self._log is None:
                raise ValueError(
                    f"{type(self).__name__}: the state refers to commit {state['position']['commit']} in the directory "
                    f"of the storage that it was saved from; make this one with that directory=, or load what "
                    f"storages.persistent.read_state reads there"
                )
            self.roll_back(state["position"])
            if not state["position"]["commit"]:
                self.load_extra_state(state)
            self._load_staged(self._ring, state)
            return
        refuse_incomplete(state, self.state_names, type(self).__name__)
        if self._log is not None and not state["ring"]["leaves"]:
            self._load_contents({**state, "position": {"commit": 0, "checksum": 0}})
            return
        self._tell_of_change(rows=True)
        if self._log is not None:
            self._log.refuse_other_fields(saved_layout(state["ring"]))
        self._ring.load_state_dict(state["ring"])
        self.load_extra_state(state)
        self._load_staged(self._ring, state)
        self._tell_of_changed_rows()
        self.flush()

    def load_state_without_contents(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_without_contents` returned; the transitions are stored already."""
        with self._with_changes_of(state):
            self._tell_of_change()
            self.load_extra_state(state)

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than transitions and their errors, as JSON-serialisable data."""
        state: dict[str, Any] = {"generator": self._generator.bit_generator.state, "inserted": self._inserted}
        for observer in self._observers:
            if observer is not self._log:
                state |= observer.state_dict()
        return state

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; the ring is restored already.

        Raises:
            ValueError: the random generator is of another kind, or a count is none.
        """
        self._generator.bit_generator.state = state["generator"]
        # Rollouts of versions before 0.2 lack it.
        self._inserted = saved_count(state, "inserted", type(self).__name__, otherwise=0)
        for observer in self._observers:
            observer.load_state_dict(self._ring, state)

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the stored transitions; None where there are none."""
        return None

    def __len__(self) -> int:
        """Number of stored transitions."""
        return self._ring.live_transitions

    @property
    def capacity(self) -> int:
        """Number of transitions that fit; 0 before it is known, ``sys.maxsize`` where the storage grows."""
        ring = self._ring
        if ring.grows:
            return sys.maxsize
        return 0 if ring.max_bytes is not None and not ring.layout else ring.size * ring.envs

    @property
    def inserted(self) -> int:
        """Number of transitions inserted so far, including overwritten ones."""
        return self._inserted

    @property
    def num_envs(self) -> int:
        """Number of environments; 0 before it is known."""
        return self._ring.envs

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated for fields, incomplete steps and observers."""
        staged = 0 if self._staging is None else self._staging.nbytes
        return self._ring.columns.nbytes + staged + sum(observer.nbytes for observer in self._observers)

    def __repr__(self) -> str:
        bound = "any number of" if self._ring.grows else self.capacity
        return f"{type(self).__name__}({len(self)} of {bound} transitions, {self.num_envs} environments)"

    @property
    def layout(self) -> Layout:
        """Shapes and dtypes of the fields of a transition; empty before the first sample."""
        return self._ring_of_steps.layout

    @property
    def ring(self) -> Ring:
        """The ring buffer of the transitions; read-only."""
        return self._ring

    # Internals

    @property
    def _ring_of_steps(self) -> Ring:
        """The ring that inserted steps go to."""
        return self._ring

    def insert_in_part(self, sample: Sample, envs: Sequence[int], store: Callable[[Sample], None]) -> None:
        """Store the transitions of some environments once every environment has delivered as many.

        Args:
            sample: (N, ...); one of a slice may have ERRORS (N, 1).
            envs: (N,), indices of the environments.
            store: stores a step of all environments.
        """
        ring = self._ring_of_steps
        staging, first, errors = self._staging or Staging(ring), ring.steps * ring.envs, None
        if self._errors_of_slice is not None and ERRORS in sample:
            sample = dict(sample)
            errors = as_array(sample.pop(ERRORS), (ERRORS,), ring.owner)
        self._stage(None)
        try:
            of_step = staging.insert(sample, list(envs), errors, store)
        finally:
            self._stage(staging if len(staging) else None)
        if of_step is None:
            return
        if self._errors_of_slice is not None:
            self._errors_of_slice.append(of_step)
        elif np.isfinite(of_step).any():
            self._take_errors(first, of_step)

    def _insert_masked_steps(self, arrays: dict[FieldKey, Array], errors: NDArray[np.floating] | None) -> None:
        """Store the steps of a slice with SKIPPED, and use its errors as those of one slice."""
        made, first = ~arrays.pop((SKIPPED,))[..., 0].astype(bool), self._ring.steps * self._ring.envs
        if errors is not None:
            arrays[(ERRORS,)] = errors.reshape(*made.shape, 1)
        if len(made) and not self._ring.layout:
            # Steps of some of the environments do not show how many there are.
            self.init_tensors(nest({path: array[0] for path, array in arrays.items() if path[0] != ERRORS}))
        stored: list[NDArray[np.float32]] = []
        self._errors_of_slice = stored
        try:
            for step, mask in enumerate(made):
                self.insert_masked(nest({path: array[step] for path, array in arrays.items()}), mask)
        finally:
            self._errors_of_slice = None
            if stored and np.isfinite(of_slice := np.concatenate(stored)).any():
                self._take_errors(first, of_slice)

    def _insert_steps(self, arrays: Mapping[FieldKey, Array], steps: int) -> None:
        """Store the steps of a slice, as many per call as the observers allow."""
        step, block = 0, None
        while step < steps:
            sample = nest({path: array[step] for path, array in arrays.items()})
            stored = 0
            if block is not None:
                for before_insert in self._before_insert:
                    before_insert(self._ring, sample)
                most = min([self._ring.size, *(observer.steps_at_once(self._ring) for observer in self._observers)])
                stored = self._ring.insert_slice(block, step, most)
                if stored:
                    self._inserted += stored * self._ring.envs
                    for after_insert in self._after_insert:
                        after_insert(self._ring, stored)
            if not stored:
                self.insert_transition(sample)
                stored = 1
            if step == 0 and self.stores_slices_whole:
                # The first may have fixed the layout.
                block = self._ring.slice_of(arrays)
            step += stored

    def _take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Use TD errors (N,), NaN if unknown, of the newest transitions, from number ``first`` on; for subclasses."""

    def _end_staged_episodes(self, envs: Sequence[int] | None) -> NDArray[np.int64] | None:
        """Truncate the episodes of environments with buffered transitions there; return the other environments.

        Raises:
            IndexError: there is no such environment; nothing was changed.
        """
        numbers = None if envs is None else checked_environments(envs, self.num_envs, type(self).__name__)
        if self._staging is None:
            return numbers
        given = range(self.num_envs) if numbers is None else numbers.tolist()
        return np.array(self._staging.end_episodes(given), np.int64)

    def _load_staged(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the incomplete steps of a state; ``ring`` receives the complete ones."""
        staging = None
        if "staged" in state:
            staging = Staging(ring)
            staging.load_state_dict(state["staged"])
        self._stage(staging)

    def _stage(self, staging: Staging | None) -> None:
        """Set the buffer of incomplete steps; while there is one, steps of all environments are refused."""
        self._staging = staging
        self._find_overridden()

    def _find_overridden(self) -> None:
        """Collect the observers that override a method for insertions, so that the others cost no time."""

        def overridden(name: str) -> list[Callable[..., None]]:
            plain = getattr(RingObserver, name)
            return [getattr(one, name) for one in self._observers if getattr(type(one), name) is not plain]

        staged = [] if self._staging is None else [self._staging.refuse]
        self._before_insert = [*staged, *overridden("before_insert")]
        self._after_insert = overridden("after_insert")

    def _tell_of_change(self, rows: bool = False) -> None:
        for observer in self._observers:
            observer.before_change(self._ring, rows)

    def _tell_of_changed_rows(self) -> None:
        for observer in self._observers:
            observer.after_change(self._ring)

    def _current(self, hyper_parameter: float | Schedule) -> float:
        """Return the current value of a hyper-parameter that may be a schedule."""
        return value_at(hyper_parameter, *self._progress)

    @property
    def _gamma(self) -> float:
        """The algorithm's current per-step discount factor."""
        return checked_gamma(self.algorithm.gamma, type(self).__name__)

    def _refuse_if_empty(self) -> None:
        ring = self._ring
        # The length alone takes a hundredth of the time of a batch.
        if ring.steps == ring.first and len(self) == 0:
            raise EmptyStorageError(
                f"{type(self).__name__}: no batch can be made of an empty storage; insert transitions first"
            )
