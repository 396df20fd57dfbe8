"""Frames like those of Atari's Pong in grey and 84 x 84: a constant background, two paddles, a ball.

The compressed size of frames depends on their content; these need no ROM, and are the same on every machine.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SIDE = 84
_BACKGROUND, _WALL, _SCORE, _THEIRS, _OURS, _BALL = 87, 236, 200, 147, 148, 236
_TOP, _BOTTOM = 14, 77
_LEFT, _RIGHT = 9, 73
_PADDLE, _PADDLE_SPEED = 8, 2
_WINS_AT = 21


class PongLike(gym.Env[NDArray[np.uint8], int]):
    """Pong against an opponent who follows the ball, most of the time; an episode is won with 21 points.

    Actions are Pong's six, of which two move the paddle up and two down.
    """

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = gym.spaces.Discrete(6)  # type: ignore[assignment]
        self._background = np.full((SIDE, SIDE), _BACKGROUND, np.uint8)
        self._background[_TOP - 2 : _TOP] = self._background[_BOTTOM : _BOTTOM + 2] = _WALL

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin a game at 0 to 0."""
        super().reset(seed=seed)
        self._points = [0, 0]
        self._paddles = np.full(2, (_TOP + _BOTTOM - _PADDLE) // 2)
        self._serve(1)
        return self._frame(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move the paddle and let the ball fly on."""
        theirs = np.sign(self._ball[0] - self._paddles[0] - _PADDLE // 2) * (self.np_random.random() < 0.7)
        ours = {2: -1, 4: -1, 3: 1, 5: 1}.get(int(action), 0)
        moved = self._paddles + _PADDLE_SPEED * np.array([theirs, ours]).astype(int)
        self._paddles = np.clip(moved, _TOP, _BOTTOM - _PADDLE)
        self._ball = self._ball + self._speed
        if not _TOP <= self._ball[0] <= _BOTTOM - 2:
            self._ball[0], self._speed[0] = np.clip(self._ball[0], _TOP, _BOTTOM - 2), -self._speed[0]
        reward = 0.0
        for side, (at, away) in enumerate(((_LEFT, 1), (_RIGHT, -1))):
            if away * (self._ball[1] - at) > 0 or away * self._speed[1] > 0:
                continue
            if -2 < self._ball[0] - self._paddles[side] < _PADDLE:
                self._speed = np.array([self.np_random.uniform(-2, 2), away * self.np_random.uniform(1.5, 2.5)])
            else:
                reward = float(away)
                self._points[1 - side] += 1
                self._serve(-away)
        return self._frame(), reward, max(self._points) >= _WINS_AT, False, {}

    def _serve(self, direction: int) -> None:
        self._ball = np.array([self.np_random.uniform(_TOP, _BOTTOM - 2), SIDE / 2])
        self._speed = np.array([self.np_random.uniform(-1.5, 1.5), 1.8 * direction])

    def _frame(self) -> NDArray[np.uint8]:
        frame = self._background.copy()
        for side, points in enumerate(self._points):
            # Scores, as bars: digits would not be harder to compress.
            frame[3:8, 12 + 36 * side : 12 + 36 * side + points] = _SCORE
        for at, top, colour in ((_LEFT - 2, self._paddles[0], _THEIRS), (_RIGHT, self._paddles[1], _OURS)):
            frame[top : top + _PADDLE, at : at + 2] = colour
        row, column = int(self._ball[0]), int(self._ball[1])
        frame[row : row + 2, column : column + 2] = _BALL
        return frame
