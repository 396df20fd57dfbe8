"""DreamerV3's losses equal those of plain loops over states, steps and rows."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import pytorchrl as prl
from pytorchrl.agent.actors.heads.two_hot import TwoHotPrediction
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.model_based import imagination, replayed_latents
from pytorchrl.agent.algorithms.model_based.latent_states import Latent, divergence, drawn, mixed_with_uniform
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from storages.transition import (
    ACT,
    BATCH_SIZES,
    BURN_IN,
    DISCOUNT,
    DONE,
    EPISODE,
    ERRORS,
    INDICES,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    WEIGHTS,
)
from tests.support.by_hand import envs_with, numpy, perturb
from tests.support.every_algorithm import ACTIONS
from tests.support.lessons import Wandering

LATENTS, CLASSES, BINS, MEMORY = 3, 4, 9, 6
SMALL: dict[str, Any] = {
    "num_latents": LATENTS,
    "num_classes": CLASSES,
    "num_bins": BINS,
    "horizon": 4,
    "gamma": 0.9,
    "start_steps": 60,
    "update_every": 6,
    "mini_batch_size": 5,
    "test_every": 0,
}
SEQUENCES: dict[str, Any] = {
    "within episodes": prl.Sequences(7),
    "across episodes": prl.Sequences(12, across_episodes=True),
    "burn-in": prl.Sequences(4, burn_in=6, across_episodes=True),
    "burn-in within episodes": prl.Sequences(4, burn_in=3, overlap=1),
    "episodes": prl.Episodes(whole=False),
    "packed": prl.Episodes(packed=True, whole=False),
}


def scheme_of(sequences: Any = None, actions: str = "discrete", memory: Any = "gru", **changes: Any) -> prl.Scheme:
    actor = {"hidden_sizes": (8, 5), "activation": "silu", "layer_norm": True, "memory": memory, "memory_size": MEMORY}
    storage = prl.PERBuffer.create_factory(
        size=40, n_step=changes.pop("n_step", 1), alpha=0.6, beta=0.5, sequences=sequences or prl.Sequences(5)
    )
    return prl.Scheme(
        prl.DreamerV3.create_factory(**SMALL | changes),
        prl.OffPolicyActor.create_factory(**actor),
        storage,
        prl.VecEnv.create_factory(Wandering, 3, env_kwargs={"actions": ACTIONS[actions]}),
        seed=1,
    )


def lesson(sequences: Any = None, actions: str = "discrete", **changes: Any) -> tuple[Any, dict[str, Any]]:
    """An algorithm whose weights are far from the initial ones, and a batch of its storage."""
    with scheme_of(sequences, actions, **changes) as scheme:
        while scheme.steps < 60:
            scheme.collect(scheme.steps + 3)
        algorithm: Any = scheme.algorithm
        perturb(algorithm.actor, 1, 0.3)
        perturb(algorithm.average_critic, 2, 0.3)
        batch = next(iter(scheme.storage.generate_batches(1, 5)))
    batch[WEIGHTS] = torch.linspace(0.5, 1.5, len(batch[WEIGHTS]))[:, None]
    return algorithm, batch


def most_likely(generator: Any) -> Any:
    """A draw in the place of a random one, so that loops infer the same states."""
    return lambda logits: logits.argmax(-1)


# Latent states


def inferred_by_hand(algorithm: Any, batch: dict[str, Any], row: int) -> list[dict[str, Any]]:
    """The latent states before and after each step of one sequence, step by step."""
    model = algorithm.model
    steps = [_step(batch, position) for position in _positions(batch, row)]
    states = batch[BURN_IN][RHS] if BURN_IN in batch else batch[RHS]
    state = states[row][None, model.stored_at]
    earlier = []
    if BURN_IN in batch:
        burn_in = batch[BURN_IN]
        earlier = [
            {key: burn_in[key][step, row][None] for key in (OBS, ACT, DONE)}
            for step in range(len(burn_in[MASK]))
            if burn_in[MASK][step, row]
        ]
    found, latent = [], None
    for number, step in enumerate([*earlier, *steps]):
        is_new = latent is None or bool(step[DONE]) or number == len(earlier)
        before = latent
        if is_new:
            recurrent = state * (1 - step[DONE])
            logits = model.posterior(recurrent, model.encoder(step[OBS]))
            before = drawn(recurrent, logits, most_likely(None))
            step["first"] = logits
        assert before is not None
        state = model.advance(before, algorithm.codec.from_storage(step[ACT]))
        if number < len(earlier):
            latent = None
            continue
        logits = model.posterior(state, model.encoder(step[OBS2]))
        latent = drawn(state, logits, most_likely(None))
        found.append(step | {"now": before, "after": latent, "logits": logits})
    return found


def _positions(batch: dict[str, Any], row: int) -> list[Any]:
    if BATCH_SIZES in batch:
        return [(int(n),) for n in (batch[EPISODE][:, 0] == row).nonzero()[:, 0]]
    return [(t, row) for t in range(len(batch[MASK])) if batch[MASK][t, row]]


def _step(batch: dict[str, Any], position: Any) -> dict[str, Any]:
    return {key: batch[key][position][None] for key in (OBS, OBS2, ACT, REW, DISCOUNT, DONE)} | {"at": position}


def row_of(batch: dict[str, Any], position: Any) -> int:
    """The number of a step among the rows of a batch."""
    return position[0] if len(position) == 1 else position[0] * batch[MASK].shape[1] + position[1]


@pytest.mark.parametrize("actions", ["discrete", "bounded", "several"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_latent_states_equal_those_inferred_step_by_step(
    name: str, actions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed_latents, "random_draw", most_likely)
    algorithm, batch = lesson(SEQUENCES[name], actions)
    rows = algorithm.read(batch)
    with torch.no_grad():
        replayed = replayed_latents.replay(algorithm.model, rows, algorithm.generator)
        firsts = {int(first): number for number, first in enumerate(replayed.firsts) if replayed.is_first[number]}
        expected_firsts = set()
        for row in range(len(batch[WEIGHTS])):
            for step in inferred_by_hand(algorithm, batch, row):
                at = row_of(batch, step["at"])
                for found, expected in ((replayed.now, step["now"]), (replayed.inferred, step["after"])):
                    torch.testing.assert_close(found.features[at], expected.features[0], rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(replayed.logits[at], step["logits"][0], rtol=1e-4, atol=1e-5)
                if "first" in step:
                    expected_firsts.add(at)
                    position = len(rows) + firsts[at]
                    torch.testing.assert_close(replayed.logits[position], step["first"][0], rtol=1e-4, atol=1e-5)
    if MASK in batch:
        real = {int(at) for at in batch[MASK].flatten().nonzero()[:, 0]}
        assert set(firsts) & real == expected_firsts
    else:
        assert set(firsts) == expected_firsts


def test_recurrent_states_are_stored_as_those_that_follow_the_actions_taken() -> None:
    with scheme_of(prl.Sequences(4)) as scheme:
        algorithm: Any = scheme.algorithm
        taken: list[Any] = []
        infer = algorithm.model.latent_of

        def noted(*arguments: Any) -> Latent:
            latent: Latent = infer(*arguments)
            taken.append(latent)
            return latent

        algorithm.model.latent_of = noted
        while scheme.steps < 30:
            scheme.collect(scheme.steps + 3)
        stored = {
            key: torch.from_numpy(np.asarray(value)) for key, value in scheme.storage.get_all_buffer_data().items()
        }
        before, after = stored[RHS], stored[RHS2]
        for step, latent in enumerate(taken):
            begins = before[step] * (1 - stored[DONE][step].float())
            torch.testing.assert_close(latent.recurrent, begins)
            with torch.no_grad():
                followed = algorithm.model.advance(latent, stored[ACT][step])
            torch.testing.assert_close(after[step], followed, rtol=1e-4, atol=1e-6)
        assert stored[DONE][1:].any()
        assert before[1:].any()


def test_states_are_drawn_by_their_probabilities_and_have_their_gradients() -> None:
    algorithm, _ = lesson()
    logits = mixed_with_uniform(torch.tensor([[[2.0, 0.0, -1.0, 0.0]]]).expand(4_000, 1, 4), 0.01)
    logits.requires_grad_()
    draw = replayed_latents.random_draw(algorithm.generator)
    latent = drawn(torch.zeros(4_000, 2), logits, draw)
    chosen = latent.stochastic.detach()
    assert torch.equal(chosen.round(), chosen.clamp(0, 1).round())
    torch.testing.assert_close(chosen.sum(1), torch.ones(4_000))
    probabilities = logits[0, 0].detach().exp()
    torch.testing.assert_close(chosen.mean(0), probabilities, rtol=0, atol=0.03)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    (gradient,) = torch.autograd.grad((latent.stochastic * weights).sum(), logits)
    torch.testing.assert_close(gradient[0, 0], weights * probabilities)


def test_distributions_have_a_share_of_the_uniform_one() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 2, 4)) * 10
    plain = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = mixed_with_uniform(torch.from_numpy(logits), 0.01).exp().numpy()
    np.testing.assert_allclose(found, 0.99 * plain + 0.01 / 4)
    assert found.min() > 0.01 / 4


# Losses of the model


def kl(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """The divergence of several categorical distributions, one by one."""
    return sum(
        float(p) * (np.log(float(p)) - np.log(float(q)))
        for mine, other in zip(np.exp(ours), np.exp(theirs), strict=True)
        for p, q in zip(mine, other, strict=True)
    )


def two_hot_cross_entropy(logits: NDArray[Any], number: float) -> float:
    """The cross-entropy of the code of a number, whose two weights interpolate between the bins next to it."""
    spaced = np.linspace(-20, 20, len(logits))
    bins = np.sign(spaced) * (np.exp(np.abs(spaced)) - 1)
    log_probs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    above = min(int(np.sum(bins <= number)), len(bins) - 1)
    share = (number - bins[above - 1]) / (bins[above] - bins[above - 1])
    return -float((1 - share) * log_probs[above - 1] + share * log_probs[above])


def symlog(numbers: NDArray[Any]) -> NDArray[Any]:
    result: NDArray[Any] = np.sign(numbers) * np.log(np.abs(numbers) + 1)
    return result


@pytest.mark.parametrize("name", ["within episodes", "across episodes", "packed"])
@pytest.mark.parametrize("free_nats", [0.0, 0.3])
def test_the_loss_of_the_model_is_the_papers(name: str, free_nats: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed_latents, "random_draw", most_likely)
    settings = {"free_nats": free_nats, "dynamics_weight": 0.7, "representation_weight": 0.2}
    algorithm, batch = lesson(SEQUENCES[name], **settings)
    model, total, weights = algorithm.model, 0.0, 0.0
    losses = algorithm.losses(algorithm.read(batch))

    def of_state(latent: Latent, logits: Tensor, observation: Tensor) -> float:
        (predicted,) = model.decoder(Observations(latent.features))
        squares = ((numpy(predicted)[0] - symlog(numpy(observation)[0])) ** 2).sum()
        divergence = max(kl(numpy(logits)[0], numpy(model.prior(latent.recurrent))[0]), free_nats)
        return float(squares) + (0.7 + 0.2) * divergence

    with torch.no_grad():
        for row in range(len(batch[WEIGHTS])):
            steps = inferred_by_hand(algorithm, batch, row)
            weights += len(steps)
            for step in steps:
                loss = of_state(step["after"], step["logits"], step[OBS2])
                if "first" in step:
                    loss += of_state(step["now"], step["first"], step[OBS])
                features = step["after"].features
                at_reward = two_hot_cross_entropy(
                    numpy(model.reward(Observations(features)).logits)[0], float(step[REW])
                )
                logit = float(model.goes_on(Observations(features)))
                of_end = np.log1p(np.exp(-logit if step[DISCOUNT] else logit))
                total += float(batch[WEIGHTS][row]) * (loss + at_reward + of_end)
                if "first" not in step:
                    error = losses.errors[step["at"]] if losses.errors is not None else None
                    assert error == pytest.approx(loss + at_reward + of_end, rel=1e-4)
    assert float(losses.metrics["model_loss"]) == pytest.approx(total / weights, rel=1e-4)
    assert ERRORS in prl.Result({}, losses.errors).info


@pytest.mark.parametrize("free_nats", [0.0, 1e3])
def test_each_divergence_trains_one_side_and_neither_below_the_free_nats(free_nats: float) -> None:
    algorithm, batch = lesson()
    rows, model = algorithm.read(batch), algorithm.model
    parts = replayed_latents.model_losses(
        model, rows, replayed_latents.replay(model, rows, algorithm.generator), free_nats
    )
    prior = list(model._prior.parameters())
    of_prior = torch.autograd.grad(parts.dynamics.sum(), prior, retain_graph=True, allow_unused=True)
    others = torch.autograd.grad(parts.representation.sum(), prior, retain_graph=True, allow_unused=True)
    posterior = list(model._posterior.parameters())
    of_posterior = torch.autograd.grad(parts.representation.sum(), posterior, allow_unused=True)
    moves = [any(each is not None and each.any() for each in one) for one in (of_prior, others, of_posterior)]
    assert moves == [free_nats == 0, False, free_nats == 0]


def test_a_divergence_is_zero_of_equal_distributions_alone() -> None:
    logits = mixed_with_uniform(torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), 0.01)
    torch.testing.assert_close(divergence(logits, logits), torch.zeros(2, 1))
    assert (divergence(logits, logits.flip(0)) > 0.1).all()


# Imagined sequences


def test_lambda_returns_are_weighted_means_of_n_step_returns() -> None:
    random, steps, share = np.random.default_rng(0), 6, 0.8
    reward, discount = random.normal(size=(steps, 3, 1)), random.uniform(0.5, 1, (steps, 3, 1))
    values = random.normal(size=(steps + 1, 3, 1))
    found = imagination.lambda_returns(*map(torch.from_numpy, (reward, discount, values)), share)

    def n_step_return(begin: int, count: int) -> NDArray[Any]:
        total, factor = np.zeros((3, 1)), np.ones((3, 1))
        for step in range(begin, begin + count):
            total = total + factor * reward[step]
            factor = factor * discount[step]
        result: NDArray[Any] = total + factor * values[begin + count]
        return result

    for begin in range(steps):
        left = steps - begin
        expected = share ** (left - 1) * n_step_return(begin, left)
        for count in range(1, left):
            expected = expected + (1 - share) * share ** (count - 1) * n_step_return(begin, count)
        np.testing.assert_allclose(found[begin].numpy(), expected)


def test_the_scale_of_returns_follows_their_percentiles_without_padding() -> None:
    scale, random, low, high = imagination.ReturnScale(), np.random.default_rng(0), 0.0, 0.0
    for _ in range(3):
        returns = random.normal(scale=5, size=(4, 20, 1)).astype(np.float32)
        real = np.arange(20)[:, None] < 15
        padded = np.where(real, returns, 1e9).astype(np.float32)
        found = float(scale(torch.from_numpy(padded), torch.from_numpy(real)))
        low = 0.99 * low + 0.01 * float(np.percentile(returns[:, :15], 5))
        high = 0.99 * high + 0.01 * float(np.percentile(returns[:, :15], 95))
        assert found == pytest.approx(high - low, rel=1e-4)
    whole = imagination.ReturnScale()
    assert float(whole(torch.from_numpy(returns), None)) == pytest.approx(
        0.01 * float(np.percentile(returns, 95) - np.percentile(returns, 5)), rel=1e-4
    )


@pytest.mark.parametrize("actions", ["discrete", "bounded"])
def test_imagined_sequences_follow_policy_and_prior(actions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagination, "random_draw", most_likely)
    algorithm, batch = lesson(actions=actions)
    model = algorithm.model
    with torch.no_grad():
        start = replayed_latents.replay(model, algorithm.read(batch), algorithm.generator).now
        imagined = imagination.imagine(model, start, algorithm.pi, 4, 0.9, algorithm.generator)
        latent = start
        for step in range(4):
            torch.testing.assert_close(imagined.features[step], latent.features)
            recurrent = model.sequence(*latent, algorithm.codec.features(algorithm.codec.clip(imagined.action[step])))
            latent = drawn(recurrent, model.prior(recurrent), most_likely(None))
            torch.testing.assert_close(
                imagined.reward[step], model.reward(Observations(latent.features)).mean, rtol=1e-3, atol=1e-3
            )
            torch.testing.assert_close(
                imagined.discount[step], 0.9 * torch.sigmoid(model.goes_on(Observations(latent.features)))
            )
        torch.testing.assert_close(imagined.features[4], latent.features)


@pytest.mark.parametrize("sequences", ["within episodes", "across episodes", "packed"])
@pytest.mark.parametrize("actions", ["discrete", "bounded"])
def test_losses_of_policy_and_critic_are_the_papers(actions: str, sequences: str) -> None:
    settings = {"entropy_coef": 0.02, "target_weight": 0.6, "smallest_scale": 1e-3, "trace_lambda": 0.7}
    algorithm, batch = lesson(SEQUENCES[sequences], actions, replay_value_weight=0.4, **settings)
    rows = algorithm.read(batch)
    start = replayed_latents.replay(algorithm.model, rows, algorithm.generator).now.detach()
    imagined = imagination.imagine(algorithm.model, start, algorithm.pi, 4, 0.9, algorithm.generator)
    policy_loss, value_loss, metrics = algorithm.behaviour_losses(imagined, rows)

    features = imagined.features.detach()
    with torch.no_grad():
        critic: TwoHotPrediction = algorithm.critic(Observations(features.flatten(0, 1)))
        logits, values = (numpy(each).reshape(5, len(rows), -1) for each in (critic.logits, critic.mean))
        average = numpy(algorithm.average_critic(Observations(features.flatten(0, 1))).mean).reshape(5, len(rows))
    reward, discount = numpy(imagined.reward)[..., 0], numpy(imagined.discount)[..., 0]
    returns = np.zeros((5, len(rows)))
    returns[4] = values[4, :, 0]
    for step in (3, 2, 1, 0):
        returns[step] = reward[step] + discount[step] * (0.3 * values[step + 1, :, 0] + 0.7 * returns[step + 1])
    real = [row_of(batch, position) for row in range(5) for position in _positions(batch, row)]
    low, high = (np.percentile(returns[:4, real], percent) for percent in (5, 95))
    scale = max(1e-3, 0.01 * (high - low))
    expected_policy, expected_value = 0.0, 0.0
    for row in real:
        reached = 1.0
        for step in range(4):
            advantage = (returns[step, row] - values[step, row, 0]) / scale
            log_prob, entropy = likelihood_by_hand(algorithm, features[step, row], imagined.action[step, row])
            expected_policy -= reached * (log_prob * advantage + 0.02 * entropy)
            expected_value += reached * two_hot_cross_entropy(logits[step, row], returns[step, row])
            expected_value += reached * 0.6 * two_hot_cross_entropy(logits[step, row], average[step, row])
            reached *= discount[step, row]
    expected_replay = 0.0
    for row, target in replayed_returns_by_hand(batch, returns[0], share=0.7).items():
        expected_replay += two_hot_cross_entropy(logits[0, row], target)
        expected_replay += 0.6 * two_hot_cross_entropy(logits[0, row], average[0, row])
    assert float(policy_loss.detach()) == pytest.approx(expected_policy / len(real) / 4, rel=1e-3)
    expected = expected_value / len(real) / 4 + 0.4 * expected_replay / len(real)
    assert float(value_loss.detach()) == pytest.approx(expected, rel=1e-3)
    assert float(metrics["return_scale"]) == pytest.approx(scale, rel=1e-4)


def replayed_returns_by_hand(batch: dict[str, Any], values: NDArray[Any], share: float) -> dict[int, float]:
    """Lambda returns of the steps whose successor is in the batch, or which end their episode, by row."""
    found: dict[int, float] = {}
    for sequence in range(5):
        after = None
        for position in reversed(_positions(batch, sequence)):
            row, step = row_of(batch, position), _step(batch, position)
            if float(step[DISCOUNT]) == 0:
                found[row] = float(step[REW])
            elif after is not None and not float(batch[DONE][after]):
                following = row_of(batch, after)
                next_return = share * found.get(following, values[following]) + (1 - share) * values[following]
                found[row] = float(step[REW]) + 0.9 * next_return
            after = position
    assert len(found) > 5
    return found


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("sequences", SEQUENCES)
def test_replayed_returns_are_those_of_received_rewards_and_the_values_of_next_steps(
    sequences: str, is_truncated: bool
) -> None:
    algorithm, batch = lesson(SEQUENCES[sequences])
    if is_truncated:
        # Episodes end without a termination, and the last step's return is not known.
        batch[DISCOUNT] = torch.full_like(batch[DISCOUNT], 0.9)
    rows = algorithm.read(batch)
    values = torch.linspace(-3, 3, len(rows)).unsqueeze(1)
    returns, is_known = replayed_latents.replayed_returns(rows, values, 0.7)
    expected = replayed_returns_by_hand(batch, numpy(values)[:, 0], share=0.7)
    real = {row_of(batch, position) for row in range(5) for position in _positions(batch, row)}
    assert {row for row in real if is_known[row, 0]} == expected.keys()
    for row, target in expected.items():
        assert float(returns[row, 0]) == pytest.approx(target, rel=1e-5)


@pytest.mark.parametrize("by_worker", [False, True])
@pytest.mark.parametrize("refreshes", [True, False])
def test_an_update_replaces_stored_states_by_those_that_it_inferred(
    refreshes: bool, by_worker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed_latents, "random_draw", most_likely)
    with scheme_of(SEQUENCES["across episodes"], refresh_states=refreshes) as scheme:
        while scheme.steps < 60:
            scheme.collect(scheme.steps + 3)
        algorithm: Any = scheme.algorithm
        perturb(algorithm.actor, 1, 0.3)
        batch = next(iter(scheme.storage.generate_batches(1, 1)))
        with torch.no_grad():
            inferred = replayed_latents.replay(algorithm.model, algorithm.read(batch), algorithm.generator).now
        before = scheme.storage.get_all_buffer_data()[RHS].clone()
        result = algorithm.compute_gradients(batch)[1] if by_worker else algorithm.update(batch)
        scheme.storage.after_gradients(batch, result.info)
        after = scheme.storage.get_all_buffer_data()[RHS]
        begin = int(batch[INDICES][0, 0])
        for step in range(1, len(batch[DONE])):
            place = divmod(begin + 3 * step, 3)
            is_replaced = refreshes and not float(batch[DONE][step, 0])
            expected = inferred.recurrent[step] if is_replaced else before[place]
            torch.testing.assert_close(after[place], expected)


def likelihood_by_hand(algorithm: Any, features: Tensor, action: Tensor) -> tuple[float, float]:
    """The log probability of an action, and the policy's entropy."""
    with torch.no_grad():
        numbers = numpy(algorithm.pi.head.layer(algorithm.pi.body(features[None])))[0]
    if action.dtype == torch.int64:
        plain = np.exp(numbers) / np.exp(numbers).sum()
        probabilities = 0.99 * plain + 0.01 / len(plain)
        return float(np.log(probabilities[int(action)])), float(-(probabilities * np.log(probabilities)).sum())
    mean, deviation = np.split(numbers, 2)
    mean, deviation = np.tanh(mean), 0.1 + 0.9 / (1 + np.exp(-(deviation + 2)))
    deviations = (numpy(action) - mean) / deviation
    log_prob = -0.5 * deviations**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)
    return float(log_prob.sum()), float((np.log(deviation) + 0.5 * np.log(2 * np.pi * np.e)).sum())


