"""Single-path TRPO weights actions by the returns of complete episodes, and has no value function."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ADV, DONE2, MASK, OBS, RET, REW, TRUNC2, VAL
from tests.support.by_hand import numpy
from tests.support.toys import Noise

GAMMA = 0.9


def noise_scheme(memory: str | None = None, seed: int = 0, **hyper_parameters: Any) -> prl.Scheme:
    # An odd number of steps, some of which are dropped.
    return prl.Scheme(
        prl.TRPOSinglePath.create_factory(**{"gamma": GAMMA, "test_every": 0} | hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(5,), memory=memory, memory_size=4),
        prl.VanillaOnPolicyBuffer.create_factory(size=37, cut_episodes="drop"),
        prl.VecEnv.create_factory(Noise, 3),
        seed=seed,
    )


def returns_by_hand(data: Any) -> tuple[Any, Any]:
    """Sums of rewards to the end of each episode, (T, E), and whether it terminates within the rollout."""
    reward, terminated, cut = (numpy(data[key])[..., 0] for key in (REW, DONE2, TRUNC2))
    returns, kept = np.zeros(reward.shape), np.zeros(reward.shape, bool)
    for t, env in np.ndindex(*reward.shape):
        for later in range(t, len(reward)):
            returns[t, env] += GAMMA ** (later - t) * reward[later, env]
            if terminated[later, env] or cut[later, env]:
                kept[t, env] = bool(terminated[later, env])
                break
    return returns, kept


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("memory", [None, "gru", pytest.param("lstm", marks=pytest.mark.long)])
def test_the_step_is_the_natural_gradient_of_returns_of_terminated_episodes(memory: str | None) -> None:
    scheme = noise_scheme(memory, damping=0.1, cg_iterations=40, max_kl=1e-5)
    scheme.collect(111)
    algorithm, storage = scheme.algorithm, scheme.storage
    storage.before_gradients()
    data = storage.get_all_buffer_data()
    assert VAL not in data
    returns, kept = returns_by_hand(data)
    assert 10 < kept.sum() < kept.size
    (batch,) = algorithm.batches(storage)
    if memory:
        order = [int((data[OBS][0] == batch[OBS][0, column]).all(1).nonzero()[0]) for column in range(3)]
        np.testing.assert_array_equal(batch[MASK][..., 0], kept[:, order])
        np.testing.assert_allclose(batch[RET][batch[MASK] == 1], returns[:, order][kept[:, order]], rtol=1e-5)
    else:
        assert sorted(batch[RET].ravel().tolist()) == pytest.approx(sorted(returns[kept]), rel=1e-5)
    assert torch.equal(batch[ADV], batch[RET])

    # The Fisher information of all rows and the gradient, by automatic differentiation of each row.
    rows = algorithm.read(batch)
    parameters = [p for p in algorithm.pi.parameters() if p.requires_grad]
    flat = lambda gradients: torch.cat([g.ravel() for g in gradients])  # noqa: E731
    policy = algorithm.pi(rows.now)
    learnt = (batch[MASK].reshape(-1) == 1).nonzero()[:, 0] if memory else torch.arange(len(rows))
    fisher: Any = 0.1 * torch.eye(sum(p.numel() for p in parameters), dtype=torch.float64)
    gradient = torch.zeros(len(fisher), dtype=torch.float64)
    for row in learnt.tolist():
        for action in range(2):
            log_prob = policy.log_probs[row, action]
            score = flat(torch.autograd.grad(log_prob, parameters, retain_graph=True)).double()
            fisher += log_prob.exp().detach() * torch.outer(score, score) / len(learnt)
            if action == int(rows.action[row, 0]):
                gradient += float(rows[RET][row, 0]) * score / len(learnt)
    direction = torch.linalg.solve(fisher, gradient)
    step = torch.sqrt(2e-5 / (direction @ fisher @ direction)) * direction
    before = flat([p.detach().clone() for p in parameters])
    fraction = float(algorithm.update(batch).metrics["step_fraction"])
    assert fraction > 0.3
    torch.testing.assert_close(
        (flat(parameters).detach() - before).double(), fraction * step, rtol=5e-2, atol=float(step.abs().max()) * 2e-2
    )


def test_storages_that_bootstrap_returns_from_values_are_refused() -> None:
    for storage in (prl.GAEBuffer, prl.VanillaOnPolicyBuffer, prl.VTraceBuffer):
        with pytest.raises(prl.CompositionError, match=r"TRPOSinglePath has no value function.*cut_episodes='drop'"):
            prl.Scheme(
                prl.TRPOSinglePath.create_factory(),
                prl.OnPolicyActor.create_factory(),
                storage.create_factory(size=8),
                prl.VecEnv.create_factory(Noise),
            )
