"""Which guide, which steps and when they stop; one formula under three engines."""

import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.search import engines
from numpyro_gp.gam.search.engines import by_stochastic_steps, rounded_away

RNG = np.random.default_rng(0)


def data(count, rows=60):
    found = {f"x{d}": RNG.uniform(size=rows) for d in range(count)}
    return found | {"y": 1 + 2 * found["x0"] + 0.3 * RNG.normal(size=rows), "g": np.arange(rows) % 3}


def test_a_long_fit_has_a_bar_on_a_terminal_and_none_in_a_log(capfd, monkeypatch):
    """Of 0 seconds in place of 2, so that this one is long."""
    table = data(1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    short = ngp.gam("y ~ s(x0)", table)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(engines, "DELAY", 0.0)
    shown = ngp.gam("y ~ s(x0)", table)
    assert f"{shown.result.losses[-1]:.5g}"[:4] in (told := capfd.readouterr().err)
    assert " steps [" in told
    np.testing.assert_array_equal(shown.result.losses, short.result.losses)
    ngp.gam("y ~ s(x0)", table, progress=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    ngp.gam("y ~ s(x0)", table)
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_a_fit_stops_by_itself_and_says_when_it_does_not():
    """The bound of a line and a constant is flat long before 2000 steps; the fit is that of least squares."""
    table = data(1)
    model = ngp.gam.model("y ~ linear(x0)", table)
    found = by_stochastic_steps(jax.random.key(0), model, None, None, False)
    assert found.steps <= 1200
    assert not found.notes
    short = by_stochastic_steps(jax.random.key(0), model, 100, None, False)
    assert "the bound still rose after 100 steps" in short.notes[0]
    batches = by_stochastic_steps(jax.random.key(0), model, 400, 20, False)
    X, y = model.arguments
    design = np.stack([np.ones(60), X[:, 0]], axis=1)
    line = design @ np.linalg.lstsq(design, np.asarray(y), rcond=None)[0]
    for one, tolerance in ((found, 0.02), (batches, 0.15)):
        mean = one.posterior.predict(jax.random.key(1), X).function_mean
        np.testing.assert_allclose(mean, line, atol=tolerance)


@pytest.mark.long
def test_minibatches_find_the_spread_of_groups():
    """They start where some rows have their mode; from the prior the spread stayed at three times what it is."""
    rng = np.random.default_rng(1)
    effects, shop, a = 0.4 * rng.normal(size=30), rng.integers(0, 30, 2000), rng.uniform(0, 10, 2000)
    table = {"a": a, "shop": shop, "y": 1 + 0.7 * np.sin(a) + effects[shop] + rng.normal(size=2000)}
    spread = [
        ngp.gam("y ~ s(a) + re(shop)", table, batch=batch, progress=False).coefficients()["sd of re(shop)"]
        for batch in (None, 250)
    ]
    np.testing.assert_allclose(spread[1].estimate, spread[0].estimate, rtol=0.1)
    np.testing.assert_allclose(spread[1].high - spread[1].low, spread[0].high - spread[0].low, rtol=0.3)


@pytest.mark.long
def test_one_formula_under_three_engines():
    """Terms agree within stated errors: a tenth of a deviation of the response, deviations within 35 %."""
    table = data(1, 40)
    fits = {
        engine: ngp.gam("y ~ linear(x0) + factor(g)", table, engine=engine, num_steps=steps, key=jax.random.key(2))
        for engine, steps in (("svi", None), ("nuts", 200), ("svgd", 20))
    }
    found = {engine: fit.terms() for engine, fit in fits.items()}
    spread = np.std(table["y"])
    for engine in ("svi", "svgd"):
        np.testing.assert_allclose(found[engine].mean, found["nuts"].mean, atol=0.1 * spread, err_msg=engine)
        ratio = np.median(found[engine].scale / found["nuts"].scale, axis=0)
        assert np.all((ratio > 0.65) & (ratio < 1.4)), (engine, ratio)
    assert [fit.posterior.kind for fit in fits.values()] == ["svi", "mcmc", "stein"]


@pytest.mark.parametrize(
    ("noise", "link", "is_noted"), [(1e-9, "identity", True), (1.0, "identity", False), (1e-9, "log", False)]
)
def test_a_level_that_leaves_no_digits_for_the_noise_is_noted(noise, link, is_noted):
    """Numbers near a million have steps of 2e-10 in double precision."""
    start, layout = SimpleNamespace(constant=0.0, noise=noise), SimpleNamespace(offsets=[0])
    rows = SimpleNamespace(X=np.full((3, 1), 1e6))
    model = SimpleNamespace(start=start, family=SimpleNamespace(link=link), layout=layout, rows=rows)
    assert bool(rounded_away(model)) == is_noted
    assert "Take the offset off it" in "".join(rounded_away(model)) or not is_noted
    start.constant, layout.offsets = 1e6, []
    assert bool(rounded_away(model)) == is_noted
    assert "Take 1e+06 off it" in "".join(rounded_away(model)) or not is_noted
