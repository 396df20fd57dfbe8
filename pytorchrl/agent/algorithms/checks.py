"""Checks of an algorithm when it is made: of action space, trained networks, policy and explorer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from pytorchrl.agent.actors.encoders import some_observations
from pytorchrl.agent.algorithms.training import TrainingState
from pytorchrl.agent.envs.spaces import HybridBox, UnsupportedSpaceError, check_real_actions, check_widths
from pytorchrl.agent.explorers import Exploration, Explorer, best_action
from pytorchrl.agent.optimizers import Optimizer
from storages.component.other_names import unknown_names

if TYPE_CHECKING:
    from pytorchrl.agent.actors.actor import Actor
    from pytorchrl.agent.actors.view import View
    from pytorchrl.agent.algorithms.algorithm import Algorithm


def check_training(training: TrainingState, algorithm: object, actor: nn.Module) -> None:
    """Check what was registered, once the algorithm is built.

    Raises:
        ValueError: a trained network is not among the actor's, the algorithm has no hyper-parameter of a name
            that was given, ``max_grad_norm`` would clip nothing, or ``optimizers`` names a group that there is not.
    """
    owner, names = type(algorithm).__name__, {name for target in training.targets.values() for name in target.names}
    saved = {id(parameter) for parameter in (*actor.parameters(), *training.variables.values())}
    for group in training.groups.values():
        names |= {group.lr_name, group.max_grad_norm_name, *group.shares.values()}
        if any(id(parameter) not in saved for parameter in group.parameters.values()):
            raise ValueError(
                f"{owner}: the networks trained as {group.name!r} are not among the actor's, so that checkpoints "
                f"would lack their weights; make them by self.actor.make, or add them by self.actor.add"
            )
    for name in sorted(filter(None, names)):
        if not hasattr(algorithm, name):
            raise ValueError(
                f"{owner}: what it trains needs a hyper-parameter {name!r}, which it lacks; declare it as an "
                f"annotated attribute, such as {name}: float = ..., or name another in train or target"
            )
    unknown = [name for name in getattr(algorithm, "optimizers", None) or {} if name not in training.groups]
    if unknown:
        raise ValueError(unknown_names(f"{owner}: optimizers", "parameter group", unknown, training.groups))
    clips = any(group.max_grad_norm_name == "max_grad_norm" for group in training.groups.values())
    if not clips and (norm := getattr(algorithm, "max_grad_norm", None)) is not None:
        raise ValueError(
            f"{owner} takes no step whose gradients could be clipped, got max_grad_norm={norm}; leave it None"
        )


def check_normalisation_of_layers(actor: "Actor", algorithm: str) -> None:
    """Check that a network has layers that ``layer_norm`` or ``batch_norm`` normalises.

    Raises:
        ValueError: none has, as with ``hidden_sizes=()``.
    """
    for name, kind in (("layer_norm", nn.LayerNorm), ("batch_norm", nn.BatchNorm1d)):
        if getattr(actor, name) and not any(isinstance(module, kind) for module in actor.modules()):
            raise ValueError(
                f"{type(actor).__name__}: {name}=True normalises hidden layers of fully connected networks, but the "
                f"networks of {algorithm} have none with hidden_sizes={tuple(actor.hidden_sizes)}; give hidden_sizes "
                f"a layer, or leave out {name}"
            )


def refuse_other_optimizer(optimizer: Any, owner: str) -> None:
    """Check that a value of ``optimizer``, if there is one, is an optimiser's setting.

    Raises:
        ValueError: the message names the value and such a setting.
    """
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ValueError(
            f'{owner}: optimizer must be an Optimizer, such as prl.Adam(), or prl.TorchOptimizer("Adagrad") for one '
            f"of torch, got {optimizer!r}"
        )


def refuse_other_optimizers(optimizers: Mapping[str, Any], owner: str) -> None:
    """Check that the values of ``optimizers`` are optimisers.

    Raises:
        ValueError: the message names the group and the value.
    """
    for group, optimizer in optimizers.items():
        if not isinstance(optimizer, Optimizer):
            raise ValueError(
                f"{owner}: optimizers[{group!r}] must be an optimiser, such as AdamW(weight_decay=1e-2), got "
                f"{optimizer!r}"
            )


ActionKind: TypeAlias = Literal["any", "discrete", "box", "bounded", "hybrid"]
"""Any space, Discrete, Box, Box with finite bounds, or such a Box of choices and numbers that JoinActions made; a Box
must be of floating-point numbers."""
SCALED: frozenset[ActionKind] = frozenset({"bounded", "hybrid"})
"""Kinds with finite bounds: networks see actions scaled to [-1, 1]."""


def check_action_space(space: gym.Space[Any], kind: ActionKind, algorithm: str) -> None:
    """Check that an algorithm supports an action space.

    Raises:
        UnsupportedSpaceError: it does not; the message names the space and an alternative.
    """
    if kind == "discrete" and not isinstance(space, spaces.Discrete):
        several = isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary)
        way_out = "PPO learns several at once, wrappers=['FlattenAction'] enumerates their combinations"
        raise UnsupportedSpaceError(
            f"{algorithm} needs a Discrete action space, the environments have {space}; "
            f"{way_out if several else 'SAC and PPO act in a Box'}"
        )
    if kind == "hybrid" and not (isinstance(space, HybridBox) and space.choices):
        raise UnsupportedSpaceError(
            f"{algorithm} needs actions of discrete choices and continuous parameters, which wrappers=['JoinActions'] "
            f"joins from a Dict or a Tuple, the environments have {space}; TD3 and SAC act in any Box with finite "
            f"bounds, DQN and PPO choose among Discrete actions"
        )
    if kind in ("box", "bounded") and not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(
            f"{algorithm} needs a Box action space, the environments have {space}; DQN and PPO choose among Discrete "
            f"actions, PPO several at once"
        )
    if isinstance(space, spaces.Box):
        check_real_actions(space, algorithm)
        if kind in SCALED and not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            raise UnsupportedSpaceError(
                f"{algorithm} needs finite bounds of every action, the environments have {space}; "
                f"wrappers=[('BoundAction', {{'low': -1.0, 'high': 1.0}})] gives bounds, PPO needs none"
            )
        if kind in SCALED:
            check_widths(space, algorithm)


_ROWS = 2


def sample_output(algorithm: "Algorithm") -> Any:
    """Return the output of the policy for sample observations; None on the meta device, where nothing acts.

    Raises:
        ValueError: the policy ignores the action mask of the actor.
    """
    # Torch imports many modules to compute on the meta device.
    if algorithm.device.type == "meta":
        return None
    mask = algorithm.actor.mask
    with algorithm.actor.acting(noisy=False):
        output = algorithm.policy(_sample_view(algorithm), _exploration(algorithm, deterministic=False))
        if mask is not None and (best_action(output).cpu() != mask.only_allowed).any():
            raise ValueError(
                f"{type(algorithm).__name__}: its policy ignores action_mask={mask.name!r} of the actor; remove the "
                f"mask, or take an algorithm whose policy is a network of Actor.make, such as DQN or PPO"
            )
        return output


def make_checked_explorer(algorithm: "Algorithm", output: Any) -> Explorer:
    """Return the explorer of an algorithm.

    Args:
        algorithm: makes it.
        output: as of :func:`sample_output`.

    Raises:
        TypeError: it does not support the output of the policy.
    """
    explorer = algorithm.make_explorer()
    if output is None:
        return explorer
    try:
        # Some outputs are evaluated lazily, such as quantiles at drawn fractions.
        with torch.inference_mode():
            explorer.check_output(output)
    except TypeError as error:
        raise TypeError(f"{type(algorithm).__name__}: {error}") from None
    return explorer


def check_greedy_action(algorithm: "Algorithm", output: Any) -> None:
    """Refuse a policy without a greedy action, which the first evaluation would need.

    Args:
        algorithm: evaluated unless its ``test_every`` is 0.
        output: as of :func:`sample_output`.

    Raises:
        TypeError: there is none.
    """
    if output is None or not algorithm.test_every:
        return
    with algorithm.actor.acting(noisy=False):
        try:
            best_action(output)
        except TypeError:
            # An `act` of a user's may choose greedy actions in another way.
            try:
                algorithm.act(_sample_view(algorithm), _exploration(algorithm, deterministic=True))
            except TypeError as error:
                raise TypeError(
                    f"{type(algorithm).__name__}: {error}; without evaluations, test_every=0, none is needed"
                ) from None


def _sample_view(algorithm: "Algorithm") -> "View":
    actor = algorithm.actor
    if actor.mask is None:
        obs = some_observations(actor.observation_space, _ROWS, algorithm.device)
    else:
        obs = actor.mask.trials(some_observations(actor.observation_space, 1, algorithm.device))
    return actor.view(obs, actor.initial_memory(_ROWS), torch.ones((_ROWS, 1), device=algorithm.device))


def _exploration(algorithm: "Algorithm", *, deterministic: bool) -> Exploration:
    return Exploration(algorithm.codec, _ROWS, algorithm.device, seed=0, deterministic=deterministic)
