"""Trial of a policy on sample observations, so that misfits are refused when an algorithm is made."""

from typing import TYPE_CHECKING, Any

import torch

from pytorchrl.agent.actors.encoders import some_observations
from pytorchrl.agent.explorers import Exploration, Explorer, best_action

if TYPE_CHECKING:
    from pytorchrl.agent.actors.view import View
    from pytorchrl.agent.algorithms.algorithm import Algorithm

_ROWS = 2


def sample_output(algorithm: "Algorithm") -> Any:
    """Return the output of the policy for sample observations; None on the meta device, where nothing acts.

    Raises:
        ValueError: the policy ignores the action mask of the actor.
    """
    # Torch imports a thousand modules to compute on the meta device.
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
