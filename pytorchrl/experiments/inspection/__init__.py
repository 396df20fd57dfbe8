"""Read-only inspection of a run's storage, its transitions and their episodes."""
