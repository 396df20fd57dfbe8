"""Which rows of a ring are live: a counter that only grows says it, and tells a row from the one that overwrote it."""


class LiveRows:
    """Numbers of rows and of the transitions in them.

    Args:
        size: live steps that fit.
        num_envs: environments in a step; None until the first sample says so.
    """

    def __init__(self, size: int, num_envs: int | None) -> None:
        self.size = size
        self.num_envs = num_envs
        self.envs = num_envs or 0
        """As much, 0 as long as it is not known."""
        self.rows = size + 1
        """How many rows there are, live or not."""
        self.first = 0
        """Number of the oldest row since the last reset; rows before it are gone."""
        self.steps = 0
        """Number of the next row."""

    @property
    def oldest(self) -> int:
        """Number of the oldest live row."""
        first, oldest_that_fits = self.first, self.steps - self.size
        # This is asked for several times a batch, and a call of max() takes longer than the rest.
        return first if first > oldest_that_fits else oldest_that_fits

    @property
    def live_steps(self) -> int:
        """How many rows are live."""
        return self.steps - self.oldest

    @property
    def live_transitions(self) -> int:
        """How many transitions are live."""
        return self.live_steps * self.envs

    @property
    def start(self) -> int:
        """Number of the oldest live transition."""
        return self.oldest * self.envs

    @property
    def end(self) -> int:
        """Number of the next transition."""
        return self.steps * self.envs
