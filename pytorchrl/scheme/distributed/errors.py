"""Errors of schemes whose work is done by several processes."""


class WorkerDiedError(RuntimeError):
    """A worker that cannot be made, or workers that die again and again before they have done anything."""
