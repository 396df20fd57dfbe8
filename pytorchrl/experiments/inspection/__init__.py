"""What a run learns from, looked into without changing it: its storage, single transitions, their episodes."""
