"""DecisionTransformer's loss equals that of loops, and it acts on the last steps in all uses of a policy."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.layers.trajectory_network import Trajectories
from pytorchrl.agent.algorithms.offline.trajectories import draw_windows
from pytorchrl.experiments import collect_demonstrations
from storages.transition import ACT, DONE, MASK, OBS, REW, WEIGHTS
from tests.support.by_hand import envs_with, exploring, numeric_gradient, numpy, perturb
from tests.support.chains import Chain
from tests.support.data_sets import recorded
from tests.support.training import train
from tests.support.transforming import Layers, affine, features_of_states

DISCRETE = spaces.Discrete(3)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
SMALL = {"embedding_size": 4, "num_heads": 2, "num_layers": 1, "context_length": 3, "max_timestep": 4}
LENGTHS = (5, 2, 6)


def made(space: Any, **hyper_parameters: Any) -> Any:
    torch.manual_seed(0)
    envs = envs_with(space)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm: Any = prl.DecisionTransformer.create_factory(**(SMALL | hyper_parameters))("cpu", actor, envs)
    perturb(algorithm.actor, 1, 0.3)
    algorithm.seed(0)
    return algorithm


def episodes(space: Any) -> dict[str, torch.Tensor]:
    """A batch of whole episodes, as a storage makes it."""
    random, steps = np.random.default_rng(0), max(LENGTHS)
    shape = (steps, len(LENGTHS))
    mask = (np.arange(steps)[:, None] < LENGTHS).astype(np.float32)[..., None]
    action = random.integers(0, 3, (*shape, 1)) if space is DISCRETE else random.uniform(BOX.low, BOX.high, (*shape, 2))
    return {
        OBS: torch.from_numpy(random.normal(size=(*shape, 3)).astype(np.float32)),
        ACT: torch.from_numpy(action if space is DISCRETE else action.astype(np.float32)),
        REW: torch.from_numpy(random.normal(size=(*shape, 1)).astype(np.float32)),
        MASK: torch.from_numpy(mask),
        DONE: torch.zeros(*shape, 1),
        WEIGHTS: torch.tensor([[0.5], [1.0], [0.8]]),
    }


class ByHand:
    """The loss of the windows that are drawn next, by loops over them and their steps."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.algorithm = algorithm
        generator = torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        length = algorithm.context_length
        drawn = draw_windows(batch, length, algorithm.windows_per_episode, generator)
        self.windows = range(len(drawn.first))
        self.obs = numpy(drawn.obs).reshape(len(drawn.first), length, -1)
        self.action = drawn.action.numpy().reshape(len(drawn.first), length, -1)
        self.returns = numpy(drawn.returns) / algorithm.return_scale
        self.first, self.weight = drawn.first[:, 0].tolist(), numpy(drawn.weight)[..., 0]
        self.layers, self.states = Layers(algorithm.trajectory), Layers(algorithm.states.head)

    def surprisal(self, features: Any, action: Any) -> float:
        """Negative log probability of an action."""
        output = affine(self.layers, "head.layer" if self.is_discrete else "head.head.layer", features)
        if self.is_discrete:
            return float(np.log(np.exp(output).sum()) - output[int(action[0])])
        total = 0.0
        for number, (mean, half_range) in enumerate(zip(np.tanh(output), (2.0, 2.5), strict=True)):
            scaled = (action[number] - (0.0, 2.5)[number]) / half_range
            total += 0.5 * (scaled - mean) ** 2 + 0.5 * np.log(2 * np.pi) + np.log(half_range)
        return float(total)

    @property
    def is_discrete(self) -> bool:
        return self.algorithm.action_space is DISCRETE

    def surprisals(self) -> list[list[float]]:
        """Surprisals of each window's steps."""
        rows = []
        for window in self.windows:
            states = np.stack([affine(self.states, "1", obs) for obs in self.obs[window]])
            taken = self.action[window]
            actions = np.eye(3)[taken[:, 0]] if self.is_discrete else taken.astype(np.float64)
            features = features_of_states(
                self.layers, self.returns[window], states, actions, self.first[window], self.algorithm.num_heads
            )
            rows.append([self.surprisal(*each) for each in zip(features, taken, strict=True)])
        return rows

    def loss(self) -> float:
        return float((self.weight * np.array(self.surprisals())).sum())


