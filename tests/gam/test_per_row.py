"""Likelihoods with one number for each row of a fit: which ones are, how they are cut, and what is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import numpyro_gp as ngp
from numpyro_gp.gam.model.family import at_places, check_same_rows
from tests.gam.known import repeated


def test_a_number_for_each_row_is_cut_with_the_rows_and_cutpoints_are_not():
    given = ngp.likelihoods.Gaussian(1 + np.arange(12.0).reshape(2, 6))
    np.testing.assert_array_equal(at_places(given, np.array([5, 0, 0]), 6).scale, [[6, 1, 1], [12, 7, 7]])
    of_draws = ngp.likelihoods.Gaussian(1 + np.arange(6.0))  # six draws, no rows
    np.testing.assert_array_equal(at_places(of_draws, np.array([5, 0]), 6).scale, 1 + np.arange(6.0))
    np.testing.assert_array_equal(at_places(of_draws, np.array([5, 0]), 6, 0).scale, [6, 1])
    given = repeated(ngp.likelihoods.Ordinal(jnp.array([-1.0, 0.0, 1.0])))
    assert at_places(given, np.array([0]), 40).cutpoints.shape == (2, 3)
    check_same_rows(given, 3, 40)


def test_as_many_numbers_as_rows_are_one_for_each_where_the_likelihood_needs_them_so():
    """Three cutpoints, or weights of three parts, beside three rows were cut with them."""
    rows, cutpoints = np.array([2, 0]), jnp.array([-1.0, 0.0, 1.0])
    ordinal = repeated(ngp.likelihoods.Ordinal(cutpoints))
    np.testing.assert_array_equal(at_places(ordinal, rows, 3).cutpoints, ordinal.cutpoints)
    check_same_rows(ordinal, 5, 3)

    def mixture(share, error):
        return ngp.likelihoods.as_likelihood(lambda f: dist.Normal(f, error * jnp.sqrt(share @ jnp.arange(1.0, 4.0))))

    share, error = jnp.array([0.25, 0.5, 0.25]), jnp.array([1.0, 2.0, 3.0])
    for own, wanted in ((error, error[rows]), (2.0, 2.0)):
        found = at_places(mixture(share, own), rows, 3, 0).conditional(jnp.zeros(2)).scale
        np.testing.assert_allclose(np.broadcast_to(found, 2), wanted * np.sqrt(2.0) * np.ones(2), rtol=1e-12)
    both = ngp.likelihoods.StudentT(df=error + 2, scale=error)
    found = at_places(both, rows, 3, 0)
    assert (found.df.tolist(), found.scale.tolist()) == ([5, 3], [3, 1])


TRIALS = np.arange(1, 9)


def test_a_function_of_all_rows_is_refused_with_a_cure():
    """Trials of each row as a global array: the summary of such a fit failed inside of JAX. A column is the cure."""
    successes, x = np.minimum(TRIALS, 3), np.linspace(-1, 1, 8)
    family = lambda: lambda f: dist.Binomial(jnp.asarray(TRIALS), logits=f)  # noqa: E731
    table = {"x": x, "y": successes, "n": TRIALS}
    with pytest.raises(ValueError, match=r"family must be a function that works at any rows.*trials='n'"):
        ngp.gam.model("y ~ linear(x)", table, family)
    fit = ngp.gam("y ~ 1", table, "binomial", trials="n")
    found = fit.predict({"n": [1, 10]}).mean
    np.testing.assert_allclose(found, successes.sum() / TRIALS.sum() * np.array([1, 10]), rtol=0.02)


@pytest.fixture(scope="module")
def successes():
    rng = np.random.default_rng(2)
    x, n = rng.normal(size=60), rng.integers(1, 20, 60)
    table = {"x": x, "n": n, "y": rng.binomial(n, expit(x - 0.5)), "w": rng.integers(1, 3, 60)}
    return table, ngp.gam("y ~ linear(x)", table, "binomial", trials="n", weights="w")


@pytest.mark.long
def test_successes_among_trials_are_those_of_maximum_likelihood(successes):
    """``f`` and its standard deviation beside SciPy's maximum, and moments of new successes by quadrature."""
    table, fit = successes
    A, (n, y, w) = np.stack([np.ones(60), table["x"]], axis=1), (table[name] for name in "nyw")
    most = minimize(lambda b: -w @ stats.binom.logpmf(y, n, expit(A @ b)), np.zeros(2), method="BFGS").x
    share = expit(A @ most)
    spread = np.sqrt(np.einsum("nd,de,ne->n", A, np.linalg.inv((A.T * (w * n * share * (1 - share))) @ A), A))
    found = fit.predict(table)
    mean, variance = np.asarray(found.function_mean, float), np.asarray(found.function_variance, float)
    assert np.abs((mean - A @ most) / spread).max() < 0.1
    np.testing.assert_allclose(np.sqrt(variance), spread, rtol=0.03)
    z, mass = np.polynomial.hermite_e.hermegauss(40)
    p = expit(mean[:, None] + np.sqrt(variance)[:, None] * z)
    first, second = p @ mass / mass.sum(), p**2 @ mass / mass.sum()
    np.testing.assert_allclose(found.mean, n * first, rtol=2e-3)  # f is a mixture over draws, not one normal
    np.testing.assert_allclose(found.variance, n * first * (1 - first) + n * (n - 1) * (second - first**2), rtol=2e-3)


