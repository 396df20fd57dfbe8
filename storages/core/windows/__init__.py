"""What a batch holds of the rows that were drawn: one step, n steps, sequences, episodes, other goals."""