def test_an_update_trains_each_network_by_its_own_loss() -> None:
    algorithm, batch = lesson(SEQUENCES["across episodes"])
    losses = algorithm.losses(algorithm.read(batch))
    groups = {group.name: list(group.parameters.values()) for group in losses.of}
    assert set(groups) == {"model", "policy", "critic"}
    for group, loss in losses.of.items():
        for name, parameters in groups.items():
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            assert any(each is not None for each in gradients) == (name == group.name)


# Acting


def test_recorded_actions_determine_recurrent_states() -> None:
    with scheme_of() as scheme:
        algorithm: Any = scheme.algorithm
        taken = prl.Exploration(algorithm.codec, 2, "cpu", seed=0, deterministic=True)
        obs, done = torch.ones(2, 2), torch.ones(2, 1)
        states = []
        for actions in (None, torch.tensor([[0], [1]]), torch.tensor([[2], [1]])):
            taken.seed(0)
            taken.taken = actions
            states.append(algorithm.acting_step(obs, algorithm.actor.initial_memory(2), done, taken).rhs)
        assert not torch.equal(states[1][0], states[2][0])
        torch.testing.assert_close(states[1][1], states[2][1])


def test_latent_states_are_drawn_from_a_seed_where_actions_are_deterministic() -> None:
    with scheme_of(actions="bounded") as scheme:
        perturb(scheme.actor, 0, 1.0)
        before, obs = scheme.algorithm.random_state(), np.ones((4, 2), np.float32)
        actions = []
        for seed in (5, 5, 6):
            policy = TrainedPolicy(scheme.algorithm)
            actions.append(np.stack([policy(obs, seed=seed) for _ in range(3)]))
        np.testing.assert_array_equal(actions[0], actions[1])
        assert (actions[0] != actions[2]).any()
        assert all(map(torch.equal, scheme.algorithm.random_state(), before))


# Refusals


@pytest.mark.parametrize("memory", [None, "lstm", ("gru", "gru")])
def test_memories_other_than_one_gru_are_refused(memory: Any) -> None:
    envs = envs_with(ACTIONS["discrete"])
    with pytest.raises(ValueError, match=r'^DreamerV3: the recurrent state .* give the actor memory="gru", got'):
        prl.DreamerV3.create_factory()("cpu", prl.OffPolicyActor.create_factory(memory=memory)("cpu", envs), envs)


def test_a_distribution_of_a_bounded_box_is_on_the_scale_of_its_bounds() -> None:
    with pytest.raises(ValueError, match="DreamerV3: distribution must be of scaled actions"):
        scheme_of(actions="bounded", distribution=prl.heads.Policy())
    scheme_of(actions="bounded", distribution=prl.heads.SquashedGaussianPolicy()).close()


def test_several_steps_in_a_row_of_a_batch_are_refused() -> None:
    with pytest.raises(prl.CompositionError, match="DreamerV3 learns from one-step transitions"):
        scheme_of(n_step=3)