@pytest.mark.long
def test_one_row_of_trials_is_as_many_rows_of_labels(successes):
    table, fit = successes
    y, n, w = (table[name] for name in "ynw")
    labels = {"x": np.tile(table["x"], 2), "y": np.repeat([1, 0], 60)}
    other = ngp.gam("y ~ linear(x)", labels, "bernoulli", weights=np.concatenate([y * w, (n - y) * w]))
    new = {"x": [-1.0, 0.3, 2.0], "n": [1, 1, 1]}
    np.testing.assert_allclose(fit.predict(new).mean, other.predict(new).mean, rtol=2e-3)
    ratio = w @ (gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1))
    assert other.result.losses[-1] - fit.result.losses[-1] == pytest.approx(ratio, abs=0.5)


@pytest.mark.long
def test_trials_travel_with_rows(successes, tmp_path):
    """To a service, to quantiles, to a file; and what lacks them is told so."""
    _, fit = successes
    new = {"x": np.array([-1.0, 0.3, 2.0]), "n": np.array([1, 12, 400])}
    whole, of_rows = fit.predict(new), fit.predictor()(new)
    np.testing.assert_allclose(of_rows.mean, whole.mean, rtol=1e-5)
    np.testing.assert_allclose(of_rows.variance, whole.variance, rtol=1e-4)
    np.testing.assert_allclose(of_rows.interval(0.5), fit.interval(new, 0.5), rtol=1e-4)
    low, high = of_rows.quantiles([0.05, 0.95])
    sd = np.sqrt(whole.variance)
    np.testing.assert_allclose((low[2], high[2]), whole.mean[2] + np.array([-1.645, 1.645]) * sd[2], atol=0.3 * sd[2])
    assert (high <= new["n"]).all()
    fit.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(ngp.gam.load(tmp_path / "fit.npz").predict(new).mean, whole.mean)
    with pytest.raises(ValueError, match=r"the column 'n' of trials, but got the columns \['x'\]. Add it: predictions"):
        fit.predict({"x": [1.0]})
    with pytest.raises(ValueError, match=r"trials 'n' must be whole numbers from 1 on, but got 2.5"):
        fit.predict({"x": [1.0], "n": [2.5]})


@pytest.mark.long
def test_the_model_and_the_summary_know_trials(successes):
    """The NumPyro model is that of the fit; the deviance is that of shares with as many labels as trials."""
    table, fit = successes
    params = dict(fit.result.params)  # hyper-parameters known so well that draws by JAX and by NumPy are the same
    params["auto_scale_tril"] = 1e-12 * params["auto_scale_tril"]
    posterior = ngp.Posterior.from_svi(fit.model, fit.guide, params)
    sure = ngp.gam.Fit(fit.model, posterior, fit.guide, fit.result._replace(params=params), "svi", 3, (), fit.key)
    library, found = posterior.predict(fit.key, fit.model.encode(table)), sure.predict(table)
    np.testing.assert_allclose(library.mean, found.mean, rtol=1e-3)
    n, y, w = (table[name] for name in "nyw")
    quantiles = np.asarray(fit.quantiles(table, [0.05, 0.95]))
    assert np.abs(quantiles - fit.predictor()(table).quantiles([0.05, 0.95])).max() <= 1
    null, share = np.average(y / n, weights=w * n), np.asarray(found.mean) / n
    lost = [-w @ (stats.binom.logpmf(y, n, p) - stats.binom.logpmf(y, n, y / n)) for p in (share, null)]
    summary = fit.summary()
    assert summary.facts["deviance explained"] == pytest.approx(1 - lost[0] / lost[1], abs=1e-3)
    assert "calibration" in summary.facts["checks of the fit"]
    density = np.average(found.log_density(y.astype(float)), weights=w)
    assert float(summary.facts["log density, left out"].split()[0]) == pytest.approx(density, abs=0.1)
