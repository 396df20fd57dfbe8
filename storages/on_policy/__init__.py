"""Rollout storages for on-policy algorithms."""

from storages.on_policy.average_reward_buffer import AverageRewardBuffer
from storages.on_policy.gae_buffer import GAEBuffer
from storages.on_policy.lambda_return_buffer import LambdaReturnBuffer
from storages.on_policy.retrace_buffer import RetraceBuffer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.on_policy.vtrace_buffer import VTraceBuffer

__all__ = [
    "AverageRewardBuffer",
    "GAEBuffer",
    "LambdaReturnBuffer",
    "RetraceBuffer",
    "VTraceBuffer",
    "VanillaOnPolicyBuffer",
]
