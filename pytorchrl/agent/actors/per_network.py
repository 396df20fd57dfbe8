"""Settings of single networks, in place of those that an actor has for all."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytorchrl.agent.actors.stacked_memory import OF_ONE_NETWORK
from storages.component.annotations import conform_named
from storages.component.declared import hyper_parameters_of
from storages.component.other_names import unknown_names

SETTINGS = (
    "hidden_sizes",
    "body",
    "activation",
    "initialisation",
    "feature_extractor",
    "dueling",
    "dueling_size",
    "noisy",
    "noisy_sigma",
    "layer_norm",
    "batch_norm",
    "late_action",
    "dropout",
    "initial_log_std",
    *OF_ONE_NETWORK,
)
"""Hyper-parameters of actors that one network may have to itself."""


def check_per_network(per_network: Mapping[str, Mapping[str, Any]], actor: type[Any], shared_body: bool) -> None:
    """Check the settings of single networks as the actor's own are checked.

    Raises:
        ValueError: a setting is unknown or of all networks together, or its value is not admitted; or the networks
            share their body.
    """
    declared, owner = hyper_parameters_of(actor), actor.__name__
    if per_network and shared_body:
        raise ValueError(f"{owner}: with shared_body=True all networks have one body; leave out per_network")
    for network, settings in per_network.items():
        for name, value in settings.items():
            if name not in SETTINGS:
                near = difflib.get_close_matches(name, SETTINGS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"choose among {', '.join(SETTINGS)}"
                of_all = f"{name} is of all networks together" if name in declared else f"there is no setting {name!r}"
                raise ValueError(f"{owner}: per_network[{network!r}]: {of_all}; {hint}")
            conform_named(value, declared[name].annotation, f"{owner}: per_network[{network!r}]: {name}")


def check_late_action(actor: Any) -> None:
    """Check that an actor has as many hidden layers as ``late_action``."""
    if actor.late_action > len(actor.hidden_sizes):
        raise ValueError(
            f"{type(actor).__name__}: late_action must be at most the number of hidden_sizes, "
            f"{len(actor.hidden_sizes)}, got {actor.late_action}"
        )


def values_of_setting(actor: Any, name: str) -> list[Any]:
    """Return the value of a setting for all networks, and those of single networks."""
    of_networks = (actor.per_network or {}).values()
    return [getattr(actor, name), *(settings[name] for settings in of_networks if name in settings)]


@contextmanager
def settings_of_network(actor: Any, network: str) -> Iterator[None]:
    """Return a context in which an actor has the settings of one of its networks."""
    settings = (actor.per_network or {}).get(network)
    if not settings:
        yield
        return
    before = {name: getattr(actor, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(actor, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(actor, name, value)


def refuse_unknown_networks(actor: Any, owner: str) -> None:
    """Refuse settings of networks that the algorithm has not made.

    Raises:
        ValueError: the message names those that it has.
    """
    unknown = [name for name in actor.per_network or {} if name not in actor.networks]
    if unknown:
        place = f"{type(actor).__name__}: per_network of {owner}"
        raise ValueError(unknown_names(place, "network", unknown, actor.networks))
