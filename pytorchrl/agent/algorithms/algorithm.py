"""Base class of all algorithms: networks, acting, losses, updates and checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.per_network import refuse_unknown_networks
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms import checks
from pytorchrl.agent.algorithms.checks import SCALED, ActionKind
from pytorchrl.agent.algorithms.compiling import NO_LOSSES, check_compiles, compute, not_compiled
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.parameter_group import ParameterGroup, named_parameters_of
from pytorchrl.agent.algorithms.refusals import ROLE, answer_call, factory_code, new_of_parts, refuse_unused_overrides
from pytorchrl.agent.algorithms.results import ActingStep, Losses, Metrics, Result
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import TrainingState
from pytorchrl.agent.algorithms.untrained import UPDATES_BEFORE, warn_of_untrained
from pytorchrl.agent.algorithms.update_plan import UpdatePlan
from pytorchrl.agent.device import find_device, make_generator, restore_generators, seed_generators
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Exploration, Explorer, best_action
from pytorchrl.agent.optimizers import Adam, Optimizer
from pytorchrl.agent.other_names import ALGORITHM_METHODS, ALGORITHM_NAMES
from pytorchrl.agent.other_names.calls import answering_calls, environment_for
from storages.component.changeable import Changeable
from storages.component.declared import hyper_parameters_of
from storages.component.hyper_parameters import Count, CountOrZero, Positive, UnitInterval
from storages.component.other_names import answer_missing
from storages.component.schedule import Schedule, value_at
from storages.storage import Storage
from storages.transition import Batch


class Algorithm(Changeable, ABC):
    """Base class of all algorithms: trains networks on batches and acts with them.

    A subclass declares its hyper-parameters as annotated attributes with defaults and builds its networks in `build`.
    Most subclasses implement `losses`; those that need more control override `update` or `update_phase`.

    Args:
        gamma: discount factor of one step.
        optimizer: of the networks.
        optimizers: of single parameter groups, by their names, in place of ``optimizer``:
            ``optimizers={"critics": AdamW(weight_decay=1e-2)}``; None for none.
        max_grad_norm: norm that the gradients of each parameter group are clipped to; None does not clip.
        compile: compute losses and gradients by `torch.compile`, on a GPU as CUDA graphs.
        test_every: environment transitions between evaluations, or updates in offline training; 0 for none.
        num_test_episodes: episodes per evaluation.

    Raises:
        TypeError: the explorer does not support the output of the policy, or evaluations do not.
        UnsupportedSpaceError: the algorithm does not support the action space of the environments.
        ValueError: it trains networks that are not the actor's, or by hyper-parameters that it lacks.
    """

    context = ("device", "actor", "envs")
    other_names, other_methods, role = ALGORITHM_NAMES, ALGORITHM_METHODS, ROLE
    unchangeable = frozenset({"optimizer", "optimizers", "compile"})

    actions: ClassVar[ActionKind] = "any"
    """The supported action spaces; of "bounded" and "hybrid" ones, networks see actions scaled to [-1, 1]."""
    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay")}
    """The storages that it learns from, by name; a scheme's ``storage_factory`` is "main"."""
    reads_rewards: ClassVar[bool] = False
    """Whether acting depends on the rewards of the previous steps, given in `Exploration.rewards`."""
    reward_components: ClassVar[Sequence[str] | None] = None
    """Entries of infos that are components of the reward, stored as REWC; a hyper-parameter where learnt from."""
    component_weights: ClassVar[Mapping[str, Any] | None] = None
    """Weights of the components by name, 1 where there is none; likewise."""
    keeps_acting_state: ClassVar[bool] = False
    """Whether greedy actions depend on what is kept of earlier steps in `Exploration.state`."""
    constrained_to_data: ClassVar[bool] = False
    """Whether, learning from data alone, it is kept from preferring actions that the data lack."""
    called_in_training: ClassVar[frozenset[str]] = frozenset()
    """Names of hyper-parameters that are functions which the greedy policy does not call."""
    unused: ClassVar[Mapping[str, str]] = {}
    """Inherited public methods that the class does not call, each with what to override instead."""

    gamma: UnitInterval = 0.99
    optimizer: Optimizer = Adam()
    optimizers: Mapping[str, Optimizer] | None = None
    max_grad_norm: Positive | None = None
    compile: bool = False
    test_every: CountOrZero = 10_000
    num_test_episodes: Count = 10

    if not TYPE_CHECKING:  # for which each attribute would exist
        __new__, __getattr__ = new_of_parts, answer_missing

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unused_overrides(cls)

    @answering_calls(answer_call, by_name=False)
    def __init__(self, device: torch.device | str, actor: Actor, envs: VecEnv) -> None:
        self.check_spaces(envs)
        check_compiles(self)
        self.device, self.actor, self.action_space = find_device(device), actor, envs.action_space
        self.codec = make_codec(envs.action_space, self.device, scaled=self.actions in SCALED)
        """Converts actions between networks, storages and environments."""
        self.steps, self.target_steps, self.training = 0, 1, TrainingState()
        self.generator = make_generator(self.device)
        """Random generator of the updates."""
        self.build()
        checks.check_training(self.training, self, actor)
        refuse_unknown_networks(actor, type(self).__name__)
        checks.check_normalisation_of_layers(actor, type(self).__name__)
        self._sample_output = checks.sample_output(self)
        self._explorer = checks.make_checked_explorer(self, self._sample_output)
        checks.check_greedy_action(self, self._sample_output)
        self.plan = self.update_plan()
        """When update phases are due while collecting."""
        self._follow_schedules()
        self.seed(np.random.SeedSequence())
        self.training.end_build()
        self._assignable = frozenset(hyper_parameters_of(type(self)))

    @classmethod
    def usage(cls) -> str:
        """Return how it is given to a run, as the end of a message about arguments that do not fit."""
        composed = f'prl.compose({factory_code(cls)}, "{environment_for(cls.actions)}")'
        return f"; networks and environments are other parts of a run, such as {composed}"

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse optimisers of torch in place of settings."""
        super().check_arguments(arguments)
        checks.refuse_other_optimizer(arguments.get("optimizer"), cls.__name__)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that those of single groups are optimisers."""
        super().check_hyper_parameters(hyper_parameters)
        checks.refuse_other_optimizers(hyper_parameters.get("optimizers") or {}, cls.__name__)

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """Raise UnsupportedSpaceError if the algorithm does not support the action space of the environments."""
        checks.check_action_space(envs.action_space, cls.actions, cls.__name__)

    @abstractmethod
    def build(self) -> None:
        """Make the networks with `actor.make`, and register them with `train`, `target` and `variable`."""

    @abstractmethod
    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return what the explorer selects actions from: action values, a distribution, or one action per row."""

    @abstractmethod
    def make_explorer(self) -> Explorer:
        """Return the exploration strategy."""

    @abstractmethod
    def update_plan(self) -> UpdatePlan:
        """Return the schedule of update phases while collecting."""

    @abstractmethod
    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the batches of an update phase."""

    @property
    def optional_fields(self) -> Mapping[str, tuple[int, float]]:
        """Fields of :meth:`act` that data lack: the numbers of a row, and the value of all of them in such data."""
        return {}

    def request_fields(self, source: str, storage: Storage) -> None:
        """Let a storage of a source add the fields to its batches that the algorithm needs; called once."""
        self.sources[source].request_fields(storage)

    @not_compiled(NO_LOSSES)
    def losses(self, rows: Rows) -> Losses:
        """Return the losses of a batch; target networks receive no gradients."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no losses, from which updates and gradients are computed; define "
            f"them, or update, in which case gradients cannot be computed separately"
        )

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return losses of other groups, such as an actor's, computed with the weights after the step on `losses`."""
        return None

    def train(
        self,
        name: str,
        *networks: nn.Module,
        lr: str = "lr",
        max_grad_norm: str | None = "max_grad_norm",
        optimizer: Optimizer | None = None,
        by_loss: bool = False,
        shares: Mapping[nn.Module, str] | None = None,
    ) -> ParameterGroup:
        """Register networks made by the actor, which are trained together by one optimiser.

        Args:
            name: of the parameter group, and prefix of the names of its gradients.
            networks: at least one.
            lr: name of the hyper-parameter for the learning rate.
            max_grad_norm: name of the hyper-parameter for the norm that gradients are clipped to; None does not clip.
            optimizer: None takes the hyper-parameter ``optimizer``.
            by_loss: whether all steps are taken by ``stepper.minimise``, which every optimiser supports.
            shares: names of hyper-parameters for some of the networks: the share of the group's steps that they take,
                as by a learning rate that is smaller by this factor.

        Raises:
            ValueError: the optimiser evaluates its loss several times per step, and ``by_loss`` is False.
        """
        optimizer = self._optimizer_of(name, optimizer)
        if not by_loss:
            optimizer.check_takes_gradients(name, type(self).__name__)
        parameters = named_parameters_of(networks)
        shared = {each: share for network, share in (shares or {}).items() for each in network.parameters()}
        return self.training.add_group(ParameterGroup(name, parameters, optimizer, lr, max_grad_norm, shared))

    def variable(self, name: str, initial: float, lr: str, optimizer: Optimizer | None = None) -> ParameterGroup:
        """Register a trainable scalar (1,), such as a temperature, available as ``training.variables[name]``."""
        parameter = nn.Parameter(torch.tensor([initial], device=self.device))
        self.training.variables[name] = parameter
        chosen = self._optimizer_of(name, optimizer)
        return self.training.add_group(ParameterGroup(name, {"value": parameter}, chosen, lr, None))

    def _optimizer_of(self, group: str, of_algorithm: Optimizer | None) -> Optimizer:
        """Return the optimiser of a group: the user's own for it, else the algorithm's for it, else that of all."""
        return (self.optimizers or {}).get(group, of_algorithm or self.optimizer)

    def target(
        self, network: nn.Module, polyak: str = "polyak", every: str | None = None, every_steps: str | None = None
    ) -> Any:
        """Return a target network of a network, which is updated after each update or at intervals.

        Args:
            network: registered by `train` before.
            polyak: name of the hyper-parameter for the weight that the target network keeps; 0 copies the network.
            every: name of the hyper-parameter for the interval between target updates, in updates; None for 1.
            every_steps: likewise, in environment transitions of all collectors together; None counts updates.
        """
        return self.training.add_target(network, polyak, every, every_steps)

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        return self.training.counters["updates"]

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, exploration: Exploration) -> ActingStep:
        """Choose actions in ``E`` environments.

        Args:
            obs: (E, *obs) on the algorithm's device, or a dict of such.
            rhs: recurrent hidden state before ``obs``; None without a memory.
            done: (E, 1) float32, 1 where ``obs`` is the first of an episode.
            exploration: random generators and state for these environments; a deterministic one does not explore.
        """
        with self.actor.acting(noisy=not exploration.deterministic, noise=exploration.noise):
            view = self.actor.view(obs, rhs, done)
            action, fields = self.act(view, exploration)
            env_action = self.codec.to_env(action)
            stored = env_action if self.codec.stores_env_actions else action
            return ActingStep(stored, env_action, view.rhs_after(), fields)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions in the representation of networks, and further fields for the storage."""
        if exploration.deterministic:
            return best_action(self.policy(view, exploration)), {}
        exploration.allowed = None if self.actor.mask is None else partial(self.actor.mask.of, view)
        return self._explorer.act(lambda: self.policy(view, exploration), exploration), {}

    def read(self, batch: Batch) -> Rows:
        """Return a batch as rows."""
        return Rows(batch, self.codec, self.actor.with_float32_observations(batch))

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Run one update phase; yields the metrics of each update."""
        main = sources["main"]
        main.before_gradients()
        for batch in self.batches(main):
            result = self.update(batch)
            yield main.after_gradients(batch, result.info)
            if result.stop:
                break

    def update(self, batch: Batch) -> Result:
        """Update the parameters on one batch."""
        rows = self.read(batch)
        losses = compute(self, self.losses, rows)
        metrics = losses.metrics
        if not losses.stop:
            self.minimise(losses)
            # The new weights have made the features stale that rows cache.
            later = compute(self, self.losses_after_step, rows.without_features())
            if later is not None:
                self.minimise(later)
                metrics = {**metrics, **later.metrics}
            self.end_update()
        return Result(metrics, losses.errors, losses.stop, losses.recurrent_states)

    def minimise(self, losses: Losses) -> None:
        """Take an optimiser step on each loss, with the gradients of their sum."""
        losses.backward()
        for group in losses.of:
            group.step(self)

    def measure(self, sources: Mapping[str, Storage]) -> Metrics:
        """Return further metrics of learning, for update phases that are logged: learning rates and gradient norms.

        It is called after the first update of such a phase, with the contents of the storages still there. Names are
        those of the log, such as "learning/gradient_norm". It must not draw random numbers.
        """
        return self.training.measure()

    def compute_gradients(self, batch: Batch) -> tuple[dict[str, Tensor], Result]:
        """Return copies of the gradients by parameter name, all at the current weights; none if the result stops."""
        rows = self.read(batch)
        losses = compute(self, self.losses, rows)
        if losses.stop:
            return {}, Result(losses.metrics, losses.errors, stop=True)
        losses.backward()
        # Copied before the later losses add to them: that of an actor reaches its critics, unless these are frozen.
        gradients, metrics = losses.copied_gradients(), losses.metrics
        later = compute(self, self.losses_after_step, rows.without_features())
        if later is not None:
            later.backward()
            gradients |= later.copied_gradients()
            metrics = {**metrics, **later.metrics}
        return gradients, Result(metrics, losses.errors, recurrent_states=losses.recurrent_states)

    def apply_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """Take an optimiser step with gradients from this or another process; without gradients, no step."""
        if gradients:
            for group in self.training.set_gradients(gradients, self.device):
                group.step(self)
            self.end_update()

    def end_update(self) -> None:
        """Count the update, and update the target networks that are due."""
        if self.training.count_update() == UPDATES_BEFORE:
            warn_of_untrained(self)
        self.training.update_targets(self, self.steps)

    def get_weights(self) -> dict[str, Tensor]:
        """Return copies of the actor's weights, on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.actor.state_dict().items()}

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights into the actor."""
        self.actor.load_state_dict(weights)

    def update_algorithm_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter in use, as a checkpoint keeps; raise ValueError or TypeError if it cannot change."""
        self._update_parameters({name: value})

    def _use_parameters(self) -> None:
        self._explorer, self.plan = checks.make_checked_explorer(self, self._sample_output), self.update_plan()
        self._follow_schedules()

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the progress of the run, in the scheme's unit, and update scheduled hyper-parameters."""
        self.steps, self.target_steps = steps, target_steps
        self._follow_schedules()

    def current(self, hyper_parameter: float | Schedule) -> float:
        """Return the current value of a hyper-parameter that may be a schedule."""
        return value_at(hyper_parameter, self.steps, self.target_steps)

    def _follow_schedules(self) -> None:
        for group in self.training.groups.values():
            group.stepper.learning_rate = self.current(getattr(self, group.lr_name))

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Seed the random generators of updates and of noise inside networks."""
        seed_generators(self._generators(), seed)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on, as tensors and plain data."""
        return {
            "actor": self.actor.state_dict(),
            "training": self.training.state_dict(),
            "generators": self.random_state(),
            **self._changes_to_save(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; raise ValueError if it is of another algorithm or networks."""
        self._load_changes(state)
        self.training.load_state_dict(state["training"])
        self.actor.load_state_dict(state["actor"])
        self.load_random_state(state["generators"])

    def random_state(self) -> list[Tensor]:
        """Return the states of the random generators of updates and of noise inside networks."""
        return [generator.get_state() for generator in self._generators()]

    def load_random_state(self, states: Sequence[Tensor]) -> None:
        """Restore the state returned by `random_state`."""
        restore_generators(self._generators(), states)

    def _generators(self) -> tuple[torch.Generator, ...]:
        """Return the generators to seed and save; a subclass adds its own."""
        return self.generator, *self.actor.generators
