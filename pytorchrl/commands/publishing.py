"""Publish the policy of a run on the Hugging Face hub."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
import yaml

from pytorchrl.agent.envs.vec_env import one_copy
from pytorchrl.commands.policies import policy_file, policy_of
from pytorchrl.commands.shared import Imports, Run, check_counts
from pytorchrl.experiments.policies.published_policies import (
    POLICY_FILE,
    find_policy,
    hub,
    policy_state,
    repository_named,
)
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.logging.groups import environment
from pytorchrl.scheme.evaluation import Evaluation, evaluate
from pytorchrl.terminal import tell
from pytorchrl.version import DISTRIBUTION


def push(
    run: Run,
    repository: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="user/name")],
    best: bool = False,
    episodes: int = 20,
    private: bool = False,
    imports: Imports = (),
) -> None:
    """Publish a policy on the Hugging Face hub, for load_policy("hf://user/name"); needs the extra hub and a log-in.

    Args:
        run: the run folder, or a file of weights.
        repository: of the hub; it is made where it does not exist.
        best: publish the policy that was best in the run's evaluations, instead of the last checkpoint's.
        episodes: of the evaluation whose mean return the repository's page names.
        private: make the repository a private one.
        imports: modules to import first.
    """
    check_counts(episodes=episodes)
    package, name = hub(), repository_named(repository)
    path = policy_file(run, best) if best else find_policy(run)
    algorithm, envs_factory, _ = policy_of(path, imports)
    state = policy_state(path)
    with one_copy(envs_factory)() as envs:
        evaluation = evaluate(algorithm, envs, episodes, seed=0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint.save(folder / POLICY_FILE, state)
        (folder / "README.md").write_text(page_of(name, state, evaluation), encoding="utf-8")
        api = package.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        message = f"Add a policy of {state['config']['algorithm']['name']}, after {state['steps']:,} steps"
        tell(api.upload_folder(repo_id=name, folder_path=folder, commit_message=message))
    tell(f'Load it by pytorchrl.load_policy("hf://{name}"), watch it by: python -m pytorchrl play hf://{name}')


def page_of(name: str, state: Mapping[str, Any], evaluation: Evaluation) -> str:
    """Return the page of a policy's repository, with the hub's metadata.

    Args:
        name: of the repository.
        state: of the policy.
        evaluation: of the policy.
    """
    config, returns = state["config"], evaluation.returns
    algorithm, env = config["algorithm"]["name"], environment(config)
    mean, spread = float(np.mean(returns)), float(np.std(returns))
    told = (
        f"A policy that pytorchrl ({DISTRIBUTION}) trained for {state['steps']:,} steps, with the seed "
        f"{config['seed']}. Over {len(returns)} episodes, acting deterministically, its mean return is {mean:.2f}, "
        f"with a standard deviation of {spread:.2f}. `{POLICY_FILE}` has the weights and the composition, no code."
    )
    measured = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": env, "type": env},
        "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": f"{mean:.2f} +/- {spread:.2f}"}],
    }
    metadata = {
        "library_name": "pytorchrl",
        "tags": ["reinforcement-learning", "pytorchrl", algorithm, env],
        "model-index": [{"name": algorithm, "results": [measured]}],
    }
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False)}---

# {algorithm} in {env}

{told}

```python
import pytorchrl as prl

policy = prl.load_policy("hf://{name}")  # pip install "{DISTRIBUTION}[hub]"
action = policy(observation)
```
"""
