"""Using the results of a run: its policy, its learnt reward, and off-policy evaluation."""
