"""Methods that learners, algorithms and models of other libraries have, and what to write here."""

from collections.abc import Mapping

_ACT = "prl.load_policy(log_dir) returns the policy of a run, which is called with an observation"
_RESTORE = "prl.Learner.resume(log_dir) continues a run, and prl.load_policy(log_dir) loads its policy"
_ENVIRONMENTS = "environments are a part of the scheme: train_envs_factory=prl.VecEnv.create_factory(env, num_envs=8)"


def _all(names: str, here: str) -> dict[str, str]:
    """Return the same text for several names."""
    return dict.fromkeys(names.split(), here)


LEARNER_METHODS: Mapping[str, str] = {
    **_all("learn train fit", "run() trains up to target_steps, an argument of Learner"),
    **_all("predict compute_single_action compute_actions act", _ACT),
    **_all("save", "run() saves checkpoints in log_dir; save_policy(path) saves the policy alone"),
    **_all("load restore from_checkpoint", _RESTORE),
}
ALGORITHM_METHODS: Mapping[str, str] = {
    **_all(
        "learn fit build build_algo train",
        'a learner trains it: prl.Learner(prl.compose("PPO", "CartPole-v1"), target_steps=100_000, '
        'log_dir="runs/mine").run(), with the algorithm and the environment by name or by their factories',
    ),
    "create_factory": 'networks and environments are other parts of a run, such as prl.compose("PPO", "CartPole-v1")',
    **_all("predict compute_single_action compute_actions get_policy", _ACT),
    **_all("save save_checkpoint", "Learner.run() saves checkpoints in its log_dir"),
    **_all("load restore from_checkpoint", _RESTORE),
    **_all("environment env_runners rollouts set_env get_env", _ENVIRONMENTS),
    **_all("training framework resources", "hyper-parameters are arguments of create_factory, device is one of Scheme"),
}
"""Of algorithms and of their factories."""
