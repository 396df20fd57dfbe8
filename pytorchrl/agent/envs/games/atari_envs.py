"""Vector environments of Atari games with standard preprocessing."""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pytorchrl.agent.envs.copies.making import name_of_wrapper
from pytorchrl.agent.envs.games.atari import Atari
from pytorchrl.agent.envs.other_packages import is_game, settings_of
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.factory import Factory, make_factory
from storages.component.other_names import NEAREST

_OF_ALE: Mapping[str, str] = {
    "frameskip": "frame_skip",
    "mode": "game_mode",
    "difficulty": "game_difficulty",
    "max_num_frames_per_episode": "max_frames",
}
"""Settings of ALE's own environments that have another name here."""
_OF_MAKE = ("max_episode_steps",)
"""Arguments of ``gymnasium.make`` that ids of Atari take as well."""
_OF_TRAINING = ("life_loss", "clip_rewards", "frame_stack", "training")
"""Settings of :func:`atari_envs` beside those of :class:`Atari`."""
_ONLY_GREY = "no setting: frames are greyscale; raw frames, by --no-preprocessing or preprocessing=False, have colours"
_ELSEWHERE: Mapping[str, str] = {
    **_OF_ALE,
    **dict.fromkeys(
        ("sticky_actions", "sticky", "sticky_action_prob", "sticky_prob", "repeat_action_prob", "repeat_probability"),
        "repeat_action_probability, from 0 to 1",
    ),
    **dict.fromkeys(("action_repeat", "action_repeats", "skip", "frames_to_skip"), "frame_skip"),
    **dict.fromkeys(("noops", "noop", "no_op_max", "max_noops", "noop_reset"), "noop_max"),
    **dict.fromkeys(
        ("terminal_on_life_loss", "terminal_on_loss_of_life", "episodic_life", "episode_life", "end_on_life_loss"),
        "life_loss, true or false",
    ),
    **dict.fromkeys(("clip_reward", "reward_clip", "reward_clipping"), "clip_rewards, true or false"),
    **dict.fromkeys(("num_stack", "n_stack", "stack", "stack_size", "stack_num", "history_length"), "frame_stack"),
    **dict.fromkeys(
        ("full_action_set", "full_actions", "minimal_action_set", "use_minimal_action_set", "legal_action_set"),
        "full_action_space, true or false",
    ),
    **dict.fromkeys(("fire_reset", "fire_on_reset", "use_fire_reset", "press_fire"), "fire, true or false"),
    **dict.fromkeys(("frame_size", "resize", "img_size", "img_height", "img_width", "image_size"), "screen_size"),
    **dict.fromkeys(("max_episode_frames", "max_frames_per_episode", "max_game_frames"), "max_frames"),
    **dict.fromkeys(("grayscale_obs", "grayscale", "greyscale", "gray_scale", "grayscale_newaxis"), _ONLY_GREY),
    "obs_type": "a choice of raw frames: obs_type in env_kwargs of VecEnv or --env.env-kwargs",
    "scale_obs": "no setting: frames are uint8, and networks scale them",
}
"""Names in ALE, papers and other libraries, and those here."""
_PREPROCESSING = frozenset(
    {
        "AtariPreprocessing",
        "FrameStackObservation",
        "GrayscaleObservation",
        "MaxAndSkipObservation",
        "ResizeObservation",
    }
)
"""Wrappers of gymnasium that preprocess frames."""


def atari_envs(
    env: str,
    num_envs: int = 1,
    *,
    mode: Literal["sync", "async"] = "sync",
    training: bool = True,
    life_loss: bool = True,
    clip_rewards: bool = True,
    frame_stack: int = 4,
    wrappers: Sequence[Any] = (),
    **settings: Any,
) -> Factory[VecEnv]:
    """Return a factory of :class:`~pytorchrl.agent.envs.games.atari.Atari` games with stacked frames.

    The id defines the game, the probability of sticky actions (0.25 of ``ALE/Pong-v5``, 0 of ``PongNoFrameskip-v4``),
    the action set and the maximum length of a game; the frame skip is 4 with every id. A run reports unclipped returns
    of whole games, in training and in evaluation.

    Args:
        env: an id of Atari.
        num_envs: number of copies.
        mode: "sync" or "async", as for :class:`~pytorchrl.agent.envs.vec_env.VecEnv`.
        training: False is for evaluation: whole games, with the game's own rewards.
        life_loss: whether the loss of a life ends an episode in training.
        clip_rewards: whether rewards are clipped to [-1, 1] in training.
        frame_stack: number of frames in an observation, the newest last; storages keep each once. 1 for no stack.
        wrappers: further wrappers, of single frames: they come before the stacking.
        settings: of :class:`~pytorchrl.agent.envs.games.atari.Atari`, such as ``repeat_action_probability=0.0``.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is not an id of Atari, or there is no such setting.
    """
    _refuse_unknown(settings)
    given = settings_of(env, "atari_envs")
    given["max_frames"] = given.pop("max_num_frames_per_episode")
    layers: list[Any] = []
    if training and life_loss:
        layers.append("EpisodicLife")
    if training and clip_rewards:
        layers.append(("ClipReward", {"min_reward": -1.0, "max_reward": 1.0}))
    layers += wrappers
    if frame_stack > 1:
        layers.append(("FrameStackObservation", {"stack_size": frame_stack}))
    return VecEnv.create_factory(
        "pytorchrl/Atari-v0", num_envs, mode=mode, wrappers=layers, env_kwargs={**given, **settings}
    )


