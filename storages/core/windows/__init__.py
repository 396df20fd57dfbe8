"""From drawn rows to the fields of a batch: n-step returns, sequences, episodes, hindsight."""
