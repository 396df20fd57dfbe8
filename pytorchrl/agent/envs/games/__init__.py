"""Games with the preprocessing that agents are compared under: Atari and MinAtar."""