def _refuse_unknown(settings: Mapping[str, Any]) -> None:
    known = sorted({*inspect.signature(Atari).parameters, *_OF_TRAINING} - {"game"})
    if unknown := sorted(settings.keys() - set(known)):
        near = {name: difflib.get_close_matches(name, known, n=1, cutoff=NEAREST) for name in unknown}
        hints = [f"{name} is {_ELSEWHERE[name]}; " for name in unknown if name in _ELSEWHERE]
        hints += [f"did you mean {near[name][0]}? " for name in unknown if near[name] and name not in _ELSEWHERE]
        raise ValueError(
            f"atari_envs: there is no setting {', '.join(unknown)}; {''.join(hints)}those of Atari are "
            f"{', '.join(known)}"
        )


def described_preprocessing(envs: Factory[VecEnv]) -> str:
    """Return what the environments of :func:`atari_envs` do beside their wrappers, which name the rest."""
    defaults = {name: one.default for name, one in inspect.signature(Atari).parameters.items()}
    game = {**defaults, **(envs.hyper_parameters["env_kwargs"] or {})}
    frames, noops, sticky = (game[name] for name in ("frame_skip", "noop_max", "repeat_action_probability"))
    said = [f"an action is repeated for {frames} frames"]
    said += [f"each of them is the last one again with probability {sticky:g}"] if sticky else []
    said += [f"a game begins with 1 to {noops} frames without an action"] if noops else []
    said += ["fire is pressed where a life begins"] if game["fire"] else []
    return ", ".join(said)


def lost_by_backend(envs: Factory[VecEnv]) -> str | None:
    """Return what games that another library steps lack of the usual preprocessing of training; None for others."""
    given = envs.hyper_parameters
    backend, env = str(given.get("backend")), given.get("env")
    settings = dict(given.get("env_kwargs") or {})
    if backend not in _CLIPPING or not (is_game(env) or is_game(f"ALE/{env}")):
        return None
    is_clipped = settings.get(_CLIPPING[backend]) or "ClipReward" in map(name_of_wrapper, given["wrappers"])
    meanings = {"episodic_life": "the loss of a life ends no episode", "clipping": "rewards are not clipped"}
    has = {"episodic_life": settings.get("episodic_life"), "clipping": is_clipped}
    lacking = [name for name, is_there in has.items() if not is_there]
    if not lacking:
        return None
    ways = {
        "ale": {
            "episodic_life": "episodic_life=True in env_kwargs ends one, and restarts the game",
            "clipping": 'wrappers=[("ClipReward", {"min_reward": -1, "max_reward": 1})] clips what is learnt from',
        },
        "envpool": {
            "episodic_life": "episodic_life=True in env_kwargs ends one",
            "clipping": "reward_clip=True in env_kwargs clips them",
        },
    }[backend]
    return (
        f"{'ALE' if backend == 'ale' else 'EnvPool'} preprocesses the games itself: "
        f"{' and '.join(meanings[name] for name in lacking)}; {', '.join(ways[name] for name in lacking)}"
        f"{'; returns stay those of whole games' if backend == 'envpool' else ''}."
    )


_CLIPPING: Mapping[str, str] = {"ale": "reward_clipping", "envpool": "reward_clip"}
"""The setting that clips rewards, by the library that steps the games."""


def whole_games(wrappers: Sequence[Any]) -> list[Any]:
    """Return wrappers without those with which training ends an episode with a life and clips rewards."""
    return [one for one in wrappers if name_of_wrapper(one) not in ("EpisodicLife", "ClipReward")]


def preprocessed(factory: Factory[VecEnv]) -> Factory[VecEnv]:
    """Return the factory of an Atari id's environments with the preprocessing of :func:`atari_envs`.

    Other environments are returned unchanged, and so are games whose wrappers preprocess frames already, whose
    ``obs_type`` is chosen, or which another library makes. Arguments may have the names of ALE's own environments.

    Raises:
        ValueError: the game has no such setting.
    """
    given = factory.hyper_parameters
    arguments, wrappers = dict(given["env_kwargs"] or {}), list(given["wrappers"])
    is_native = given["vectorization_mode"] is not None or given["backend"] != "gymnasium"
    names = {name_of_wrapper(one) for one in wrappers}
    if is_native or names & _PREPROCESSING or "obs_type" in arguments or not is_game(given["env"]):
        return factory
    of_make = {name: arguments.pop(name) for name in _OF_MAKE if name in arguments}
    settings = {_OF_ALE.get(name, name): value for name, value in arguments.items()}
    _refuse_unknown(settings)
    made = atari_envs(given["env"], wrappers=wrappers, **settings).hyper_parameters
    game = {name: made[name] for name in ("env", "wrappers")} | {"env_kwargs": {**made["env_kwargs"], **of_make}}
    return make_factory(factory.cls, (), given | game)
