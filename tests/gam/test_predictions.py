"""Predictions by NumPy are those of the library's own posterior, to rounding."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy import stats
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.answers.predictions import latent, predicted
from numpyro_gp.gam.search.engines import guide_of, set_up
from numpyro_gp.guides.natural import NATURAL_MARK
from tests.compiling import counted
from tests.gam.known import draws_of, fit_of, repeated
from tests.precision import x64

RNG = np.random.default_rng(0)
N = 45
DATA = {name: RNG.normal(size=N) for name in "xzy"} | {"g": np.array(list("abc") * 15), "h": np.arange(N) % 24}
DATA |= {"n": RNG.poisson(2.0, N), "b": RNG.integers(2, size=N), "e": RNG.uniform(1, 2, N), "w": RNG.uniform(1, 3, N)}
NEW = {name: RNG.normal(size=7) for name in "xz"} | {"g": np.array(list("abcabca")), "h": np.arange(7) * 3}
NEW |= {"e": RNG.uniform(1, 2, 7)}
CASES = {
    "curves, levels, surfaces": ("y ~ s(x) + s(h, cyclic=True) + te(x, z) + factor(g) + re(g, by=z)", "gaussian", {}),
    "counts with an offset": ("n ~ s(x, by=g) + linear(z) + offset(log(e))", "negative_binomial", {}),
    "labels with weights": ("b ~ s(x) + re(g)", "bernoulli", {"weights": "w"}),
}


def like(model, seed=0):
    """A fit whose parameters are made up: pseudo-data, and hyper-parameters known so well that draws by JAX are the same."""
    guide, rng = set_up(guide_of(model), model), np.random.default_rng(seed)
    size = sum(model.sizes)
    shapes = {"auto_loc": guide.rest.latent_dim, f"f{NATURAL_MARK}shift": size}
    params = {name: jnp.asarray(0.3 * rng.normal(size=count)) for name, count in shapes.items()}
    half = rng.normal(size=(size, size))
    params[f"f{NATURAL_MARK}precision"] = jnp.asarray(half @ half.T / size)
    params["auto_scale_tril"] = jnp.asarray(1e-12 * np.tril(rng.uniform(0.2, 1.0, 2 * (guide.rest.latent_dim,))))
    result = ngp.FitResult(params, jnp.zeros(3), None)
    posterior = ngp.Posterior.from_svi(model, guide, params)
    return ngp.gam.Fit(model, posterior, guide, result, "svi", 3, (), jax.random.key(3))


def agree(fit, new, y):
    """All moments, densities and quantiles, to 1e-8."""
    found, wanted = fit.predict(new), fit.posterior.predict(fit.key, fit.model.encode(new))
    for name in ("mean", "variance", "function_mean", "function_variance"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-8, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(found.log_density(y), wanted.log_density(y), rtol=1e-8, atol=1e-8)
    return found, wanted


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_predictions_are_those_of_the_posterior(name):
    text, family, options = CASES[name]
    fit = like(ngp.gam.model(text, DATA, family, **options))
    y = np.ones(7) if family != "gaussian" else RNG.normal(size=7)
    found, wanted = agree(fit, NEW | {"g": np.array(list("abcabcz"))} if "re(g)" in text else NEW, y)
    if family == "gaussian":
        np.testing.assert_allclose(found.quantiles([0.1, 0.9]), wanted.quantiles([0.1, 0.9]), atol=1e-8)
        assert found.sample(5).shape == (5, 7)
    else:  # of draws
        assert found.quantiles([0.1, 0.9], 100).shape == (2, 7)
    with counted() as programs:
        fit.predict({name: values[:4] for name, values in NEW.items()})
    assert programs.count == 0  # of rows of another number


@pytest.mark.long
def test_predictions_of_blocks_of_low_rank_are_those_of_the_posterior():
    model = ngp.gam.model("y ~ s(x) + s(z) + factor(g)", DATA)
    guide = ngp.AutoGP(model, {"f": ngp.guides.block_low_rank(3, natural=True)}, AutoNormal)
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.05), 0.1), Trace_ELBO())
    result = ngp.fit(jax.random.key(0), svi, 3, *model.arguments, progress=False)
    params = {name: 1e-12 * value if name.endswith("_auto_scale") else value for name, value in result.params.items()}
    result = result._replace(params=params)
    posterior = ngp.Posterior.from_svi(model, guide, params)
    fit = ngp.gam.Fit(model, posterior, guide, result, "svi", 3, (), jax.random.key(3))
    agree(fit, NEW, RNG.normal(size=7))
    draws = fit._draws()
    assert draws.size == 100
    assert np.isfinite(draws.log_ratio).all()


@pytest.mark.long
def test_predictions_of_draws_are_those_of_the_posterior():
    """Of a chain, with a noise of each draw; particles hold ``e`` of ``v = m + C e``, and the model says ``v``."""
    made = like(ngp.gam.model("y ~ linear(x) + re(g)", DATA))
    draws = {"f_scale": jnp.asarray(RNG.uniform(0.5, 1, (6, 2))), "noise": jnp.asarray(RNG.uniform(0.1, 1, 6))}
    target = ngp.conditioned(made.model, made.guide, made.result.params, *made.model.arguments)
    for model, site, engine in ((made.model, "f", "nuts"), (target, "f_conditioned", "svgd")):
        posterior = ngp.Posterior.from_mcmc(model, draws | {site: jnp.asarray(RNG.normal(size=(6, 5)))})
        fit = ngp.gam.Fit(made.model, posterior, None, None, engine, 6, (), jax.random.key(0))
        agree(fit, NEW, RNG.normal(size=7))


def test_cutpoints_of_as_many_labels_as_a_table_has_rows():
    """The mean label is ``sum_k Phi((f - c_k) / sqrt(1 + v))``, also of three cutpoints and three rows."""
    cutpoints = np.array([-1.0, 0.0, 1.0])
    likelihood = ngp.likelihoods.Ordinal(jnp.asarray(cutpoints))
    model = ngp.gam.model("c ~ s(x)", DATA | {"c": np.arange(N) % 4}, likelihood)
    draws = draws_of(model, repeated(likelihood))
    X = model.rows.X[:3]
    f, variance = latent(draws, X)
    wanted = stats.norm.cdf((f[..., None] - cutpoints) / np.sqrt(1 + variance[..., None])).sum(axis=-1).mean(axis=0)
    found = predicted(draws, X, jax.random.key(0))
    np.testing.assert_allclose(found.mean, wanted, rtol=1e-9)


def test_numbers_of_rows_go_with_the_rows_of_the_fit():
    """The variance of 600 rows, two calls of the program, with the noise of each; other tables are refused."""
    scale, rng = np.linspace(0.5, 2.0, 600), np.random.default_rng(1)
    likelihood = ngp.likelihoods.Gaussian(jnp.asarray(scale))
    model = ngp.gam.model("y ~ linear(x)", {"x": rng.normal(size=600), "y": rng.normal(size=600)}, likelihood)
    draws = draws_of(model, repeated(likelihood))
    f, variance = latent(draws, model.rows.X[:512])
    found = predicted(draws, model.rows.X, jax.random.key(0))
    np.testing.assert_allclose(found.variance[:512], variance.mean(0) + f.var(0) + scale[:512] ** 2, rtol=1e-9)
    np.testing.assert_allclose((found.variance - found.function_variance)[512:], scale[512:] ** 2, rtol=1e-9)
    with pytest.raises(ValueError, match="table of 600 rows, as Gaussian has one number for each row of the fit"):
        predicted(draws, model.rows.X[:3], jax.random.key(0))


def test_quantiles_of_counts_compile_nothing_and_are_those_of_the_mixture():
    """SciPy's distribution function of counts, over nodes of the normal ``f`` at each draw; in chunks of rows too."""
    rng = np.random.default_rng(1)
    data = {"x": rng.uniform(size=40), "e": rng.uniform(1, 2, 40)}
    fit = ngp.gam("n ~ linear(x) + offset(log(e))", data | {"n": rng.poisson(3 * data["e"])}, "poisson")
    new = {"x": np.resize([0.1, 0.5, 0.9], 600), "e": np.resize([1.0, 5.0, 2.0], 600)}
    levels = np.array([0.1, 0.5, 0.9])
    prediction = fit.predict(new)
    with counted() as programs:
        found, same = fit.quantiles(new, levels), pickle.loads(pickle.dumps(prediction)).quantiles(levels)
    assert programs.count == 0
    assert found.shape == (3, 600)
    assert np.abs(np.asarray(same) - found).max() <= 1  # in single precision a draw may be another
    assert np.mean(np.asarray(same) != found) < 0.01
    assert np.ptp(found.reshape(3, 200, 3), axis=1).max() <= 2  # the same rows again, and after 512 too
    few = {name: column[:3] for name, column in new.items()}
    mean, variance = latent(fit._draws(), fit.model.layout.encode(few))
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    rate = np.exp(mean[..., None] + np.sqrt(variance)[..., None] * nodes)
    for at, level in zip(found[:, :3], levels, strict=True):
        cdf = lambda y: (stats.poisson.cdf(y[:, None], rate) @ (weights / weights.sum())).mean(axis=0)  # noqa: E731
        below, up_to = cdf(at - 1), cdf(at)
        assert (below < level + 0.03).all()  # 2000 draws
        assert (level - 0.03 < up_to).all()
    with pytest.raises(ValueError, match="levels must be one or more numbers between 0 and 1, but got 90"):
        fit.quantiles(new, 90)


