"""Commands for trained policies: evaluate them, watch them, film them, export them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import tyro

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.vec_env import one_copy
from pytorchrl.commands.composition.parts import value_of, wrapper_named
from pytorchrl.commands.evaluation.in_environment import RANDOM, RandomBaseline, compared, described
from pytorchrl.commands.evaluation.on_data import OnData, evaluate_on_data
from pytorchrl.commands.shared import Imports, Run, check_counts, check_seed
from pytorchrl.comparison.references import known_reference
from pytorchrl.experiments import NormalizedScore
from pytorchrl.experiments.policies.published_policies import find_policy
from pytorchrl.experiments.policies.trained_policy import configuration_of, read_policy
from pytorchrl.experiments.policies.value_from_data import FitSettings
from pytorchrl.experiments.policies.wrapped_actions import warning_of
from pytorchrl.experiments.recordings.filming import Played, film, play, refuse_without_rendering, stage_of
from pytorchrl.experiments.recordings.video import refuse_missing_encoder
from pytorchrl.experiments.runs.composition import check_action_bounds, envs_of, load_agent
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import factory_function, import_modules
from pytorchrl.logging.formats import counted
from pytorchrl.logging.groups import environment
from pytorchrl.scheme.compatibility import check_test_spaces
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation, evaluate_from_seeds
from pytorchrl.terminal import tell
from storages.component.factory import Factory
from storages.datasets import normalised

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables of which one is set where windows can be opened on Linux."""


def evaluate(
    run: Run,
    episodes: int = 20,
    seed: int = 0,
    explore: bool = False,
    epsilon: float = 0.0,
    best: bool = False,
    baseline: Annotated[str | None, tyro.conf.arg(metavar="random|RUN", help_behavior_hint="")] = None,
    data: str | None = None,
    select: str | None = None,
    fits: int = 10,
    updates: Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")] = None,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    env: Annotated[str | None, tyro.conf.arg(metavar="ID", help_behavior_hint="")] = None,
    wrappers: Annotated[str, tyro.conf.arg(metavar="LIST", help_behavior_hint="")] = "[]",
    imports: Imports = (),
) -> None:
    """Evaluate the policy of a run's last checkpoint, in its environment or on a data set.

    The interval of the mean return is a bootstrap interval over the episodes, with 95% confidence.

    Args:
        run: the run folder; or a policy: a file of weights, zoo:NAME, or hf://user/name.
        episodes: number of episodes.
        seed: of the first episode, for `env.reset(seed=...)`; each next episode has the next number.
        explore: choose actions as the explorer does at the run's end, instead of greedy ones.
        epsilon: probability of a uniformly random action in place of the policy's, for discrete actions: 0.05 in games
            of Atari by Mnih et al. (2015), 0.001 by van Hasselt et al. (2016) and later ones.
        best: take the weights of the run's best evaluation.
        baseline: compare the policy with random actions, or with that of another run, in the same episodes.
        data: a data set, from which the value of the policy's greedy actions, or of those with `--epsilon`, is
            estimated without an environment.
        select: its episodes: 'SelectEpisodes(best_share=0.1)'; those that the run held out, if it did, or all.
        fits: with data, Q-networks fitted to resampled episodes, beside one fitted to all; from 2.
        updates: with data, updates of each Q-network; 200 passes over the data where left out, from 1,000 to 5,000.
        output: with data, a picture of the values (.png, .svg, .pdf) or a table of them (.csv).
        env: another environment than the run's, such as one for a run from data: a gymnasium id, or a class of an
            imported module.
        wrappers: those of that environment, such as "['JoinActions']".
        imports: modules to import first.
    """
    check_counts(episodes=episodes, fits=fits, updates=updates)
    check_seed(seed)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"--epsilon must lie in [0, 1], got {epsilon}")
    if data is not None:
        if explore:
            raise ValueError("--data evaluates the greedy actions, which load_policy takes; leave out --explore")
        if baseline is not None:
            raise ValueError("--data compares with the policy that made the data; leave out --baseline")
        if env is not None:
            raise ValueError("--data estimates the value without an environment; leave out --env")
        import_modules(imports)
        settings = FitSettings(fits=fits, updates=updates)
        evaluate_on_data(policy_file(run, best), OnData(data, select, settings, seed, epsilon, output))
        return
    if output is not None:
        raise ValueError("--output writes the values that --data estimates; leave it out")
    algorithm, envs_factory, config = policy_of(policy_file(run, best), imports, env, wrappers)
    other = None if baseline is None else _baseline(baseline, run, algorithm, envs_factory, config, imports)
    result = _evaluated(algorithm, envs_factory, episodes, seed, explore, epsilon)
    tell(described(result, f", random actions with probability {epsilon:g}" if epsilon else ""))
    if (references := _references(config)) is not None:
        score = normalised([result.mean_return], references)[0]
        tell(f"Normalised score: {score:.3f}, where a return of {references[0]:g} is 0 and of {references[1]:g} is 1")
    if other is not None:
        name = "random actions" if baseline == RANDOM else str(baseline)
        beside = _evaluated(*other, episodes, seed, explore, 0.0 if baseline == RANDOM else epsilon)
        tell(f"{'Random actions' if baseline == RANDOM else baseline}, {described(beside)}")
        tell(compared(str(run), result, name, beside))


