"""Incremental index of episodes: the first and last step of each row's episode, and the starts that may be drawn.

``first[row]`` is the number of the first step of a row's episode, ``last[row]`` that of its last step, where it ended
or was interrupted, :data:`OPEN` while it runs. Both are (slots, E); step ``t`` lies in slot ``t % slots``.

``starts[bounds[0] : bounds[1]]`` are the numbers of the first transitions of episodes, or of pieces of ``longest``
steps, that may be drawn, in increasing order.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel

OPEN = -1
ENDLESS = 2**62
"""The ``longest`` for which no episode is cut."""


@kernel
def add_steps(
    final_numbers: NDArray[np.int32],
    begin: int,
    end: int,
    oldest: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Index the steps [``begin``, ``end``), after those that are indexed.

    Args:
        final_numbers: (slots, E) int32, not negative where an episode ended or was interrupted.
        begin: number of the first step.
        end: number after the newest.
        oldest: number of the oldest live step.
        first: written.
        last: written.
    """
    slots, num_envs = first.shape
    for step in range(begin, end):
        slot, before = step % slots, (step - 1) % slots
        for env in range(num_envs):
            last[slot, env] = OPEN
            if step == oldest:
                first[slot, env] = step
            elif final_numbers[before, env] < 0:
                first[slot, env] = first[before, env]
            else:
                first[slot, env] = step
                for member in range(max(first[before, env], oldest), step):
                    last[member % slots, env] = step - 1


@kernel
def piece_begins(first: int, step: int, longest: int) -> int:
    """Return the first step of the piece that contains ``step``, in an episode that began at step ``first``."""
    return step - (step - first) % longest


@kernel
def add_whole(
    begin: int,
    end: int,
    oldest: int,
    first: NDArray[np.int64],
    begins: NDArray[np.bool_],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    longest: int,
    starts: NDArray[np.int64],
    bounds: NDArray[np.int64],
    added: NDArray[np.int64],
) -> int:
    """Index the starts in the steps [``begin``, ``end``), where only whole episodes are drawn.

    An episode is inserted in the order of starts. That moves the starts of episodes that began while it ran and have
    ended, so that the amortised cost of a step is proportional to the number of environments.

    Args:
        begin: number of the first step.
        end: number after the newest.
        oldest: number of the oldest live step, after all of these were inserted.
        first: (slots, E), with the new steps indexed.
        begins: (slots, E), where an episode begins.
        terminated: (slots, E), where one terminated.
        truncated: (slots, E), where one was truncated.
        longest: maximum number of steps in a piece.
        starts: written; must have room for E more for each step.
        bounds: written.
        added: (steps * E,), written: the new starts.

    Returns:
        Number of new starts.
    """
    slots, num_envs = first.shape
    count = 0
    while bounds[0] < bounds[1] and starts[bounds[0]] < oldest * num_envs:
        bounds[0] += 1
    for step in range(begin, end):
        slot = step % slots
        for env in range(num_envs):
            begun = first[slot, env]
            start = piece_begins(begun, step, longest)
            ended = terminated[slot, env] or truncated[slot, env] or step - start + 1 == longest
            # A piece after the first one need not begin an episode.
            whole = ended and start >= oldest and (start > begun or begins[start % slots, env])
            if whole:
                number, place = start * num_envs + env, bounds[1]
                while place > bounds[0] and starts[place - 1] > number:
                    starts[place] = starts[place - 1]
                    place -= 1
                starts[place] = number
                bounds[1] += 1
                added[count] = number
                count += 1
    return count


@kernel
def add_parts(
    begin: int,
    end: int,
    oldest: int,
    first: NDArray[np.int64],
    longest: int,
    starts: NDArray[np.int64],
    bounds: NDArray[np.int64],
    added: NDArray[np.int64],
    moved: NDArray[np.int64],
) -> tuple[int, int]:
    """Index starts as :func:`add_whole`, where stored parts of episodes may be drawn, too.

    The first E starts are always those of the oldest step, where partly overwritten episodes begin.

    Args:
        begin: number of the first step.
        end: number after the newest.
        oldest: number of the oldest live step.
        first: (slots, E), with the new steps indexed.
        longest: maximum number of steps in a piece.
        starts: written; must have room for E more for each step.
        bounds: written.
        added: (E,), written: starts that are new with the newest step.
        moved: (E,), written: starts that moved by a step, because the oldest step was overwritten.

    Returns:
        Numbers of new and of moved starts, with the newest step.
    """
    slots, num_envs = first.shape
    num_added, num_moved = 0, 0
    for step in range(begin, end):
        num_added, num_moved = 0, 0
        if step == oldest:
            bounds[0] = bounds[1]
        elif starts[bounds[0]] < oldest * num_envs:
            bounds[0] += num_envs
            while bounds[0] < bounds[1] and starts[bounds[0]] < (oldest + 1) * num_envs:
                bounds[0] += 1
            bounds[0] -= num_envs
            for env in range(num_envs):
                number = oldest * num_envs + env
                starts[bounds[0] + env] = number
                if piece_begins(first[oldest % slots, env], oldest, longest) < oldest:
                    moved[num_moved] = number
                    num_moved += 1
        for env in range(num_envs):
            if step == oldest or piece_begins(first[step % slots, env], step, longest) == step:
                starts[bounds[1]] = added[num_added] = step * num_envs + env
                bounds[1] += 1
                num_added += 1
    return num_added, num_moved