@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_loss_errors_and_gradients_equal_those_by_loops(space: Any) -> None:
    algorithm, batch = made(space, windows_per_episode=2, return_scale=2.0), episodes(space)
    hand = ByHand(algorithm, batch)
    before = {name: field.clone() for name, field in batch.items()}
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], hand.loss(), rtol=1e-4)
    assert result.errors is not None
    surprisals = hand.surprisals()
    for episode in range(len(LENGTHS)):
        of_episode = [
            surprisals[window][step]
            for window in range(episode, len(surprisals), len(LENGTHS))
            for step in range(3)
            if hand.weight[window][step] > 0
        ]
        np.testing.assert_allclose(numpy(result.errors)[:, episode], np.mean(of_episode), rtol=1e-3)
    moved = [
        ("0.head.1", hand.states, "1.weight"),
        *(("1", hand.layers, name) for name in ("embed_return.weight", "embed_action.weight", "embed_timestep.weight")),
        ("1", hand.layers, "head.layer.bias" if space is DISCRETE else "head.head.layer.bias"),
        ("1", hand.layers, "transformer.blocks.0.queries_keys_values.bias"),
        ("1", hand.layers, "transformer.blocks.0.narrow.weight"),
        ("1", hand.layers, "norm.weight"),
    ]
    for prefix, layers, name in moved:
        found = gradients[f"policy.0.head.{name}" if layers is hand.states else f"policy.{prefix}.{name}"]
        by_hand = numeric_gradient(hand.loss, layers[name])
        np.testing.assert_allclose(numpy(found), by_hand, rtol=5e-3, atol=2e-5, err_msg=name)
    assert all(torch.equal(batch[name], before[name]) for name in batch)


def test_it_stores_the_largest_return_of_the_episodes_of_its_batches() -> None:
    algorithm = made(DISCRETE)
    returns = []
    for number in range(3):
        batch = episodes(DISCRETE)
        batch[REW] = batch[REW] - 5 + number
        algorithm.update(batch)
        returns.append((batch[REW] * batch[MASK]).sum(0).max().item())
    assert max(returns) < 0
    np.testing.assert_allclose(algorithm.trajectory.largest_return, [max(returns)], rtol=1e-5)


@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_actions_depend_on_the_last_steps_of_each_environments_episode(space: Any) -> None:
    algorithm, envs, steps = made(space, target_return=7.0, return_scale=2.0), 3, 12
    exploration = exploring(algorithm, envs, deterministic=True)
    random = np.random.default_rng(0)
    # The running episode of each environment: returns to go, observations, actions.
    running: list[list[tuple[float, Any, Any]]] = [[] for _ in range(envs)]
    to_go, starts = [7.0] * envs, np.ones(envs, bool)
    for step in range(steps):
        obs = torch.from_numpy(random.normal(size=(envs, 3)).astype(np.float32))
        exploration.starts = torch.from_numpy(starts.astype(np.float32))[:, None]
        acting = algorithm.acting_step(obs, None, exploration.starts, exploration)
        for env in range(envs):
            if starts[env]:
                running[env], to_go[env] = [], 7.0
            seen = running[env][-2:]
            expected = action_of_one(algorithm, seen, to_go[env], obs[env], len(running[env]) - len(seen))
            torch.testing.assert_close(acting.action[env], expected)
            running[env].append((to_go[env], obs[env], acting.action[env]))
        rewards = random.normal(size=envs).astype(np.float32)
        exploration.rewards = torch.from_numpy(rewards)[:, None]
        to_go = [before - float(reward) for before, reward in zip(to_go, rewards, strict=True)]
        # The first environment's episode is longer than the context and than the largest time step.
        starts = np.array([False, step % 5 == 4, step == 7])


def action_of_one(algorithm: Any, seen: Any, to_go: float, obs: Any, first: int) -> torch.Tensor:
    """The most likely action in one environment, computed from its own steps only."""
    observed = torch.stack([*(each for _, each, _ in seen), obs])
    taken = [algorithm.codec.features(action[None])[0] for _, _, action in seen]
    with torch.inference_mode():
        states = algorithm.states(algorithm.actor.view(observed))[None]
        actions = torch.stack([*taken, torch.zeros(algorithm.codec.size)])[None]
        returns = torch.tensor([*(each for each, _, _ in seen), to_go])[None, :, None] / algorithm.return_scale
        features = algorithm.trajectory(Trajectories(returns, states, actions, torch.tensor([[first]])))
        action: torch.Tensor = algorithm.trajectory.policy(features[:, -1]).mode()[0]
    return action


