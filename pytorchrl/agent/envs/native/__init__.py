"""Vector environments that step all of their environments themselves."""