@pytest.mark.parametrize(
    ("response", "family", "likelihood", "mean"),
    [
        ("y", "gaussian", ngp.likelihoods.Gaussian(0.5), lambda f, _: f),
        ("n", "negative_binomial", ngp.likelihoods.NegativeBinomial(2.0), lambda f, _: np.exp(f)),
        ("b", "bernoulli", ngp.likelihoods.Bernoulli(), lambda f, _: expit(f)),
        ("b", ngp.likelihoods.Bernoulli("probit"), ngp.likelihoods.Bernoulli("probit"), lambda f, _: stats.norm.cdf(f)),
        ("n", "binomial", ngp.likelihoods.Binomial(1.0), lambda f, trials: trials * expit(f)),
        ("w", lambda: ngp.likelihoods.Gamma(2.0), None, lambda f, _: np.array([2.0, 8.0])[:, None, None] * np.exp(f)),
    ],
)
def test_an_interval_of_the_mean_is_that_of_draws_of_the_mean(response, family, likelihood, mean):
    """Of the normal ``f`` at each draw of the posterior, by SciPy: the noise of new data is not in it."""
    trials = {"trials": "k"} if family == "binomial" else {}
    data = DATA | {"k": np.full(N, 9)}
    model = ngp.gam.model(f"{response} ~ s(x) + re(g) + offset(log(e))", data, family, **trials)
    given = repeated(likelihood) if likelihood is not None else ngp.likelihoods.Gamma(np.array([2.0, 8.0]))
    fit, new = fit_of(model, given, is_dense=True), NEW | {"k": np.arange(1, 8)}
    low, high = fit.interval(new, 0.8)
    assert low.shape == high.shape == (7,)
    at, variance = latent(fit._draws(), model.layout.encode(new))
    f = at[..., None] + np.sqrt(variance)[..., None] * np.random.default_rng(0).normal(size=(2, 7, 50_000))
    draws = mean(f, new["k"][:, None])
    for end, share in ((low, 0.1), (high, 0.9)):
        np.testing.assert_allclose((draws <= end[:, None]).mean(axis=(0, 2)), share, atol=0.005)


