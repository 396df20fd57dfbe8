"""Re-export of :class:`VanillaOnPolicyBuffer`."""

from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer

__all__ = ["VanillaOnPolicyBuffer"]
