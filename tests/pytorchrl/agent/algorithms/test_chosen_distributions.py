"""Users choose the distribution of a policy's actions; stored log probabilities are those of the stored actions."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, LOGP
from tests.support.training import train

CONTINUOUS = [
    prl.heads.GaussianPolicy("state-dependent", bounded_mean=True),
    prl.heads.SquashedGaussianPolicy(),
    prl.heads.BetaPolicy(),
    prl.heads.GSDEPolicy(4),
    prl.heads.GSDEPolicy(4, squash=True),
]
DISCRETE = [prl.heads.SoftmaxPolicy(2.0, 0.05), prl.heads.MellowmaxPolicy()]
ALGORITHMS = {
    "PPO": prl.PPO,
    "A2C": prl.A2C,
    "TRPO": prl.TRPO,
    "REINFORCE": prl.REINFORCE,
}


def scheme_of(cls: Any, head: Any, storage: Any = prl.GAEBuffer, **others: Any) -> prl.Scheme:
    env = "CartPole-v1" if head in DISCRETE else "Pendulum-v1"
    return prl.Scheme(
        cls.create_factory(distribution=head, test_every=0, **others),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        storage.create_factory(size=16),
        prl.VecEnv.create_factory(env, 2),
        seed=1,
    )


@pytest.mark.parametrize("storage", [prl.GAEBuffer, prl.VTraceBuffer])
@pytest.mark.parametrize("head", [*CONTINUOUS, *DISCRETE], ids=repr)
def test_stored_log_probabilities_are_those_of_stored_actions(head: Any, storage: Any) -> None:
    scheme = scheme_of(prl.PPO, head, storage)
    scheme.collect(32)
    scheme.storage.before_gradients()
    rows = scheme.algorithm.read(next(scheme.storage.generate_batches(1, None, 1)))
    log_prob = scheme.algorithm.pi(rows.now).log_prob(rows.action)  # type: ignore[attr-defined]
    torch.testing.assert_close(log_prob, rows[LOGP], rtol=1e-5, atol=1e-5)
    space = scheme.algorithm.action_space
    assert not head.is_bounded or all(space.contains(action) for action in rows[ACT].numpy())
    scheme.close()


@pytest.mark.parametrize(
    ("name", "head"),
    [("PPO", DISCRETE[0]), ("A2C", CONTINUOUS[2]), ("TRPO", CONTINUOUS[3]), ("REINFORCE", CONTINUOUS[2])],
    ids=repr,
)
def test_policy_gradient_algorithms_train_every_chosen_distribution(name: str, head: Any) -> None:
    scheme = scheme_of(ALGORITHMS[name], head)
    before = scheme.algorithm.get_weights()
    train(scheme, 64)
    after = scheme.algorithm.get_weights()
    learnt = [key for key in before if key.startswith("networks.policy.head")]
    assert learnt
    for key in learnt:
        assert not torch.equal(before[key], after[key])
        assert after[key].isfinite().all()
    scheme.close()


def test_sac_refuses_distributions_without_bounded_support() -> None:
    for head in (prl.heads.Policy(), prl.heads.GaussianPolicy(bounded_mean=True), prl.heads.GSDEPolicy()):
        with pytest.raises(
            ValueError, match=r"SAC: distribution must have bounded support, .* GSDEPolicy\(squash=True\)"
        ):
            prl.SAC.create_factory(distribution=head)


def test_a_distribution_must_be_a_distribution_head_and_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="PPO: distribution must be a DistributionHead"):
        prl.PPO.create_factory(distribution=prl.Sample())  # type: ignore[arg-type]
    scheme = scheme_of(prl.PPO, prl.heads.BetaPolicy())
    with pytest.raises(ValueError, match="PPO: distribution is fixed"):
        scheme.algorithm.update_algorithm_parameter("distribution", prl.heads.Policy())
    scheme.close()


def matrices_of(scheme: prl.Scheme, steps: int) -> list[torch.Tensor]:
    """The noise matrices of every step."""
    matrices = []
    for _ in range(steps):
        scheme.collect(scheme.steps + 2)
        matrices.append(scheme.state_dict()["collector"]["exploration"]["state"]["SampleByMatrix"])
    return matrices


def test_each_environment_keeps_its_noise_matrix_for_the_chosen_number_of_steps() -> None:
    scheme = scheme_of(prl.A2C, prl.heads.GSDEPolicy(4))
    matrices = matrices_of(scheme, 12)
    assert matrices[0].shape == (2, 8, 1)
    assert not torch.equal(matrices[0][0], matrices[0][1])
    for step in range(1, 12):
        assert torch.equal(matrices[step], matrices[step - 1]) == (step % 4 != 0)
    again = scheme_of(prl.A2C, prl.heads.GSDEPolicy(4))
    assert all(torch.equal(one, other) for one, other in zip(matrices, matrices_of(again, 12), strict=True))
    scheme.close()
    again.close()


@pytest.mark.parametrize("stride", [0, 4], ids=["evaluation", "one of two collectors"])
def test_noise_matrices_are_kept_as_long_in_evaluations_and_collectors(stride: int) -> None:
    scheme = scheme_of(prl.A2C, prl.heads.GSDEPolicy(4))
    algorithm = scheme.algorithm
    exploration = Exploration(algorithm.codec, 2, "cpu", seed=1)
    exploration.steps, exploration.target_steps = 4 * 2, 100
    exploration.starts = torch.zeros(2, 1)
    matrices = []
    for _ in range(12):
        algorithm.acting_step(torch.ones(2, 3), None, exploration.starts, exploration)
        matrices.append(exploration.state["SampleByMatrix"])
        exploration.steps += stride
    for step in range(1, 12):
        assert torch.equal(matrices[step], matrices[step - 1]) == (step % 4 != 0)
    scheme.close()
