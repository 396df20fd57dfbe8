"""Risk measures distort quantile fractions by their papers' formulas, checked by closed forms and by integration."""

import math
from statistics import NormalDist
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import pytorchrl as prl
from pytorchrl.agent.risk_measures import CPW, CVaR, Neutral, RiskMeasure, Wang
from storages.component.setting import plain
from tests.support.profiles import examples

few = settings(max_examples=examples(60), deadline=None)
MIDPOINTS = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
RISKS: list[RiskMeasure] = [Neutral(), CVaR(0.25), CVaR(1.0), CPW(), CPW(1.0), CPW(1.5), Wang(-0.75), Wang(1.5)]
every_risk = pytest.mark.parametrize("risk", RISKS, ids=str)


def distorted(risk: RiskMeasure, fraction: float) -> float:
    return risk.distort(torch.tensor([fraction], dtype=torch.float64)).item()


@few
@given(st.floats(0, 1), st.floats(0.01, 1))
def test_cvar_scales_fractions_by_eta(fraction: float, eta: float) -> None:
    assert distorted(CVaR(eta), fraction) == pytest.approx(eta * fraction)


@few
@given(st.floats(0, 1), st.floats(0.3, 3))
def test_cpw_is_the_weighting_of_tversky_and_kahneman(fraction: float, eta: float) -> None:
    slow = fraction**eta / (fraction**eta + (1 - fraction) ** eta) ** (1 / eta)
    assert distorted(CPW(eta), fraction) == pytest.approx(slow)


@few
@given(st.floats(0.001, 0.999), st.floats(-2, 2))
def test_wang_shifts_normal_quantiles(fraction: float, eta: float) -> None:
    normal = NormalDist()
    assert distorted(Wang(eta), fraction) == pytest.approx(normal.cdf(normal.inv_cdf(fraction) + eta))


@every_risk
def test_distorted_fractions_start_at_zero_and_increase(risk: RiskMeasure) -> None:
    found = risk.distort(torch.linspace(0, 1, 101))
    assert found.dtype == torch.float32
    assert found[0] == 0
    assert found[-1].item() == pytest.approx(getattr(risk, "eta", 1.0) if isinstance(risk, CVaR) else 1.0)
    assert (found.diff() > 0).all()


def test_measures_with_a_neutral_eta_equal_the_neutral_measure() -> None:
    fractions = torch.rand(50, dtype=torch.float64)
    for risk in (CVaR(1.0), CPW(1.0), Wang(0.0)):
        torch.testing.assert_close(risk.distort(fractions), Neutral().distort(fractions))


@pytest.mark.parametrize("eta", [0.05, 0.3, 1.0])
def test_cvar_of_normal_returns_is_the_mean_below_their_quantile(eta: float) -> None:
    normal = NormalDist(2.0, 3.0)
    found = np.mean([normal.inv_cdf(fraction) for fraction in CVaR(eta).distort(MIDPOINTS).tolist()])
    standard = NormalDist()
    # The mean of a normal variable below its quantile: mu - sigma * phi(Phi^-1(eta)) / eta.
    expected = 2.0 if eta == 1 else 2.0 - 3.0 * standard.pdf(standard.inv_cdf(eta)) / eta
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("eta", [-0.75, 0.0, 1.5])
def test_wang_shifts_the_mean_of_normal_returns_by_eta_standard_deviations(eta: float) -> None:
    normal = NormalDist(2.0, 3.0)
    found = np.mean([normal.inv_cdf(fraction) for fraction in Wang(eta).distort(MIDPOINTS).tolist()])
    assert found == pytest.approx(2.0 + 3.0 * eta, abs=0.02)


@pytest.mark.parametrize("eta", [0.5, 0.71])
def test_cpw_of_exponential_returns_agrees_with_integration_by_parts(eta: float) -> None:
    returns = -torch.log1p(-CPW(eta).distort(MIDPOINTS))
    # The mean of positive returns is the integral over them of 1 - beta^-1(F(x)); here numerically.
    fractions = np.linspace(0, 1, 200_001)[1:-1]
    weight = fractions**eta / (fractions**eta + (1 - fractions) ** eta) ** (1 / eta)
    seen = np.linspace(0, 30, 100_001)
    below = np.interp(1 - np.exp(-seen), weight, fractions)
    assert returns.mean().item() == pytest.approx(np.trapezoid(1 - below, seen), rel=0.01)


@pytest.mark.parametrize(
    ("risk", "arguments", "message"),
    [
        (CVaR, (0.0,), "CVaR: eta must be greater than 0, got 0.0"),
        (CVaR, (1.2,), r"CVaR: eta must lie in \[0, 1\], got 1.2"),
        (CPW, (0.0,), "CPW: eta must be greater than 0, got 0"),
        (Wang, (None,), "Wang: eta must be a float, got None"),
    ],
)
def test_an_eta_out_of_range_is_refused(risk: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        risk(*arguments)


def test_risk_measures_compare_by_value_and_are_described_by_plain_data() -> None:
    assert prl.risk_measures.CVaR(0.25) == CVaR(0.25)
    assert plain(CVaR(0.25)) == {"name": "CVaR", "hyper_parameters": {"eta": 0.25}}
    assert math.isclose(CPW().eta, 0.71)
