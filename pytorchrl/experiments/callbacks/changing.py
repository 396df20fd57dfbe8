"""Callbacks that change what is trained: new weights for networks, scheduled hyper-parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytorchrl.agent.algorithms.resetting import reset_networks
from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, CountOrZero, UnitInterval
from storages.component.schedule import Schedule


@dataclass(eq=False)
class ResetNetworks(Callback):
    """Reinitialises the networks at intervals, and keeps the experience, against overfitting to the earliest of it.

    Nikishin et al., "The Primacy Bias in Deep Reinforcement Learning" (arXiv 2205.07802), section 4. With many updates
    per step and SAC it is SR-SAC: D'Oro et al., "Sample-Efficient Reinforcement Learning by Breaking the Replay Ratio
    Barrier" (ICLR 2023).

    All networks of the actor, target networks and dual variables, such as temperatures, take initial weights that are
    drawn from the run's seed and the number of updates; the optimisers forget the moments of what changes. Storages,
    schedules, exploration, the statistics of normalised observations and frozen parameters stay. A reset is made before
    steps are collected, after evaluations and other callbacks, so that these see the trained networks, and the end of a
    run is not reset. It logs "train/resets", their number. Asynchronous workers may send what they began with the old
    weights.

    Args:
        every: updates between resets.
        last_layers: how many layers at the end of each network are reinitialised, for encoders of images, which
            transfer better than what follows them; the head counts as one layer. By the name of a network, as
            ``{"q": 1, "transition": 0}``, it is of this one and its target networks, and others are reinitialised
            whole. None for all.
        keep: weight of the old values in the layers before these, ``keep * old + (1 - keep) * initial``. With
            ``last_layers=0`` and less than 1, all layers are shrunk and perturbed (Ash and Adams, arXiv 1910.08475).

    Raises:
        ValueError: nothing would be reset, or ``keep`` is given without ``last_layers``.
    """

    every: Count
    last_layers: CountOrZero | Mapping[str, CountOrZero] | None = None
    keep: UnitInterval = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.last_layers, Mapping):
            for name, number in self.last_layers.items():
                conform_named(number, CountOrZero, f"ResetNetworks: last_layers[{name!r}]")
        if self.last_layers is None and self.keep != 1:
            raise ValueError(
                f"ResetNetworks: keep={self.keep:g} applies to the layers before the last ones; give last_layers, such "
                f"as last_layers=0 to shrink and perturb all layers"
            )
        if self.last_layers == 0 and self.keep == 1:
            raise ValueError(
                "ResetNetworks: last_layers=0 and keep=1 reset nothing; give at least one layer, or a smaller keep"
            )
        self._counted_from: int | None = None
        """Number of updates from which the interval is counted; None before the first step."""
        self._resets = 0

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Check that there are networks to reset.

        Raises:
            CompositionError: the algorithm trains no networks.
        """
        if isinstance(self.last_layers, Mapping):
            networks = learner.scheme.actor.networks
            if unknown := sorted(self.last_layers.keys() - networks.keys()):
                raise CompositionError(
                    f"ResetNetworks: last_layers names {', '.join(unknown)}; the networks of "
                    f"{type(learner.scheme.algorithm).__name__} are {', '.join(networks)}"
                )
        # An algorithm may train a network without an optimiser, such as by natural gradients.
        if not any(parameter.requires_grad for parameter in learner.scheme.actor.networks.parameters()):
            raise CompositionError(
                f"ResetNetworks: {type(learner.scheme.algorithm).__name__} trains no networks; leave it out"
            )

    def on_step_begin(self, learner: TrainingRun) -> None:
        """Reset, if it is due."""
        scheme = learner.scheme
        updates = scheme.algorithm.updates
        if self._counted_from is None:
            # A run that began from another's weights has that one's updates.
            self._counted_from = updates
        intervals = (updates - self._counted_from) // self.every
        if not intervals:
            return
        reset_networks(scheme.algorithm, scheme.make_algorithm(updates), self.last_layers, self.keep)
        self._counted_from += intervals * self.every
        self._resets += 1
        learner.log({"train/resets": self._resets})

    def state_dict(self) -> dict[str, Any]:
        """Return the number of updates from which the interval is counted, and the number of resets."""
        return {"counted_from": self._counted_from, "resets": self._resets}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._counted_from, self._resets = state["counted_from"], state["resets"]


@dataclass(eq=False)
class SetHyperParameter(Callback):
    """Sets a hyper-parameter by a schedule, where the hyper-parameter itself does not accept one.

    Args:
        of: the object that has the hyper-parameter; "storage" is the main storage.
        name: of the hyper-parameter, one that may change during a run.
        schedule: its values, which are rounded for an int.
    """

    of: Literal["algorithm", "storage"]
    name: str
    schedule: Schedule

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Set the first value; raises if the hyper-parameter does not exist or cannot change."""
        self.on_step(learner)

    def on_step(self, learner: TrainingRun) -> None:
        """Set the current value."""
        scheme = learner.scheme
        part = scheme.algorithm if self.of == "algorithm" else scheme.storage
        value = self.schedule.at(scheme.steps, learner.target_steps)
        present = getattr(part, self.name, None)
        if isinstance(present, int) and not isinstance(present, bool):
            value = round(value)
        if value == present:
            return
        if self.of == "algorithm":
            scheme.algorithm.update_algorithm_parameter(self.name, value)
        else:
            scheme.storage.update_storage_parameter(self.name, value)
