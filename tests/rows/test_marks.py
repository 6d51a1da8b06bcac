"""Marks of neighbours, and fits whose values are those of one choice of neighbours or of one order of rows."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from tests.compiling import counted

RNG = np.random.default_rng(11)
X, NEW = RNG.uniform(size=(40, 2)), RNG.uniform(size=(3, 2))
Y = jnp.asarray(RNG.poisson(np.exp(np.sin(6 * X[:, 0]))).astype(float))
KEY = jax.random.key(0)
NEAR = ngp.neighbours(X, 4, others=True)
# The same rows: more of them, chosen ones, in other units, in another order of theirs.
OTHERS = {
    "number": ngp.neighbours(X, 6, others=True),
    "candidates": ngp.neighbours(X, 4, others=True, candidates=12),
    "units": NEAR.rescaled(jnp.array([1.0, 20.0])),
    "order": ngp.neighbours(X, 4, others=True, order="given"),
}
TURNED = ngp.neighbours(X[::-1], 4, others=True)
REFUSAL = "near must be the neighbours of the fit, but got {}at site 'f'.*Pass the near with which it was fitted"
HIDDEN = {}


def counts(near, y=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.3))
    with numpyro.plate("data", near.size) as idx:
        f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), near[idx])
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=None if y is None else y[idx])


def held(data):
    """The same of one argument that has all."""
    counts(data["near"], data["y"])


def closed_over(y=None):
    """The same of neighbours that are no argument."""
    counts(HIDDEN["near"], y)


def refused(got=""):
    return pytest.raises(ValueError, match=REFUSAL.format(f"{got}.*" if got else ".*"))


def by_fit(model, *args, guide=None, step=None):
    guide = guide or AutoDelta(model)
    result = ngp.fit(KEY, SVI(model, guide, step or optax.adam(0.1), Trace_ELBO()), 3, *args, progress=False)
    return ngp.Posterior.from_svi(model, guide, result.params)


def by_run(model, *args):
    """NumPyro's own loop and guide, in one program: a guide of NumPyro's compiles each of its operations."""
    guide = AutoDelta(model)
    svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO())
    return ngp.Posterior.from_svi(model, guide, svi.run(KEY, 2, *args, progress_bar=False).params)


def by_chain(model, *args):
    mcmc = MCMC(ngp.NUTS(model, max_tree_depth=1), num_warmup=1, num_samples=2, progress_bar=False)
    mcmc.run(KEY, *args)
    return ngp.Posterior.from_mcmc(model, mcmc)


def by_particles(model, *args):
    svgd = ngp.stein.SVGD(model, optax.adam(0.1), ngp.stein.RBF(), num_stein_particles=2)
    return ngp.Posterior.from_stein(model, svgd, ngp.fit(KEY, svgd, 2, *args, progress=False).params)


@pytest.mark.long
def test_values_of_a_process_are_refused_by_other_neighbours():
    posterior = by_fit(counts, NEAR, Y)
    wanted = posterior.predict_at(KEY, NEW, NEAR, Y).mean
    for name, near in OTHERS.items():
        with refused("6 of each row" if name == "number" else "others, 4 of each row as there,"):
            posterior.predict_at(KEY, NEW, near, Y)
    with refused("those of other rows, or in another order, up to"):
        posterior.predict_at(KEY, NEW, TURNED, Y)
    with counted() as programs:
        same = posterior.predict_at(KEY, NEW, ngp.neighbours(X, 4, others=True), y=Y)
    assert programs.count == 0
    np.testing.assert_array_equal(same.mean, wanted)
    # Of a value without a mark nothing is known.
    posterior.predict_at(KEY, NEW, replace(OTHERS["units"], mark=None), Y)


@pytest.mark.long
def test_all_that_reads_the_process_refuses_them():
    posterior, other = by_fit(held, {"near": NEAR, "y": Y}), {"near": OTHERS["units"], "y": Y}
    for ask in (
        lambda: posterior.predict_at(KEY, NEW, other),
        lambda: posterior.predict_at(KEY, iter([NEW]), other),
        lambda: posterior.predictor(KEY, other),
        lambda: posterior.functions(KEY, 2, other),
        lambda: posterior.function_draws(KEY, NEW, other),
        lambda: posterior.draws(KEY, other),
        lambda: posterior.hyperparameters(KEY, other),
        lambda: posterior.to_arviz(KEY, other),
    ):
        with refused():
            ask()


@pytest.mark.long
@pytest.mark.parametrize("made", [by_run, by_chain, by_particles])
def test_every_engine_knows_them_also_where_the_model_closes_over_them(made, monkeypatch):
    monkeypatch.setitem(HIDDEN, "near", NEAR)
    given, hidden = made(counts, NEAR, Y), made(closed_over, Y)
    given.predict_at(KEY, NEW, NEAR, Y)
    hidden.predict_at(KEY, NEW, Y)
    monkeypatch.setitem(HIDDEN, "near", OTHERS["order"])
    with refused():
        given.predict_at(KEY, NEW, OTHERS["order"], Y)
    with refused():
        hidden.predict_at(KEY, NEW, Y)


@pytest.mark.long
def test_particles_are_judged_by_the_neighbours_of_their_fit():
    """Their log density by others was that of other functions, and told which of them are stranded."""
    svgd = ngp.stein.SVGD(counts, optax.adam(0.1), ngp.stein.RBF(), num_stein_particles=2)
    params = ngp.fit(KEY, svgd, 2, NEAR, Y, progress=False).params
    assert np.isfinite(svgd.log_density(params, NEAR, Y)).all()
    for ask in (
        lambda: svgd.log_density(params, OTHERS["units"], Y),
        lambda: ngp.Posterior.from_stein(counts, svgd, params, OTHERS["units"], Y),
    ):
        with refused():
            ask()


@pytest.mark.long
def test_a_fit_by_neighbours_is_loaded_without_its_arguments(tmp_path):
    """The guide is set up on shapes of rows with neighbours too: they had to be passed, found anew for nothing."""
    step = ngp.optim.natural_gradient(optax.adam(0.1))
    for saved, guide in (
        (by_fit(counts, NEAR, Y, guide=ngp.AutoGP(counts), step=step), ngp.AutoGP(counts)),
        (by_fit(held, {"near": NEAR, "y": Y}), AutoDelta(held)),
    ):
        saved.save(tmp_path / "fit.npz")
        args = (NEAR, Y) if saved.model is counts else ({"near": NEAR, "y": Y},)
        loaded = ngp.Posterior.load(tmp_path / "fit.npz", saved.model, guide)
        found, wanted = (own.predict_at(KEY, NEW, *args).mean for own in (loaded, saved))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.long
def test_a_guide_that_is_set_up_inside_of_a_program_knows_the_type_of_its_values():
    """It has kept shapes alone of rows with neighbours, and predictions asked these for numbers."""
    guide = ngp.AutoGP(counts)
    svi = SVI(counts, guide, ngp.optim.natural_gradient(optax.adam(0.1)), Trace_ELBO())
    state = jax.jit(lambda near: svi.init(KEY, near, Y))(NEAR)
    posterior = ngp.Posterior.from_svi(counts, guide, svi.get_params(state))
    # Nothing was said yet: means of counts are exp(1/2), those of the prior.
    np.testing.assert_allclose(posterior.predict_at(KEY, NEW, NEAR, Y).mean, np.exp(0.5), rtol=1e-5)


@pytest.mark.long
def test_pseudo_data_belong_to_rows_and_not_to_neighbours():
    """Their marginals at new rows read the nearest pseudo-data, and no neighbours: all that they keep is the order."""
    step = ngp.optim.natural_gradient(optax.adam(0.1))
    posterior = by_fit(counts, NEAR, Y, guide=ngp.AutoGP(counts), step=step)
    wanted = posterior.predict_at(KEY, NEW, NEAR, Y).mean
    for kind in ("number", "order"):
        np.testing.assert_allclose(posterior.predict_at(KEY, NEW, OTHERS[kind], Y).mean, wanted, rtol=1e-10)
    with refused("those of other rows, or in another order, up to"):
        posterior.predict_at(KEY, NEW, TURNED, Y[::-1])


@pytest.mark.long
def test_values_that_a_recipe_holds_are_those_of_neighbours():
    recipe = {"f": lambda name, prior: dist.Delta(numpyro.param("values", jnp.zeros(prior.shape())))}
    posterior = by_fit(counts, NEAR, Y, guide=ngp.AutoGP(counts, recipe))
    with refused():
        posterior.predict_at(KEY, NEW, OTHERS["units"], Y)


def test_an_array_in_the_place_of_neighbours_is_told_what_the_model_takes():
    """The one error spoke of axes of ``f``, and the other was Python's, of an attribute."""
    with pytest.raises(ValueError, match=r"f of site 'y' .* pass near = ngp\.neighbours\(X, 16, others=True\)"):
        by_fit(counts, X, Y)

    def reads(near, y=None):
        ngp.starting.lengthscale_prior(near.inputs)

    for call in (by_fit, by_chain):
        with pytest.raises(AttributeError, match="inputs") as caught:
            call(reads, X, Y)
        assert sum("'inputs' of near, rows with their neighbours" in note for note in caught.value.__notes__) == 1


@pytest.mark.long
def test_data_that_are_given_their_neighbours_are_tied_to_none():
    """The function is integrated out: a posterior of hyper-parameters predicts from whatever data it is given."""

    def gaussian(near, y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.3))
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, lengthscale), near, 0.1, obs=y)

    posterior = by_fit(gaussian, NEAR, Y)
    wanted = posterior.predict_at(KEY, NEW, NEAR, Y).mean
    for near, y in ((OTHERS["number"], Y), (TURNED, Y[::-1])):
        np.testing.assert_allclose(posterior.predict_at(KEY, NEW, near, y).mean, wanted, rtol=1e-8)