def scheme_of(data: Path, env: str = "CartPole-v1", **changes: Any) -> prl.Scheme:
    algorithm = SMALL | {"test_every": 0, "return_scale": 10.0} | changes.pop("algorithm", {})
    actor = {"hidden_sizes": (8,), "normalize_observations": True} | changes.pop("actor", {})
    storage = {"size": 200, "sequences": prl.Episodes()} | changes.pop("storage", {})
    return prl.Scheme(
        prl.DecisionTransformer.create_factory(**algorithm),
        prl.OffPolicyActor.create_factory(**actor),
        prl.from_dataset(prl.ReplayBuffer.create_factory(**storage), data),
        test_envs_factory=prl.VecEnv.create_factory(env, 2, env_kwargs={"max_episode_steps": 15}),
        seed=1,
        **changes,
    )


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_loaded_policy_takes_the_actions_of_the_algorithms_evaluation(env: str, tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz", env)
    learner = prl.Learner(scheme_of(data, env), 10, tmp_path / "run")
    assert learner.run()
    learner.close()
    algorithm = learner.scheme.algorithm
    policy = prl.load_policy(tmp_path / "run")
    environment = gym.make(env, max_episode_steps=15)
    exploration = exploring(algorithm, 1, deterministic=True)
    for seed in range(2):
        policy.reset()
        observation, _ = environment.reset(seed=seed)
        reward, first = None, True
        for _ in range(15):
            action = policy(observation, rewards=reward)
            exploration.starts = torch.tensor([[float(first)]])
            exploration.rewards = None if reward is None else torch.tensor([[float(reward)]])
            obs = torch.as_tensor(observation)[None]
            expected = algorithm.acting_step(obs, None, exploration.starts, exploration).env_action
            np.testing.assert_allclose(np.ravel(action), expected[0].numpy(), rtol=1e-5)
            observation, reward, terminated, *_ = environment.step(action)
            first = False
            if terminated:
                break
    environment.close()


def test_a_policy_called_without_the_past_rewards_it_needs_raises_an_error(tmp_path: Path) -> None:
    policy = prl.TrainedPolicy(scheme_of(recorded(tmp_path / "data.npz")).algorithm)
    observation = np.zeros(4, np.float32)
    policy(observation)
    with pytest.raises(
        ValueError, match=r"DecisionTransformer conditions actions on past rewards.* policy\(observation, rewards=...\)"
    ):
        policy(observation)
    policy(observation, rewards=1.0)
    policy.reset()
    policy(observation)
    with pytest.raises(ValueError, match="DecisionTransformer chooses actions by what it keeps of earlier steps"):
        policy.export(tmp_path / "policy.pt2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"storage": {"sequences": None}},
            "learns from whole episodes, padded, but ReplayBuffer makes batches of single",
        ),
        ({"storage": {"sequences": prl.Sequences(4)}}, r"makes batches of Sequences\(length=4.*give it sequences=Epi"),
        ({"storage": {"sequences": prl.Episodes(packed=True)}}, r"packed=True.*; give it sequences=Episodes\(\)"),
        ({"storage": {"sequences": prl.Episodes(max_steps=4)}}, "learns from whole episodes"),
        ({"storage": {"sequences": prl.Episodes(whole=False)}}, "learns from whole episodes"),
        (
            {"actor": {"memory": "gru"}},
            "DecisionTransformer keeps its own context of past steps; leave out memory='gru'",
        ),
        (
            {"algorithm": {"gamma": 0.99}},
            "DecisionTransformer: gamma must be 1, for undiscounted returns-to-go, got 0.99",
        ),
        ({"algorithm": {"num_heads": 3}}, "the embedding size must be divisible by num_heads=3, got 4"),
    ],
)
def test_unsupported_sequences_actors_and_hyper_parameters_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    data = recorded(tmp_path / "data.npz")
    with pytest.raises(ValueError, match=message):
        scheme_of(data, **changes)


def test_an_n_step_storage_is_refused(tmp_path: Path) -> None:
    storage = prl.NStepReplayBuffer.create_factory(size=200, n_step=2, sequences=prl.Episodes())
    with pytest.raises(prl.CompositionError, match="sums rewards itself, but NStepReplayBuffer has n_step=2"):
        prl.Scheme(
            prl.DecisionTransformer.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.from_dataset(storage, recorded(tmp_path / "data.npz")),
        )


@pytest.mark.long
def test_it_reaches_its_target_return(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    envs = prl.VecEnv.create_factory(Chain, num_envs=4)
    collect_demonstrations(
        lambda seen: random.integers(0, 2, (len(seen), 1)), envs, path=tmp_path / "data.npz", episodes=800
    )
    scheme = prl.Scheme(
        prl.DecisionTransformer.create_factory(
            embedding_size=32, num_layers=2, context_length=8, return_scale=1.0, lr=1e-3, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(32,)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=12_000, sequences=prl.Episodes()), tmp_path / "data.npz"),
        test_envs_factory=prl.VecEnv.create_factory(Chain, num_envs=10),
        seed=1,
    )
    train(scheme, 1_000)
    reached = {}
    for target in (1.0, 0.1):
        scheme.algorithm.update_algorithm_parameter("target_return", target)
        reached[target] = scheme.evaluate(50).mean_return
    assert reached[1.0] > 0.8
    assert 0.05 < reached[0.1] < 0.3