def _evaluated(
    algorithm: Algorithm | RandomBaseline,
    envs_factory: Factory[VecEnv],
    episodes: int,
    seed: int,
    explore: bool,
    random_share: float,
) -> Evaluation:
    """Return the returns of a policy in one copy of its environment."""
    acting = cast("Algorithm", algorithm)
    progress = (acting.steps, acting.target_steps) if explore and isinstance(algorithm, Algorithm) else None
    with one_copy(envs_factory)() as envs:
        return evaluate_from_seeds(
            *(acting, envs, episodes, seed, MAX_EPISODE_STEPS), explore_at=progress, random_share=random_share
        )


def _baseline(
    baseline: str,
    run: Path,
    algorithm: Algorithm,
    envs_factory: Factory[VecEnv],
    config: Mapping[str, Any],
    imports: Imports,
) -> tuple[Algorithm | RandomBaseline, Factory[VecEnv]]:
    """Return what a policy is compared with, and a factory of the environments in which it acts.

    Raises:
        ValueError: it is a policy of another environment.
    """
    if baseline == RANDOM:
        return RandomBaseline(algorithm), envs_factory
    other, its_envs, its_config = policy_of(Path(baseline), imports)
    ours, theirs = environment(config), environment(its_config)
    if ours != theirs:
        raise ValueError(
            f"--baseline {baseline} acts in {theirs}, and {run} in {ours}, so that their returns cannot be compared"
        )
    return other, its_envs


def watch(
    run: Run,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    episodes: int = 3,
    seed: int = 0,
    explore: bool = False,
    best: bool = False,
    imports: Imports = (),
) -> None:
    """Watch the policy of a run's last checkpoint, in a window or in a video.

    Args:
        run: the run folder; or a policy: a file of weights, zoo:NAME, or hf://user/name.
        output: a video, which ends in .mp4 or .gif; a window where left out.
        episodes: number of episodes.
        seed: of the environment.
        explore: choose actions as the explorer does at the run's end, instead of greedy ones.
        best: take the weights of the run's best evaluation.
        imports: modules to import first.
    """
    check_counts(episodes=episodes)
    check_seed(seed)
    if output is not None:
        record(run, output, episodes, seed=seed, explore=explore, best=best, imports=imports)
        return
    algorithm, envs, _ = policy_of(policy_file(run, best), imports)
    refuse_without_rendering(envs, run)
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        raise RuntimeError(f"there is no display to open a window on; write a video instead: play {run} -o video.mp4")
    tell("Press Ctrl-C to stop.")
    with stage_of(envs, "human") as stage:
        try:
            for played in play(algorithm, stage, episodes, np.random.SeedSequence(seed), explore=explore):
                _tell(played)
        except KeyboardInterrupt:
            return


def record(
    run: Run,
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("video.mp4"),
    episodes: int = 1,
    longest: int = 1_000,
    seed: int = 0,
    explore: bool = False,
    best: bool = False,
    imports: Imports = (),
) -> None:
    """Film the policy of a run's last checkpoint.

    Args:
        run: the run folder; or a policy: a file of weights, zoo:NAME, or hf://user/name.
        output: the video, which ends in .mp4 or .gif.
        episodes: number of episodes in the video.
        longest: largest number of steps that are filmed of an episode.
        seed: of the environment.
        explore: choose actions as the explorer does at the run's end, instead of greedy ones.
        best: take the weights of the run's best evaluation.
        imports: modules to import first.
    """
    check_counts(episodes=episodes, longest=longest)
    check_seed(seed)
    refuse_missing_encoder(output.suffix, output)
    algorithm, envs, _ = policy_of(policy_file(run, best), imports)
    refuse_without_rendering(envs, run)
    for played in film(output, algorithm, envs, episodes, longest, np.random.SeedSequence(seed), explore=explore):
        _tell(played)
    tell(output)


