"""Tasks for ``learning_page.py atari``: 26 games of Atari, in 100,000 steps."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.preset_compositions import of_preset
from pytorchrl.agent.algorithms.off_policy import Preset

STEPS = 100_000
"""Actions of the agent, each repeated for 4 frames."""
_EPISODES = 100
_SEEDS = (1,)
_TRAINING = ("EpisodicLife", ("ClipReward", {"min_reward": -1.0, "max_reward": 1.0}))


@dataclass(frozen=True)
class Game:
    """Published scores of a game."""

    random: float
    """Score of random actions; with the human one, in Wang et al. (arXiv 1511.06581)."""
    human: float
    data_efficient_rainbow: float
    """Score of van Hasselt et al. (arXiv 1906.05243) after 100,000 steps."""

    def normalised(self, score: float) -> float:
        """Return a score in units in which random actions have 0 and the human 1."""
        return (score - self.random) / (self.human - self.random)


GAMES: Mapping[str, Game] = {
    "Alien": Game(227.8, 7_127.7, 739.9),
    "Amidar": Game(5.8, 1_719.5, 188.6),
    "Assault": Game(222.4, 742.0, 431.2),
    "Asterix": Game(210.0, 8_503.3, 470.8),
    "BankHeist": Game(14.2, 753.1, 51.0),
    "BattleZone": Game(2_360.0, 37_187.5, 10_124.6),
    "Boxing": Game(0.1, 12.1, 0.2),
    "Breakout": Game(1.7, 30.5, 1.9),
    "ChopperCommand": Game(811.0, 7_387.8, 861.8),
    "CrazyClimber": Game(10_780.5, 35_829.4, 16_185.3),
    "DemonAttack": Game(152.1, 1_971.0, 508.0),
    "Freeway": Game(0.0, 29.6, 27.9),
    "Frostbite": Game(65.2, 4_334.7, 866.8),
    "Gopher": Game(257.6, 2_412.5, 349.5),
    "Hero": Game(1_027.0, 30_826.4, 6_857.0),
    "Jamesbond": Game(29.0, 302.8, 301.6),
    "Kangaroo": Game(52.0, 3_035.0, 779.3),
    "Krull": Game(1_598.0, 2_665.5, 2_851.5),
    "KungFuMaster": Game(258.5, 22_736.3, 14_346.1),
    "MsPacman": Game(307.3, 6_951.6, 1_204.1),
    "Pong": Game(-20.7, 14.6, -19.3),
    "PrivateEye": Game(24.9, 69_571.3, 97.8),
    "Qbert": Game(163.9, 13_455.0, 1_152.9),
    "RoadRunner": Game(11.5, 7_845.0, 9_600.0),
    "Seaquest": Game(68.4, 42_054.7, 354.1),
    "UpNDown": Game(533.4, 11_693.2, 2_877.4),
}
DER = "data-efficient Rainbow"
"""The preset of Rainbow for games of Atari."""
DRQ = "DrQ(epsilon)"
DRQ_GAMES = tuple(GAMES)[::3][:8]
"""Games of DrQ(epsilon), chosen before its first run: every third of the alphabet."""


def _env(game: str) -> str:
    return f"{game}NoFrameskip-v4"


def _drq() -> Composition:
    """Return DQN with shifted images, with the settings of ``DrQ_eps.gin`` in Dopamine's ``atari_100k``."""

    def compose() -> Preset:
        return Preset(
            algo_factory=prl.DQN.create_factory(
                lr=1e-4,
                optimizer=prl.Adam(eps=1.5e-4),
                epsilon=prl.LinearSchedule(1.0, 0.01, fraction=5_000 / STEPS),
                double=True,
                start_steps=1_600,
                update_every=1,
                mini_batch_size=32,
                polyak=0.0,
                target_update_interval=1,
                max_grad_norm=None,
                test_every=0,
            ),
            actor_factory=prl.OffPolicyActor.create_factory(
                feature_extractor="nature_convolutions", hidden_sizes=(), dueling=True, dueling_size=512
            ),
            storage_factory=prl.NStepReplayBuffer.create_factory(
                size=STEPS, n_step=10, transforms={prl.OBS: [prl.RandomShift(4), prl.RandomIntensity(0.05)]}
            ),
        )

    return Composition(compose, wrappers=_TRAINING)


def _task(game: str) -> Task:
    evaluated = prl.atari_envs(_env(game), training=False).hyper_parameters
    return Task(
        env=evaluated["env"],
        target_steps=STEPS,
        seeds=_SEEDS,
        episodes=_EPISODES,
        summary="mean",
        compositions={
            DER: of_preset("Rainbow", _env(game), STEPS, _TRAINING),
            **({DRQ: _drq()} if game in DRQ_GAMES else {}),
        },
        env_kwargs=evaluated["env_kwargs"],
        package="ale_py",
        outer_wrappers=tuple(evaluated["wrappers"]),
    )


ATARI_100K = Page(
    title="Atari in 100,000 steps",
    target="learning-atari",
    compositions="atari_100k.py",
    about=(
        "Two algorithms that learn from few steps, in the 26 games of Kaiser et al. (arXiv 1903.00374): 100,000 "
        "actions of the agent, each repeated for 4 frames, without sticky actions. "
        f"*{DER[0].upper()}{DER[1:]}* (van Hasselt et al., arXiv 1906.05243) is the preset that `python -m pytorchrl "
        f"train --algorithm rainbow` takes in games of Atari. *{DRQ}* is double DQN with shifted images (Kostrikov et "
        "al., arXiv 2004.13649) and the settings that Dopamine has for Agarwal et al. (arXiv 2108.13264); its games, "
        "every third of the alphabet, were chosen before its first run."
    ),
    tasks={game.lower(): _task(game) for game in GAMES},
)
