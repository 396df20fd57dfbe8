"""The ring buffer: columns of transitions, in which each observation is stored once."""