def export(
    run: Run,
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("policy.onnx"),
    best: bool = False,
    imports: Imports = (),
) -> None:
    """Write the network that acts, for use without this toolkit.

    Args:
        run: the run folder; or a policy: a file of weights, zoo:NAME, or hf://user/name.
        output: ends in .onnx, in .pt2 for torch.export.load, or in .ts for torch.jit.load and C++.
        best: take the weights of the run's best evaluation.
        imports: modules to import first.
    """
    import_modules(imports)
    policy = read_policy(policy_file(run, best))
    tell(policy.export(output))
    if policy.action_wrappers:
        tell(f"Warning: {warning_of(policy.action_wrappers, policy.action_space)}")


def policy_file(run: Path, best: bool) -> Path:
    """Return what to load a policy from: the run or file itself, or the file of a run's best weights.

    Raises:
        ValueError: the best weights of what is no run folder are asked for, or the run has none.
    """
    if not best:
        return run
    folder = RunFolder(find_policy(run))
    if not folder.path.is_dir():
        raise ValueError(
            f"--best takes the weights of a run's best evaluation, and {run} is no run folder; leave it out"
        )
    if not folder.best_weights_file.exists():
        raise ValueError(
            f"{run} has no {folder.best_weights_file.name}, which the first evaluation saves: test_every of the "
            f"algorithm sets when; without --best, the last checkpoint is taken"
        )
    return folder.best_weights_file


def policy_of(
    run: Path, imports: Imports, env: str | None = None, wrappers: str = "[]"
) -> tuple[Algorithm, Factory[VecEnv], Mapping[str, Any]]:
    """Return the algorithm of a run or of a policy's file, a factory of its test environments, and its configuration.

    Args:
        run: a run folder, or a policy's file.
        imports: modules to import first.
        env: another environment than the run's; None takes the run's.
        wrappers: the list of its wrappers, as text.

    Raises:
        CheckpointError: there are no weights, they are damaged, or the environments have other bounds of actions.
        CompositionError: they cannot be built from the configuration alone, or have other spaces.
        ValueError: wrappers are given without an environment.
    """
    import_modules(imports)
    found = find_policy(run)
    if env is not None:
        algorithm = read_policy(found).algorithm
        factory = _other_envs(env, wrappers, algorithm)
        return algorithm, factory, {**configuration_of(found), "train_envs": factory.config, "test_envs": None}
    if value_of(wrappers):
        raise ValueError(f"--wrappers {wrappers} are those of an environment that --env names; give both")
    if not found.is_file():
        algorithm, envs = load_agent(found)
        envs.close()
        config: Mapping[str, Any] = RunFolder(found).read_config()
        return algorithm, envs_of(config, found), config
    policy, config = read_policy(found), configuration_of(found)
    envs_factory = envs_of(config, found)
    with one_copy(envs_factory)() as envs:
        check_action_bounds(config, envs.action_space, found)
    return policy.algorithm, envs_factory, config


def _other_envs(env: str, wrappers: str, algorithm: Algorithm) -> Factory[VecEnv]:
    """Return a factory of environments that a command names, with the spaces of a policy."""
    listed = value_of(wrappers)
    chain = [wrapper_named(one) for one in (listed if isinstance(listed, list) else [listed])]
    factory = VecEnv.create_factory(factory_function(env) or env, wrappers=chain)
    with one_copy(factory)() as envs:
        check_test_spaces(algorithm.actor, envs, owner="evaluate", given=f"the environments of --env {env}")
    return factory


def _references(config: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the returns that are normalised to 0 and to 1: those of the run's data set, else known ones."""
    for callback in config.get("callbacks", ()):
        if callback.get("name") == NormalizedScore.__name__:
            return callback["hyper_parameters"]["low"], callback["hyper_parameters"]["high"]
    known = known_reference(environment(config))
    return None if known is None else (known.low, known.high)


def _tell(played: Played | None) -> None:
    if played is not None:
        what = "The beginning of an episode, of" if played.is_cut else "An episode of"
        tell(f"{what} {counted(played.length, 'step')}, return {played.episode_return:.2f}")
