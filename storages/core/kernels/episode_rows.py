"""Which rows belong to one episode, and which episodes may be drawn, kept up to date step by step.

``first[row]`` is the number of the step in which a row's episode began, ``last[row]`` that of the step which it ended
or broke off with, :data:`OPEN` while it goes on. Both are (slots, E); step ``t`` lies in slot ``t % slots``.

``starts[bounds[0] : bounds[1]]`` are numbers of the transitions that episodes begin with, or pieces of ``longest``
steps of episodes, in rising order: those that may be drawn.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel

OPEN = -1
ENDLESS = 2**62
"""A ``longest`` that cuts nothing."""


@kernel
def add_steps(
    final_numbers: NDArray[np.int32],
    begin: int,
    end: int,
    oldest: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Index the steps from ``begin`` to before ``end``, behind those that are known.

    Args:
        final_numbers: (slots, E) int32, not negative where an episode ended or broke off.
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
    """Number of the step that a step's piece begins with, in an episode that began in step ``first``."""
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
    """Index the steps from ``begin`` to before ``end``, where only whole episodes are drawn.

    An episode is put where it belongs, behind those that began before it: as many are moved as began while it ran, so
    that a step costs no more, over time, than there are environments.

    Args:
        begin: number of the first step.
        end: number after the newest.
        oldest: number of the oldest live step, after all of these were inserted.
        first: (slots, E), the steps taken up in it.
        begins: (slots, E), where an episode begins.
        terminated: (slots, E), where one terminated.
        truncated: (slots, E), where a limit cut one.
        longest: steps of a piece.
        starts: written; must have room for E more for each step.
        bounds: written.
        added: (steps * E,), written: those of ``starts`` that are new.

    Returns:
        How many are new.
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
            # What goes on from another piece need not begin an episode.
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
    """As :func:`add_whole`, where the stored rest of an episode may be drawn, too.

    The first E starts are always those of the oldest step: what is left of an episode whose first steps were
    overwritten begins there.

    Args:
        begin: number of the first step.
        end: number after the newest.
        oldest: number of the oldest live step.
        first: (slots, E), the steps taken up in it.
        longest: steps of a piece.
        starts: written; must have room for E more for each step.
        bounds: written.
        added: (E,), written: those of ``starts`` that are new with the newest step.
        moved: (E,), written: those that were a step earlier, the oldest then.

    Returns:
        How many are new, and how many moved, with the newest step.
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
