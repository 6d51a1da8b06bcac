"""Samplers that start in one program are NumPyro's in everything but the number of programs."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC

import numpyro_gp as ngp
from tests.compiling import counted

KEY = jax.random.key(0)
X = jnp.linspace(-1.0, 1.0, 9)[:, None]
Y = jnp.sin(3 * X[:, 0])
SHORT = {"num_warmup": 20, "num_samples": 10, "progress_bar": False}


def process(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))), X[::3])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def conjugate(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def never(y):
    numpyro.factor("nan", jnp.nan * numpyro.sample("mean", dist.Normal(0.0, 2.0)))


def ran(kernel, *args, **options):
    mcmc = MCMC(kernel, **(SHORT | options))
    mcmc.run(KEY, *args)
    return mcmc


@pytest.mark.long
def test_a_chain_starts_in_one_program():
    """What is left is the sampler's loop, and NumPyro's places for draws, one or two for each shape; NumPyro has 60."""
    jax.clear_caches()
    with counted() as programs:
        ran(ngp.NUTS(process), X, Y)
    assert 3 < programs.count <= 16


# Paths of NumPyro's default length, 2 pi, come back to where they began in a normal target.
@pytest.mark.long
@pytest.mark.parametrize("kernel", [ngp.NUTS, functools.partial(ngp.HMC, trajectory_length=1.5)])
def test_draws_are_those_of_the_posterior(kernel):
    """``N(m, s^2)`` with ``1 / s^2 = 1/4 + 9``: a start that kept its place, or a prior, would be far away."""
    draws = ran(kernel(conjugate), Y + 2.0, num_warmup=200, num_samples=2000).get_samples()["mean"]
    variance = 1 / (0.25 + len(Y))
    np.testing.assert_allclose(draws.mean(), variance * np.sum(Y + 2.0), atol=6 * np.sqrt(variance / 400))
    np.testing.assert_allclose(draws.std(), np.sqrt(variance), rtol=0.15)


@pytest.mark.long
def test_several_chains_and_a_chain_that_goes_on():
    mcmc = ran(ngp.NUTS(conjugate), Y, num_chains=3, chain_method="vectorized")
    draws = mcmc.get_samples(group_by_chain=True)["mean"]
    assert draws.shape == (3, 10)
    assert len(np.unique(draws)) > 10
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(mcmc.last_state.rng_key, Y)
    assert len(np.setdiff1d(mcmc.get_samples()["mean"], draws)) > 10


@pytest.mark.long
def test_a_start_without_a_finite_density_is_refused_by_numpyro():
    for kernel in (ngp.NUTS, ngp.HMC):
        with pytest.raises(RuntimeError, match="Cannot find valid initial parameters"):
            ran(kernel(never), Y)


@pytest.mark.long
def test_a_given_start_is_kept_and_bounds_that_are_arrays_leave_no_tracer():
    def bounded(y):
        low = jnp.min(y)
        shape = numpyro.sample("a", dist.Uniform(low, low + jnp.array([2.0, 3.0])).to_event(1))
        numpyro.sample("y", dist.Normal(shape[0], 1.0).expand(y.shape).to_event(1), obs=y)

    kernel = ngp.NUTS(bounded)
    state = kernel.init(KEY, 10, {"a": jnp.zeros(2)}, (Y,), None)
    np.testing.assert_array_equal(state.z["a"], 0.0)
    middle = kernel.get_constrain_fn((Y,))(state.z)["a"]
    np.testing.assert_allclose(middle, float(Y.min()) + np.array([1.0, 1.5]), rtol=1e-12)
    draws = ran(kernel, Y).get_samples()["a"]
    assert np.all(draws > float(Y.min()))


@pytest.mark.long
def test_a_sampler_pickles_and_may_stand_inside_a_trace():
    again = pickle.loads(pickle.dumps(ngp.NUTS(conjugate)))
    one, other = (np.asarray(ran(kernel, Y).get_samples()["mean"]) for kernel in (again, ngp.NUTS(conjugate)))
    np.testing.assert_array_equal(one, other)
    state = jax.jit(lambda key: ngp.NUTS(conjugate).init(key, 10, model_args=(Y,)))(KEY)
    assert np.isfinite(state.potential_energy)


@pytest.mark.long
def test_numpy_arrays_serve_as_in_fit():
    """A model may take the rows of a plate from NumPy's arrays, which JAX alone refuses."""

    def by_rows(X, y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        with numpyro.plate("data", len(X)) as rows:
            numpyro.sample("y", dist.Normal(mean * X[rows, 0], 1.0), obs=y[rows])

    given = ran(ngp.NUTS(by_rows), np.asarray(X), np.asarray(Y)).get_samples()["mean"]
    np.testing.assert_allclose(given, ran(ngp.NUTS(by_rows), X, Y).get_samples()["mean"])
