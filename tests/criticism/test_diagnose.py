"""Calibration of right and wrong inference, and bad input to diagnoses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_gp.criticism.diagnose import Calibration, _ranks, sbc


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

    for share in (0.5, 0.8):
        draws = lambda key, _, y, p=share: {"k": jax.random.bernoulli(key, p, (63,)).astype(int)}  # noqa: E731
        assert sbc(jax.random.key(1), coin, fit=draws, num_simulations=200).passed() == (share == 0.5)


@pytest.mark.long
def test_arguments_that_are_no_arrays_stay_what_they_are():
    def sized(X, size, name, y=None):
        assert name == "rbf"
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("data", size):
            numpyro.sample("y", dist.Normal(X[:, 0], noise), obs=y)

    sizes, key = {"num_simulations": 10, "num_draws": 7, "thinning": 1}, jax.random.key(0)
    named, placed = (
        sbc(key, sized, jnp.zeros((5, 1)), 5, *words, **names, **sizes).ranks["noise"]
        for words, names in (((), {"name": "rbf"}), (("rbf",), {}))
    )
    assert named.shape == (10,)
    np.testing.assert_array_equal(named, placed)


def test_result_of_calibration_counts_tests():
    found = Calibration({"a": np.zeros(3), "b": np.zeros(3)}, {"a": 0.006, "b": 0.5}, 7)
    assert found.passed(0.01), "0.006 of two tests is above 0.01 / 2"
    assert not found.passed(0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": exact_fit(), "sites": ["q"]}, "sites must be sites that are simulated"),
        ({"fit": lambda *a, **k: {"m": jnp.zeros(3)}}, "what fit returned for 'm' must be at least 63"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        sbc(jax.random.key(0), conjugate, **options)


def test_the_rank_of_a_value_is_how_many_draws_lie_below_it(rng):
    """Each entry of a value among its own draws."""
    value, draws = rng.normal(size=2), rng.normal(size=(9, 2))
    wanted = [(f"m[{at}]", int((draws[:, at] < value[at]).sum())) for at in range(2)]
    assert _ranks("m", value, draws, 9, np.random.default_rng(0)) == wanted