@pytest.mark.filterwarnings("ignore:Rows with missing values")
@pytest.mark.parametrize(
    "name", ["gaussian", *(pytest.param(name, marks=pytest.mark.long) for name in ("binomial", "class"))]
)
def test_rows_with_missing_values_are_nan_and_the_others_as_they_were(name):
    """Of numbers, levels, offsets and trials; with one warning that has their number."""
    likelihood = {"gaussian": ngp.likelihoods.Gaussian(0.5), "binomial": ngp.likelihoods.Binomial(1.0)}.get(
        name, ngp.likelihoods.Poisson()
    )
    data, options = DATA | {"k": np.full(N, 9)}, {"trials": "k"} if name == "binomial" else {}
    response = "y" if name == "gaussian" else "n"
    given = likelihood if name == "class" else name
    model = ngp.gam.model(f"{response} ~ s(x) + re(g) + offset(log(e))", data, given, **options)
    fit = fit_of(model, repeated(likelihood), is_dense=True)
    new = NEW | {"g": NEW["g"].astype(object), "k": np.arange(1.0, 8.0), "x": NEW["x"].copy(), "e": NEW["e"].copy()}
    lost = np.zeros(7, bool)
    for column, row in (("x", 0), ("g", 2), ("e", 3), *([("k", 5)] if options else [])):
        new[column][row], lost[row] = None if column == "g" else np.nan, True
    complete = {column: np.asarray(values)[~lost] for column, values in new.items()}
    with pytest.warns(UserWarning, match=f"Rows with missing values are predicted as NaN: {lost.sum()} of 7") as caught:
        found = fit.predict(new)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    wanted = fit.predict(complete)
    y = np.asarray(data[response][:7], float)
    answers = [
        *(
            (getattr(own, part) for own in (found, wanted))
            for part in ("mean", "variance", "function_mean", "function_variance")
        ),
        (found.log_density(y), wanted.log_density(y[~lost])),
    ]
    answers += zip(fit.interval(new), fit.interval(complete), strict=True)
    answers += [(part.T, other.T) for part, other in zip(fit.terms(new)[1:], fit.terms(complete)[1:], strict=True)]
    quantiles = fit.quantiles(new, [0.1, 0.9])
    if name == "gaussian":  # a table whose rows all miss a value
        every = {column: values[:1] for column, values in new.items()}
        assert np.isnan(fit.predict(every).mean).all()
        assert np.isnan(fit.quantiles(every)).all()
    for whole, some in answers:
        assert np.array_equal(np.isnan(whole), np.broadcast_to(lost, whole.shape))
        np.testing.assert_allclose(np.asarray(whole)[..., ~lost], some, rtol=1e-6)
    for drawn in (quantiles, found.quantiles([0.1, 0.9]), found.sample(20)):
        assert np.array_equal(np.isnan(drawn).all(axis=0), lost)
        assert not np.isnan(np.asarray(drawn)[:, ~lost]).any()


