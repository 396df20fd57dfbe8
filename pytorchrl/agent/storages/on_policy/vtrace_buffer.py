"""Re-export of :class:`VTraceBuffer`."""

from storages.on_policy.vtrace_buffer import VTraceBuffer

__all__ = ["VTraceBuffer"]
