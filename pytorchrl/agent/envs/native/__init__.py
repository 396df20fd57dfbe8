"""Native vector environments, which step all their environments themselves."""
