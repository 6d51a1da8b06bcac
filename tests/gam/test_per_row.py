"""Likelihoods with one number for each row of a fit: which ones are, how they are cut, and what is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.family import as_family
from numpyro_gp.gam.per_row import at_places, at_rows_of, check_rows, has_numbers
from tests.gam.known import repeated


def test_a_number_for_each_row_is_cut_with_the_rows():
    given = ngp.likelihoods.Gaussian(1 + np.arange(12.0).reshape(2, 6))
    np.testing.assert_array_equal(at_places(given, np.array([5, 0, 0]), 6).scale, [[6, 1, 1], [12, 7, 7]])
    of_draws = ngp.likelihoods.Gaussian(1 + np.arange(6.0))  # six draws, no rows
    np.testing.assert_array_equal(at_places(of_draws, np.array([5, 0]), 6).scale, 1 + np.arange(6.0))
    np.testing.assert_array_equal(at_rows_of(of_draws, np.array([5, 0]), 6).scale, [6, 1])


def test_cutpoints_are_no_numbers_of_rows():
    given = repeated(ngp.likelihoods.Ordinal(jnp.array([-1.0, 0.0, 1.0])))
    assert at_places(given, np.array([0]), 40).cutpoints.shape == (2, 3)
    check_rows(given, 3, 40)


@pytest.mark.parametrize(
    ("family", "found"),
    [
        ("gaussian", False),
        (ngp.likelihoods.Gaussian(0.1), False),
        (ngp.likelihoods.Gaussian(jnp.ones(7)), True),
        (ngp.likelihoods.Gaussian(jnp.ones(6)), False),
        (lambda: ngp.likelihoods.Gaussian(numpyro.sample("s", dist.LogNormal(0.0, 1.0)) * jnp.ones(7)), True),
        (lambda: lambda f: dist.Normal(f, jnp.ones(7)), False),
        (ngp.likelihoods.Poisson(), False),
    ],
)
def test_which_likelihoods_have_a_number_for_each_of_seven_rows(family, found):
    assert has_numbers(as_family(family), 7) == found


def test_a_table_of_another_number_of_rows_is_refused_in_words():
    given = repeated(ngp.likelihoods.Gaussian(jnp.ones(7)))
    check_rows(given, 7, 7)
    message = (
        "the table of new rows must be a table of 7 rows, as Gaussian has one number for each row of the fit, but got 3"
    )
    with pytest.raises(ValueError, match=message):
        check_rows(given, 3, 7)


TRIALS = np.arange(1, 9)


def test_a_function_of_all_rows_is_refused_with_a_cure():
    """Trials of each row as a global array: the summary of such a fit failed inside of JAX. Weights are the cure."""
    successes, x = np.minimum(TRIALS, 3), np.linspace(-1, 1, 8)
    family = lambda: lambda f: dist.Binomial(jnp.asarray(TRIALS), logits=f)  # noqa: E731
    with pytest.raises(ValueError, match=r"family must be a function that works at any rows.*weights=successes"):
        ngp.gam.model("y ~ linear(x)", {"x": x, "y": successes}, family)
    with pytest.raises(ValueError, match=r"'binomial'. Labels take 'bernoulli'.*weights=failures"):
        ngp.gam.model("y ~ linear(x)", {"x": x, "y": successes}, "binomial")
    labels, weights = np.repeat([1, 0], 8), np.concatenate([successes, TRIALS - successes])
    fit = ngp.gam("y ~ 1", {"y": labels}, "bernoulli", weights=weights)
    assert float(fit.predict({"y": [0]}).mean[0]) == pytest.approx(successes.sum() / TRIALS.sum(), rel=0.02)
