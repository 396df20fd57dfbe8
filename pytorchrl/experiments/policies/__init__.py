"""What a run has learnt, in use: its policy, its reward, and what its policy is worth."""
