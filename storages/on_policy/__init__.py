"""Storages that hold a rollout of the current policy."""

from storages.on_policy.gae_buffer import GAEBuffer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.on_policy.vtrace_buffer import VTraceBuffer

__all__ = ["GAEBuffer", "VTraceBuffer", "VanillaOnPolicyBuffer"]
