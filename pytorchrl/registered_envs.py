"""Ids of the toolkit's environments in gymnasium, whose modules are imported when one is made."""

import gymnasium as gym

_PROBLEMS = "pytorchrl.agent.envs.problems"
_GAMES = "pytorchrl.agent.envs.games"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def _register() -> None:
    gym.register("pytorchrl/BitFlipping-v0", f"{_PROBLEMS}.bit_flipping:BitFlipping")
    gym.register("pytorchrl/SparseMaze-v0", f"{_PROBLEMS}.sparse_maze:SparseMaze")
    gym.register(
        "pytorchrl/CartPoleWithoutVelocities-v0",
        f"{_PROBLEMS}.partly_observed:cartpole_without_velocities",
        max_episode_steps=500,
    )
    gym.register(
        "pytorchrl/PendulumWithoutVelocity-v0",
        f"{_PROBLEMS}.partly_observed:pendulum_without_velocity",
        max_episode_steps=200,
    )
    gym.register("pytorchrl/PixelPendulum-v0", "pytorchrl.agent.envs.pixel_envs:pixel_pendulum")
    gym.register("pytorchrl/Atari-v0", f"{_GAMES}.atari:Atari")
    for game in MINATAR_GAMES:
        gym.register(
            f"pytorchrl/MinAtar-{game.title().replace('_', '')}-v0", f"{_GAMES}.minatar:MinAtar", kwargs={"game": game}
        )


_register()
