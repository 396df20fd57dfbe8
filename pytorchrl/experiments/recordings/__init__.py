"""Recording episodes of a policy, as data sets and as videos."""
