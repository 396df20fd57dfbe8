"""The interface of storages for collectors, learners and checkpoints."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from storages.batch_source import BatchSource
from storages.checks import checked_device, checked_gamma
from storages.closing import Closing
from storages.compatibility import (
    adapt_overrides,
    appends_to_dict,
    both_spellings,
    copied_tensor,
    missing_attribute,
    refuse_index,
)
from storages.component.changeable import Changeable
from storages.component.declared import parameter
from storages.component.factory import Factory, StandaloneComponent
from storages.component.hyper_parameters import WholeCount
from storages.core.counts import saved_count
from storages.core.ring.ring import Ring
from storages.core.ring.state import state_of
from storages.insertion import Insertion
from storages.observers import Observers
from storages.other_names import STORAGE_ATTRIBUTES, STORAGE_NAMES
from storages.protocols import Discounting, Environments
from storages.saving import directory_log, load_contents, state_without_contents, undoing_changes
from storages.slices import StoredFields, steps_of
from storages.transition import SKIPPED, Batch, Leaf, Sample

T = TypeVar("T")
P = ParamSpec("P")


class Storage(BatchSource, StandaloneComponent, Changeable, Closing):
    """Base class of storages, which hold transitions and yield batches of them.

    Storages are made by factories, or at once: ``(device, actor, algorithm, envs, size, ...)``, or as in PyTorchRL
    ``(size, device, actor, algorithm, envs, ...)``. Parameters of methods may have the names there, too: ``start_pos``,
    ``end_pos``, ``new_data``, ``parameter_name`` and ``new_parameter_value``.

    Args:
        size: capacity in steps, each of ``num_envs`` transitions; None where the storage grows.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    device: torch.device = parameter(kw_only=False)
    actor: Any = parameter(kw_only=False)
    algorithm: Discounting = parameter(kw_only=False)
    envs: Environments | None = parameter(kw_only=False)
    size: WholeCount | None = parameter(kw_only=False)
    allow_nonfinite: bool = False

    context = ("device", "actor", "algorithm", "envs")
    other_names, other_methods = STORAGE_NAMES, STORAGE_ATTRIBUTES
    role, example = "storage_factory", "size=100_000"
    unchangeable = frozenset({"size"})
    needs_log_probs: ClassVar[bool] = False
    """Whether samples must hold LOGP, and the actor must re-evaluate log-probabilities of actions."""
    needs_action_values: ClassVar[bool] = False
    """Whether the actor must evaluate Q-values of actions."""
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
        theirs. See :mod:`storages.compatibility`.

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
        self.actor, self.algorithm = actor, algorithm
        if algorithm is not None:
            checked_gamma(algorithm.gamma, type(self).__name__)
        self.ring = self.make_ring(envs)
        """The transitions; read-only."""
        self.ring.fields = self.stored_fields
        self.data = StoredFields(self.ring)
        """The fields of the stored steps by name, as copies that cannot be written to."""
        self.inserted = 0
        """Number of transitions inserted so far."""
        self.observers = Observers(self.ring)
        """The parts that are told of changes of the ring."""
        self.insertion = Insertion(self.ring, self.observers)
        self._generator = np.random.default_rng()

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

    def init_tensors(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a sample, without storing it; otherwise the first insertion fixes them."""
        self.ring.init_columns(sample)

    def insert_transition(self, sample: Sample, envs: Sequence[int] | None = None) -> None:
        """Store one step, a transition for each environment.

        Transitions of a subset of the environments are buffered until every environment has delivered its own; only
        then is the step stored, and can be drawn.

        Args:
            sample: arrays or tensors (E, ...) under the names of :mod:`storages.transition`, in any order.
            envs: indices (N,) of the environments of a sample (N, ...); where None, it is of all, in their order.

        Raises:
            IndexError: there is no such environment, or it is named twice.
            RuntimeError: ``envs`` is None while incomplete steps are buffered, an environment is too far ahead, or the
                storage holds a full rollout and was not reset.
            SampleError: a field is missing, unknown, of another shape or dtype than in the first sample, or holds NaN
                or infinity. Nothing of the sample was stored.
            DeviceMemoryError: the fields kept on the device do not fit into its memory; nothing was stored.
            PersistenceError: earlier steps could not be written to the directory; nothing of this one was stored.
        """
        if envs is not None:
            self.insertion.insert_in_part(sample, envs, lambda step: Storage.insert_transition(self, step))
            return
        ring, observers = self.ring, self.observers
        for before_insert in observers.before_insert:
            before_insert(ring, sample)
        ring.insert(sample)
        # An assignment to the attribute would call a function of ours.
        self.__dict__["inserted"] += ring.envs
        for after_insert in observers.after_insert:
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
        self.insertion.insert_masked(self, sample, mask)

    def end_episode(self, envs: Sequence[int] | None = None) -> None:
        """Truncate the running episodes of environments, such as those that were reset by hand.

        TRUNC2 of their newest transitions becomes 1; OBS2 is still bootstrapped from, and the next step begins another.

        Args:
            envs: indices of the environments; all where None.

        Raises:
            IndexError: there is no such environment; nothing was changed.
        """
        self.observers.before_change(rows=True)
        others = self.insertion.end_episodes(envs, self.num_envs)
        ended = self.ring.interrupt(others, truncate=True)
        if len(ended):
            self.observers.after_end(ended)

    def reset(self) -> None:
        """Drop all transitions; keep the allocated memory."""
        self.observers.before_change(rows=True)
        self.insertion.stage(None)
        self.ring.reset()
        self.observers.after_change()

    def get_all_buffer_data(self, data_to_cpu: bool = False) -> Batch:
        """Return copies of all fields of all steps, oldest first, as tensors (steps, E, ...)."""
        return steps_of(self.ring, 0, self.ring.live_steps, torch.device("cpu") if data_to_cpu else self.device)

    @both_spellings
    def get_data_slice(self, start: int, end: int) -> Batch:
        """Return copies of all fields of the steps [``start``, ``end``), counted from the oldest.

        Raises:
            IndexError: the steps are not all stored.
        """
        return steps_of(self.ring, start, end, self.device)

    copy_single_tensor = copied_tensor

    @both_spellings
    def insert_data_slice(self, data: Mapping[str, Any]) -> None:
        """Store consecutive steps (steps, E, ...), as returned by :meth:`get_data_slice`.

        Fields that this storage computes are dropped and computed again. Off-policy storages store a slice with SKIPPED
        (steps, E, 1) as :meth:`insert_masked` does. Where the slice does not continue the stored steps, no episode
        spans the two.

        A slice may have ERRORS (steps, E, 1), TD errors computed by its collector: a prioritised storage uses them
        instead of its initial error (Horgan et al., "Distributed Prioritized Experience Replay", arXiv 1803.00933,
        section 3). Other storages and ``PersistentEpisodicBuffer`` ignore them.

        Raises:
            ValueError: fields have different numbers of steps, or errors are not one finite number for each
                transition; nothing was stored.
            SampleError: a field does not fit; the steps before the one refused are stored, as after the other errors of
                :meth:`insert_transition`.
        """
        self.insertion.insert_slice(self, data)

    @appends_to_dict
    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> int:
        """Overwrite one field in the steps from the ``start``-th oldest on, and return how many steps these are.

        As in PyTorchRL, ``insert_single_tensor_slice(tensor_storage, tensor_key, tensor_values)`` appends the values to
        a dict of one's own instead; see :func:`storages.slices.append_values`.

        Args:
            key: any field but observations, hidden states and flags, on which neighbouring steps depend.
            values: (steps, E, ...).
            start: first step to replace, counted from the oldest.

        Raises:
            SampleError: there is no such field, the values do not fit, or the steps are not all stored.
            TypeError: ``key`` is no text, or arguments of the two calls are mixed.
        """
        steps = self.insertion.overwrite(key, values, start)
        self.flush()
        return steps

    @both_spellings
    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the storage is in use; its state holds the change, but a directory does not.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range, or
                conflicts with others. Nothing was changed.
        """
        self._update_parameters({name: value})

    def _use_parameters(self) -> None:
        """Pass the current hyper-parameters on to the parts."""
        self.observers.before_change()
        self.ring.allow_nonfinite = self.allow_nonfinite

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Seed the random generator that draws rows."""
        self.observers.before_change()
        self._generator = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, random generator included, as tensors and plain data.

        A storage that loads it draws the same next batch. With a directory, the state holds the position of a commit
        instead of the transitions.
        """
        staged = self.insertion.state_dict()
        if (log := self.observers.log) is not None:
            return log.save(self) | self._changes_to_save() | self.observers.tensors() | staged
        return {"ring": state_of(self.ring)} | state_without_contents(self) | staged

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; with a directory, the commit that the state refers to.

        Raises:
            ValueError: it is no such state, or was saved with another size or number of environments, or with a
                directory while this storage has none.
            PersistenceError: the directory does not have the commit, or was made for other fields; nothing was changed.
        """
        with undoing_changes(self):
            self._load_changes(state)
            load_contents(self, state)

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than transitions and their errors, as JSON-serialisable data."""
        counts = {"generator": self._generator.bit_generator.state, "inserted": self.inserted}
        return counts | self.observers.state_dict()

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; the ring is restored already."""
        self._generator.bit_generator.state = state["generator"]
        # Rollouts of versions before 0.2 lack it.
        self.inserted = saved_count(state, "inserted", type(self).__name__, otherwise=0)
        self.observers.load_state_dict(state)

    @property
    def position(self) -> Any:
        """The last commit, as plain data that :meth:`roll_back` takes; None without a directory.

        Raises:
            PersistenceError: a pending commit could not be written.
        """
        return None if self.observers.log is None else self.observers.log.position

    def flush(self) -> None:
        """Commit everything, and wait until it is on disk; do nothing without a directory.

        Raises:
            PersistenceError: it could not be written; what is in memory stays usable.
        """
        if (log := self.observers.log) is not None:
            log.flush(self)

    def roll_back(self, position: Any) -> None:
        """Restore a commit, and drop later ones.

        A commit is lost when steps that it holds are overwritten, unless :meth:`pin` keeps it.

        Raises:
            PersistenceError: the directory does not have the commit; nothing was changed.
            ValueError: there is no directory.
        """
        log = directory_log(self, "roll back in")
        self.observers.before_change()
        self.insertion.stage(None)
        self.load_extra_state(log.roll_back(position))

    def pin(self, position: Any) -> None:
        """Keep the data needed to roll back to a commit, instead of that of the commits pinned before.

        ``state_dict`` pins the commit that it refers to; the commits of the newest :attr:`states_kept` states stay
        pinned.

        Raises:
            PersistenceError: the directory does not have the commit.
            ValueError: there is no directory.
        """
        directory_log(self, "pin in").pin(self, position)

    def close(self) -> None:
        """Commit everything and release the directory, if there is one; what is in memory can still be read.

        Raises:
            PersistenceError: not everything could be written; the directory is released all the same.
        """
        if (log := self.observers.log) is not None:
            log.close(self)

    def __del__(self) -> None:
        if "observers" in vars(self):
            self.close()

    def __len__(self) -> int:
        """Number of stored transitions."""
        return self.ring.live_transitions

    @property
    def capacity(self) -> int:
        """Number of transitions that fit; 0 before it is known, ``sys.maxsize`` where the storage grows."""
        is_unknown = self.ring.limit is not None and not self.ring.layout
        return sys.maxsize if self.ring.grows else 0 if is_unknown else self.ring.size * self.ring.envs

    @property
    def num_envs(self) -> int:
        """Number of environments; 0 before it is known."""
        return self.ring.envs

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated for fields, incomplete steps and observers."""
        return self.ring.columns.nbytes + self.insertion.nbytes + self.observers.nbytes

    def __repr__(self) -> str:
        bound = "any number of" if self.ring.grows else self.capacity
        return f"{type(self).__name__}({len(self)} of {bound} transitions, {self.num_envs} environments)"

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute
        __getitem__ = refuse_index
