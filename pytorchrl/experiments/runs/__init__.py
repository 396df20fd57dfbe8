"""A run on disk: its folder, its checkpoints, and its composition as plain data, from which it is rebuilt."""