def test_an_interval_needs_a_link():
    family = lambda: lambda f: numpyro.distributions.Normal(f, 1.0)  # noqa: E731
    fit = fit_of(ngp.gam.model("y ~ s(x)", DATA, family), ngp.likelihoods.Gaussian(np.ones(2)))
    with pytest.raises(ValueError, match="one whose mean is a known function of f"):
        fit.interval(NEW)


@pytest.mark.long
def test_a_level_that_leaves_single_precision_no_digits_is_kept_apart():
    """Near 1e8 its steps are 8: predictions are those of data without the level, and of the row predictor, and it."""
    rng = np.random.default_rng(2)
    x, e = rng.uniform(size=60), 1e8 + 1000 * np.round(rng.normal(size=60))
    y, new, times = x + np.round(0.1 * rng.normal(size=60), 3), {"x": [0.9, 0.1]}, np.array([0.5, 0.9])
    plain = {"x": x, "y": y}
    with x64(False):
        known = ngp.gam("y ~ x", plain).predict(new)
        for text, table, level, more in [
            ("y ~ x + offset(e)", plain | {"e": e, "y": y + e}, np.array([1e8, 1e8 + 1000]), {"e": [1e8, 1e8 + 1000]}),
            ("y ~ x", plain | {"y": y + 1e8}, np.full(2, 1e8), {}),
        ]:
            fit, rows = ngp.gam(text, table), new | more
            found, row, close = fit.predict(rows), fit.predictor()(rows), {"rtol": 0, "atol": 1e-4}
            assert not fit.notes
            for name in ("mean", "function_mean"):
                np.testing.assert_allclose(getattr(found, name) - level, getattr(known, name), **close)
                np.testing.assert_allclose(getattr(found, name), getattr(row, name), rtol=0, atol=1e-6)
            np.testing.assert_allclose(found.variance, known.variance, rtol=1e-3)
            np.testing.assert_allclose(found.log_density(level + 0.5), known.log_density(np.full(2, 0.5)), rtol=2e-3)
            levels = [0.1, 0.9]
            np.testing.assert_allclose(found.quantiles(levels) - level, known.quantiles(levels), **close)
            np.testing.assert_allclose(fit.quantiles(rows, levels) - level, known.quantiles(levels), **close)
            np.testing.assert_allclose(found.sample(9) - level, known.sample(9), rtol=0, atol=1e-3)
            one = found.survival(level[0] + times)[:, 0], found.survival_draws(level[0] + times, 5)[..., 0]
            other = known.survival(times)[:, 0], known.survival_draws(times, 5)[..., 0]
            for got, wanted in zip(one, other, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-3)
            again = jax.tree.unflatten(*reversed(jax.tree.flatten(found)))
            np.testing.assert_array_equal(again.mean, found.mean)
            np.testing.assert_allclose(pickle.loads(pickle.dumps(found)).quantiles(levels), found.quantiles(levels))
            assert not any("passes through all" in note for note in fit.summary(density=False).notes)


@pytest.mark.long
@pytest.mark.parametrize("levels", [[True, False], [1, 2], ["yes", "no"]])
def test_densities_of_labels_are_by_name_whatever_their_order(levels):
    """A number that is a level is that level, and no code; a name that is none is refused, for 0 or 1 would be a guess."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    is_second = rng.uniform(size=80) < 0.5 + 0.4 * np.tanh(x)
    label = pandas.Categorical([levels[int(one)] for one in is_second], categories=levels, ordered=True)
    table = pandas.DataFrame({"x": x, "label": label})
    prediction = ngp.gam("label ~ x", table, "bernoulli").predict(table)
    wanted = np.log(np.where(is_second, prediction.mean, 1 - prediction.mean))
    for given in (table["label"], list(label)):
        np.testing.assert_allclose(prediction.log_density(given), wanted, rtol=1e-4)
    if levels[0] == "yes":  # a tree of arrays keeps them
        again = jax.tree.map(lambda leaf: leaf, prediction)
        np.testing.assert_array_equal(again.log_density(label), prediction.log_density(label))
    with pytest.raises(ValueError, match=r"y must be of the labels \(.*\), but got 'other'"):
        prediction.log_density(np.full(80, "other"))
