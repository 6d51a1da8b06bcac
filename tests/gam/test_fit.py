"""``ngp.gam`` is a module and a function; its arguments, and a fit from a table to predictions."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.model.families import NAMED
from tests.compiling import counted
from tests.precision import x64

RNG = np.random.default_rng(0)
DATA = {"x": RNG.uniform(size=150), "g": np.array(list("abc") * 50)}
DATA["y"] = np.sin(6 * DATA["x"]) + (DATA["g"] == "b") + 0.2 * RNG.normal(size=150)


def test_fits_and_summaries_of_all_families_compile_nothing():
    """But for the key of what comes after the fit, of the first one."""
    labels, shares, counts = (DATA["y"] > 0.5).astype(float), 1 / (1 + np.exp(-DATA["y"])), np.round(np.exp(DATA["y"]))
    of_all = {"student_t": DATA["y"], "poisson": counts, "negative_binomial": counts, "bernoulli": labels}
    of_all |= dict.fromkeys(("gamma", "exponential"), np.exp(DATA["y"])) | {"beta": shares, "binomial": counts}
    of_all |= {"categorical": DATA["g"]}
    assert {*of_all, "gaussian"} == {*NAMED}
    ngp.gam("y ~ 1", DATA).summary()
    with counted() as programs:
        for family, y in of_all.items():
            trials = "n" if family == "binomial" else None
            fit = ngp.gam("y ~ linear(x)", DATA | {"y": y, "n": np.full(150, counts.max())}, family, trials=trials)
            checks = fit.summary(num_draws=10).facts.get("checks of the fit", "")
            assert checks.startswith("noise") == (family != "categorical")
            assert programs.count == 0, family


@pytest.mark.parametrize("is_double", [False, True])
def test_what_is_known_well_is_said_to_be(is_double):
    """Of many rows with small noise: noise and intervals of the function are those of least squares, in single too."""
    rng, rows = np.random.default_rng(1), 4000
    x, g = rng.uniform(-1, 1, rows), rng.integers(0, 3, rows)
    y = 5 + 2 * x + np.array([0.0, 1.0, -1.0])[g] + 0.02 * rng.normal(size=rows)
    A = np.stack([np.ones(rows), x, g == 1, g == 2], axis=1).astype(float)
    left = y - A @ np.linalg.lstsq(A, y)[0]
    noise = np.sqrt(left @ left / (rows - 4))
    wanted = noise * np.sqrt(np.einsum("nd,de,ne->n", A[:4], np.linalg.inv(A.T @ A), A[:4]))
    with x64(is_double):
        fit = ngp.gam("y ~ linear(x) + factor(g)", {"x": x, "g": g, "y": y})
        found = fit.predict({"x": x[:4], "g": g[:4]})
        loose = ngp.gam("y ~ 1", {"y": 5 + left / 0.02}).predict({"y": [0.0]})  # the constant alone
        assert fit._draws().values["noise"].mean() == pytest.approx(noise, rel=0.01)
        np.testing.assert_allclose(np.sqrt(found.function_variance), wanted, rtol=0.02)
        alone = np.std(left / 0.02) / np.sqrt(rows)
        assert float(np.sqrt(loose.function_variance[0])) == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize("formula", ["y ~ 1", "y ~ offset(x)"])
@pytest.mark.parametrize(("family", "information"), [("poisson", lambda p: p), ("bernoulli", lambda p: p * (1 - p))])
def test_the_constant_alone_has_the_moments_of_fishers_information(formula, family, information):
    rng = np.random.default_rng(0)
    data = {"x": np.zeros(900), "y": rng.integers(0, 2, 900)}
    found = ngp.gam(formula, data, family).predict({"x": [0.0]})
    mean = data["y"].mean()
    assert float(found.mean[0]) == pytest.approx(mean, rel=0.005)
    assert float(found.function_variance[0]) == pytest.approx(1 / (900 * information(mean)), rel=0.02)


def test_a_large_level_is_taken_off_before_anything_is_rounded():
    rng = np.random.default_rng(0)
    x, e = rng.uniform(-1, 1, 300), 0.1 * rng.normal(size=300)
    with x64(False):
        near, far = (ngp.gam("y ~ linear(x)", {"x": x, "y": level + x + e}) for level in (0.0, 1e8))
        assert far._draws().values["noise"].mean() == pytest.approx(near._draws().values["noise"].mean(), rel=1e-3)
        first, second = (one.summary().facts for one in (near, far))
        assert first["log density, left out"] == second["log density, left out"]
        assert second["deviance explained"] == pytest.approx(first["deviance explained"], abs=1e-4)
        means = [np.asarray(one.predict({"x": x}).mean, float) for one in (near, far)]
    np.testing.assert_allclose(means[1] - 1e8, means[0], rtol=0, atol=1e-4)  # they were rounded to 8, and noted
    assert not near.notes + far.notes
    with x64(False), pytest.raises(ValueError, match="response 'y' must be of a range between 9e-16"):
        ngp.gam("y ~ linear(x)", {"x": x, "y": 1e-20 * x})


def test_weights_are_how_many_rows_each_stands_for():
    """Also after the fit: in the table, and in the density of rows left out."""
    rng = np.random.default_rng(0)
    times = rng.integers(1, 25, 40)
    data = {"x": rng.normal(size=40), "z": rng.exponential(size=40)}
    data["y"] = data["x"] * (times > 12) + data["z"] + 0.3 * rng.normal(size=40)
    one = ngp.gam("y ~ linear(x) + linear(z)", data, weights=times).summary()
    other = ngp.gam("y ~ linear(x) + linear(z)", {name: np.repeat(own, times) for name, own in data.items()}).summary()
    for first, second in zip(one.rows, other.rows, strict=True):
        assert first[1:-1] == pytest.approx(second[1:-1], abs=2e-3)
    density = [float(own.facts["log density, left out"].split(" ")[0]) for own in (one, other)]
    assert density[0] == pytest.approx(density[1], abs=2e-3)
    assert one.facts["deviance explained"] == pytest.approx(other.facts["deviance explained"], abs=1e-6)
