"""Calibration of right and wrong inference, and bad input to diagnoses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism.diagnose import Calibration, _ranks, sbc
from tests.oracles.problems import regression

PROBLEM = regression()
X = PROBLEM.X


def model(X, y=None):
    f = ngp.gp("f", PROBLEM.kernel, X[::2])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y)


def conjugate(y=None, scale=1.0):
    """``m ~ N(0, 1)``, five data: the posterior is known."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 5):
        numpyro.sample("y", dist.Normal(m, scale), obs=y)


def exact_fit(bias=0.0, narrow=1.0):
    def fit(key, _, y, scale=1.0):
        centre, spread = y.sum() / (5 + 1) + bias, narrow * (5 + 1) ** -0.5
        return {"m": centre + spread * jax.random.normal(key, (63,))}

    return fit


@pytest.mark.long
def test_exact_inference_passes_and_wrong_inference_fails():
    run = lambda fit, **k: sbc(jax.random.key(0), conjugate, fit=fit, num_simulations=200, **k)  # noqa: E731
    good = run(exact_fit())
    assert good.passed()
    assert "passed" in str(good)
    assert good.ranks["m"].min() >= 0
    assert good.ranks["m"].max() <= 63
    for wrong in (exact_fit(bias=0.3), exact_fit(narrow=0.5)):
        assert run(wrong).p_values["m"] < 1e-4
    # A model that takes the noise for 1 where it was 2: the data are right, the posterior is too narrow.
    misspecified = run(exact_fit(), truth=lambda y=None: conjugate(y, scale=2.0))
    assert not misspecified.passed()
    assert "FAILED" in str(misspecified)


@pytest.mark.long
def test_draws_that_equal_the_truth_are_on_both_sides_of_it():
    """Half of the draws of a coin equal it: all of these above it would be a rank that is wrong for certain."""

    def coin(y=None):
        numpyro.sample("k", dist.Bernoulli(0.5))
        with numpyro.plate("data", 5):
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    right = lambda key, _, y: {"k": jax.random.bernoulli(key, 0.5, (63,)).astype(int)}  # noqa: E731
    assert sbc(jax.random.key(1), coin, fit=right, num_simulations=200).passed()
    wrong = lambda key, _, y: {"k": jax.random.bernoulli(key, 0.8, (63,)).astype(int)}  # noqa: E731
    assert not sbc(jax.random.key(1), coin, fit=wrong, num_simulations=200).passed()


@pytest.mark.long
def test_arguments_that_are_no_arrays_stay_what_they_are():
    def sized(X, size, name, y=None):
        assert name == "rbf"
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("data", size):
            numpyro.sample("y", dist.Normal(X[:, 0], noise), obs=y)

    sizes = {"num_simulations": 10, "num_draws": 7, "thinning": 1}
    found = sbc(jax.random.key(0), sized, jnp.zeros((5, 1)), 5, name="rbf", **sizes)
    assert found.ranks["noise"].shape == (10,)
    np.testing.assert_array_equal(
        found.ranks["noise"], sbc(jax.random.key(0), sized, jnp.zeros((5, 1)), 5, "rbf", **sizes).ranks["noise"]
    )


@pytest.mark.statistical
def test_nuts_on_a_gp_regression_is_calibrated():
    """Level 1e-3 over two hyper-parameters; the marginal likelihood is exact, so that nothing else is approximate."""

    def regression_model(X, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([1]).to_event(1))
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, scale), X, noise, obs=y)

    found = sbc(jax.random.key(3), regression_model, jnp.linspace(-2, 2, 8)[:, None], num_simulations=40, num_draws=31)
    assert set(found.ranks) == {"scale[0]", "noise"}
    assert found.passed(1e-3), str(found)


def test_result_of_calibration_counts_tests():
    found = Calibration({"a": np.zeros(3), "b": np.zeros(3)}, {"a": 0.006, "b": 0.5}, 7)
    assert found.passed(0.01), "0.006 of two tests is above 0.01 / 2"
    assert not found.passed(0.02)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sbc(jax.random.key(0), conjugate, num_simulations=5), ValueError, "num_simulations must be at least 10"),
        (lambda: sbc(jax.random.key(0), conjugate, data={"z": "z"}), ValueError, r"data must be sites of the model"),
        (lambda: sbc(jax.random.key(0), conjugate, fit=exact_fit(), sites=["q"]), ValueError, "sites must be sites that are simulated"),
        (lambda: sbc(jax.random.key(0), conjugate, fit=lambda *a, **k: {"m": jnp.zeros(3)}), ValueError, "what fit returned for 'm' must be at least 63"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_rank_of_a_value_is_how_many_draws_lie_below_it(rng):
    """Each entry of a value among its own draws."""
    value, draws = rng.normal(size=2), rng.normal(size=(9, 2))
    wanted = [(f"m[{at}]", int((draws[:, at] < value[at]).sum())) for at in range(2)]
    assert _ranks("m", value, draws, 9, np.random.default_rng(0)) == wanted
