"""Neighbours found anew in a fit, in its own lengthscales, and minibatches that do not know how many rows there are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import feed_of
from numpyro_gp.training.loop import Renewal
from tests.compiling import counted

RNG = np.random.default_rng(5)
X = RNG.uniform(size=(50, 2))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.normal(size=50)
SCALE = np.array([0.3, 6.0])


def model(near, y, *, batch=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
    kernel = ngp.kernels.RBF(1.0, lengthscale)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        ngp.gp_regression("y", kernel, near[idx], 0.05, obs=y)


def still():
    """An engine that stays where it begins."""
    guide = AutoDelta(model, init_loc_fn=init_to_value(values={"lengthscale": jnp.asarray(SCALE)}))
    return SVI(model, guide, optax.sgd(0.0), Trace_ELBO())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*ends where it began:UserWarning")
def test_a_fit_finds_neighbours_anew_at_two_of_its_steps():
    near = ngp.neighbours(X, 3)
    result = ngp.fit(jax.random.key(0), still(), 20, near, Y, progress=False)
    density = jax.jit(lambda near: numpyro.infer.util.log_density(model, (near, Y), {}, {"lengthscale": SCALE})[0])
    before, after = -density(near), -density(near.rescaled(SCALE))
    assert abs(before - after) > 0.1
    np.testing.assert_allclose(result.losses, [before] * 3 + [after] * 17, rtol=1e-10)
    with counted() as programs:
        ngp.fit(jax.random.key(0), still(), 20, near, Y, progress=False)
    assert programs.count == 0
    # A fit that goes on begins with neighbours found anew, as those that it had are in no checkpoint.
    again = ngp.fit(jax.random.key(0), still(), 25, near, Y, progress=False, resume=result)
    np.testing.assert_allclose(again.losses[20:], [after] * 5, rtol=1e-10)


@pytest.mark.long
def test_particles_have_the_units_of_their_median():
    near = ngp.neighbours(X, 3)
    svgd = ngp.stein.SVGD(model, optax.adam(0.05), ngp.stein.RBF(), num_stein_particles=3)
    feed = feed_of(svgd, jax.random.key(0), Arguments((near, jnp.asarray(Y)), {"batch": 10}))
    result = ngp.fit(jax.random.key(0), svgd, 2, near, Y, batch=10, progress=False)
    renewal = Renewal(svgd, feed, 10, 0)
    assert (renewal.marks, renewal.steps_before(0, 100), renewal.steps_before(1, 100)) == ([1, 5], 1, 4)
    before = [array.committed for array in feed.arrays()]
    renewal.at(1, result.state)
    assert [array.committed for array in feed.arrays()] == before  # else the step would be compiled again
    found = feed.call.at(feed.now).args[0]
    middle = np.median(svgd.particles(result.params)["lengthscale"], axis=0)
    np.testing.assert_allclose(found.lengthscale, middle)
    assert np.array_equal(found.index, near.rescaled(middle).index)


def test_of_two_processes_on_the_same_neighbours_the_shortest_lengthscales_count():
    """A smooth one that is named last took them for itself: 40 in both columns tells no row from another."""

    def pair(near, y):
        with numpyro.plate("data", near.size) as idx:
            for site, lengthscale in (("rough", jnp.asarray(SCALE)), ("smooth", jnp.asarray([40.0, 4.0]))):
                ngp.gp_regression(site, ngp.kernels.RBF(1.0, lengthscale), near[idx], 0.05, obs=y)

    near = ngp.neighbours(X, 3)
    engine = SVI(pair, lambda near, y: None, optax.sgd(0.0), Trace_ELBO())
    state = engine.init(jax.random.key(0), near, Y)
    feed = feed_of(engine, jax.random.key(0), Arguments((near, jnp.asarray(Y)), {}))
    Renewal(engine, feed, 10, 0).at(1, state)
    np.testing.assert_allclose(feed.call.at(feed.now).args[0].lengthscale, [0.3, 4.0])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*ends where it began:UserWarning")
def test_values_of_a_process_keep_the_neighbours_that_they_are_of():
    """Whitened values are of one choice of neighbours: by others, predictions were those of another function."""

    def counts(near, y):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("data", near.size) as idx:
            f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), near[idx])
            ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y[idx])

    near, y = ngp.neighbours(X, 3, others=True), jnp.asarray(RNG.poisson(np.exp(Y)))
    values = {"lengthscale": jnp.asarray(SCALE), "f": jnp.asarray(RNG.normal(size=50))}
    density = jax.jit(lambda near: numpyro.infer.util.log_density(counts, (near, y), {}, values)[0])
    assert abs(density(near) - density(near.rescaled(SCALE))) > 0.1
    engine = SVI(counts, AutoDelta(counts, init_loc_fn=init_to_value(values=values)), optax.sgd(0.0), Trace_ELBO())
    result = ngp.fit(jax.random.key(0), engine, 20, near, y, progress=False)
    np.testing.assert_allclose(result.losses, np.full(20, -density(near)), rtol=1e-10)
