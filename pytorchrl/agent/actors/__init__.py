"""Actors: networks whose bodies the user chooses, and whose heads the algorithm chooses."""

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.presets import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.actors.view import View

__all__ = ["Actor", "OffPolicyActor", "OnPolicyActor", "View"]
