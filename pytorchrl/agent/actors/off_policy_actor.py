"""The actor of off-policy algorithms."""

from pytorchrl.agent.actors.actor import Actor


class OffPolicyActor(Actor):
    """Actor with defaults for learning from replayed transitions; see :class:`Actor`."""
