"""The agent that data sets are recorded with: a run with a saved policy for each evaluation."""

from dataclasses import dataclass
from pathlib import Path

from gymnasium import spaces

from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.commands.composition.description import merge_descriptions
from pytorchrl.commands.composition.parts import RunParts, make_parts, part_named
from pytorchrl.commands.composition.presets import preset_of
from pytorchrl.experiments import SavePolicies
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.learner import Learner
from pytorchrl.logging.curves import EVALUATION, read_run
from pytorchrl.run_files import RunFiles
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.factory import Factory, make_factory

_EVALUATIONS = 40
_REPLAY = "replay"
_STEPS_BY_BOX, _STEPS_BY_OTHERS = 1_000_000, 100_000
_ENOUGH = 2 / 3
"""The normalised return from which on a policy is no longer a medium one."""
_MEDIUM = 1 / 3


@dataclass(frozen=True)
class EvaluatedPolicy:
    """The policy of the agent at an evaluation."""

    steps: int
    """Environment transitions that it was trained for."""
    mean_return: float
    """Mean return of the evaluation."""
    file: Path


@dataclass(frozen=True)
class TrainedAgent:
    """An agent to be trained, and its run folder."""

    envs: Factory[VecEnv]
    parts: RunParts
    folder: Path
    seed: int

    @property
    def replay(self) -> Path:
        """The directory of the replay storage, which keeps all transitions of training."""
        return self.folder / _REPLAY

    def train(self) -> None:
        """Train the agent to its target steps, or resume a training that was stopped.

        Raises:
            InterruptedError: training was stopped.
        """
        if self._is_trained():
            return
        scheme = self._scheme()
        try:
            learner = self._learner(scheme)
        except BaseException:
            scheme.close()
            raise
        try:
            learner.run(checkpoint_every=self._every)
        finally:
            learner.close()
        if not learner.is_complete:
            raise InterruptedError(f"training in {self.folder} was stopped; run the same command again to continue")

    def policies(self) -> list[EvaluatedPolicy]:
        """The policies of all evaluations, in their order."""
        curve = read_run(self.folder).curve(EVALUATION)
        found = [
            EvaluatedPolicy(int(steps), float(mean), RunFiles(self.folder).policy_file(int(steps)))
            for steps, mean in zip(curve.x, curve.values, strict=True)
        ]
        # The last evaluation may lie between two multiples of the interval.
        return [policy for policy in found if policy.file.is_file()]

    def expert(self) -> EvaluatedPolicy:
        """The policy of the best evaluation."""
        return max(self.policies(), key=lambda policy: policy.mean_return)

    def medium(self, random_return: float) -> EvaluatedPolicy:
        """Return the policy with a normalised return closest to a third, up to the first of at least two thirds.

        Args:
            random_return: mean return of random actions, which is 0 on the scale on which the expert is 1.

        Raises:
            ValueError: the expert is no better than random actions.
        """
        policies, expert = self.policies(), self.expert()
        if expert.mean_return <= random_return:
            raise ValueError(
                f"the best policy in {self.folder} returned {expert.mean_return:g}, no more than random actions do "
                f"({random_return:g}); train for more than {self.parts.steps:,} steps, or by another algorithm"
            )
        scores = [(policy.mean_return - random_return) / (expert.mean_return - random_return) for policy in policies]
        until = next(number for number, score in enumerate(scores) if score >= _ENOUGH)
        nearest = min(range(until + 1), key=lambda number: abs(scores[number] - _MEDIUM))
        return policies[nearest]

    @property
    def _every(self) -> int:
        return max(1, self.parts.steps // _EVALUATIONS)

    def _is_trained(self) -> bool:
        """Whether the last step and its evaluation are in the checkpoint; the metrics have the step before both."""
        file = RunFolder(self.folder).checkpoint_file
        if not file.is_file():
            return False
        state = checkpoint.load(file, is_mapped=True)
        is_evaluated = not state["learner"]["evaluation_is_due"]
        return bool(state["scheme"]["collector"]["steps"] == self.parts.steps and is_evaluated)

    def _scheme(self) -> Scheme:
        storage = self.parts.storage
        kept = {"size": self.parts.steps, "directory": str(self.replay)}
        keeps_all = make_factory(storage.cls, (), storage.hyper_parameters | kept)
        algorithm = self.parts.algorithm
        evaluated = make_factory(algorithm.cls, (), algorithm.hyper_parameters | {"test_every": self._every})
        return Scheme(evaluated, self.parts.actor, keeps_all, self.envs, seed=self.seed)

    def _learner(self, scheme: Scheme) -> Learner:
        if RunFolder(self.folder).checkpoint_file.exists():
            return Learner.resume(self.folder, scheme=scheme)
        callbacks = [SavePolicies(every=self._every)]
        every = max(1, self._every // 4)
        learner = Learner(scheme, self.parts.steps, self.folder, log_every=every, callbacks=callbacks)
        # The run can be continued from now on, whenever it is killed.
        learner.save_checkpoint()
        return learner


def agent_of(env: str, algorithm: str | None, train_steps: int | None, seed: int, runs: Path) -> TrainedAgent:
    """Compose the agent for an environment, without training it.

    Raises:
        CompositionError: the algorithm does not learn from a replay storage, or does not exist.
    """
    name = algorithm or ("SAC" if _has_box_of_actions(env) else "DQN")
    cls = part_named(Algorithm, name)
    if any(needs.kind == "rollout" or not needs.collected for needs in cls.sources.values()):
        raise CompositionError(
            f"data make: {cls.__name__} does not learn from a replay buffer of its own transitions, of which "
            f"medium-replay is made; choose SAC, TD3 or DQN"
        )
    preset, _ = preset_of(cls, env)
    named = {"algorithm": {"name": cls.__name__}, "env": {"name": env, "num_envs": 1}}
    steps = train_steps or preset.get("steps") or (_STEPS_BY_BOX if _has_box_of_actions(env) else _STEPS_BY_OTHERS)
    parts = make_parts(merge_descriptions(preset, named, {"steps": steps}))
    folder = runs / f"{cls.__name__}-{env.replace('/', '-')}-{parts.steps}-steps-seed-{seed}"
    assert parts.envs is not None
    return TrainedAgent(parts.envs, parts, folder, seed)


def _has_box_of_actions(env: str) -> bool:
    made = VecEnv.create_factory(env)()
    try:
        return isinstance(made.action_space, spaces.Box)
    finally:
        made.close()
