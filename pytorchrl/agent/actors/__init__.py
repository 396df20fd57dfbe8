"""Actors: networks whose bodies the user chooses, and whose heads the algorithm chooses."""

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor
from pytorchrl.agent.actors.view import View

__all__ = ["Actor", "OffPolicyActor", "OnPolicyActor", "View"]
