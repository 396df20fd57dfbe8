"""The actor of off-policy algorithms."""

from pytorchrl.agent.actors.actor import Actor


class OffPolicyActor(Actor):
    """Networks with the defaults that suit learning from replayed transitions; see :class:`Actor`."""
