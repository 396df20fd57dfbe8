"""Errors of distributed schemes."""


class WorkerDiedError(RuntimeError):
    """Raised when a worker cannot be made, or dies repeatedly without a result."""
