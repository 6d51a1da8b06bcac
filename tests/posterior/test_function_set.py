"""Functions of a posterior: fixed for good, from every engine, with the moments of the process."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from tests.oracles.vectors import cases

CASE = cases("collapsed")[0]
DATA, Y, NEW = jnp.asarray(CASE["X"]), jnp.asarray(CASE["y"]), jnp.asarray(CASE["Xs"])
Z, KEY = DATA[:4], jax.random.key(0)


def model(X, y=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.3))
    level = numpyro.sample("level", dist.Normal())
    f = ngp.gp("f", ngp.kernels.Matern52(1.2, lengthscale), Z, mean=lambda X: level + 0.0 * X[..., 0], outputs=2)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.HeteroscedasticGaussian(), obs=y)


DRAWS = {
    "f": 0.3 * np.random.default_rng(0).normal(size=(6, 2, 4)),
    "lengthscale": jnp.linspace(0.6, 1.2, 6),
    "level": jnp.arange(6.0),
}
POSTERIOR = ngp.Posterior.from_mcmc(model, DRAWS)


@functools.cache
def functions():
    return POSTERIOR.functions(KEY, 6, NEW, num_features=64)


@pytest.mark.long
def test_a_function_is_the_same_whatever_rows_come_together():
    """Rows in any order, alone, traced or mapped; the slope is that of each function; they are a sequence.

    JAX takes the last of an array for what is behind its end, and a loop over such a sequence never ends.
    """
    f, order = functions(), jnp.array([3, 0, 2, 1])
    values = f(NEW)
    assert values.shape == POSTERIOR.function_draws(KEY, NEW).shape == (6, 4, 2)
    same = {
        "order": f(NEW[order])[:, jnp.argsort(order)],
        "alone": jnp.concatenate([f(row[None]) for row in NEW], axis=1),
        "traced": jax.jit(lambda f, X: f(X))(f, NEW),
        "of each": f(jnp.broadcast_to(NEW, (6, *NEW.shape))),
        "mapped": jax.vmap(lambda x: f(x[None])[:, 0], out_axes=1)(NEW),
        "again": POSTERIOR.functions(KEY, 6, DATA, num_features=64)(NEW),
        "one by one": jnp.stack([one(NEW) for one in f]),
    }
    for name, found in same.items():
        np.testing.assert_allclose(found, values, rtol=1e-9, err_msg=name)
    # Means differ by the level of each draw: a mean function that closes over a site keeps the value of its draw.
    np.testing.assert_allclose(values.mean(axis=(1, 2)), jnp.arange(6.0), atol=1.5)
    step = jnp.zeros(NEW.shape[1]).at[0].set(1e-5)[None]
    np.testing.assert_allclose(f.gradient(NEW)[..., 0], (f(NEW + step) - f(NEW - step)) / 2e-5, atol=1e-6)
    total = jax.grad(lambda X: jnp.sum(f(X)))(NEW)
    np.testing.assert_allclose(total, jnp.sum(f.gradient(NEW), axis=(0, 2)), rtol=1e-8)
    assert (len(f), len(f[1:3])) == (6, 2)
    np.testing.assert_allclose(f[1:3](NEW), values[1:3], rtol=1e-9)
    np.testing.assert_allclose(f[-1](NEW), values[5], rtol=1e-9)
    np.testing.assert_allclose(jax.jit(lambda f, at: f[at](NEW))(f, 2), values[2], rtol=1e-9)
    for number in (6, -7):
        with pytest.raises(IndexError):
            f[number]


def sparse(X, y=None):
    f = ngp.gp("f", ngp.kernels.Matern52(1.2, 0.7), Z.astype(X.dtype), mean=0.5, jitter=1e-4)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def exact(X, y=None):
    numpyro.sample("none", dist.Normal())
    ngp.gp_regression("y", ngp.kernels.Matern52(1.2, 0.7), X, 0.1, obs=y.astype(X.dtype))


def is_close(draws, mean, covariance, level=5.0):
    """Moments of draws (S, N) within Monte Carlo error of those wanted, in standard errors."""
    count, scale = len(draws), np.sqrt(np.diagonal(covariance))
    assert np.max(np.abs(draws.mean(0) - mean) / scale) < level / count**0.5
    error = np.sqrt((np.outer(scale, scale) ** 2 + np.asarray(covariance) ** 2) / count)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / error) < level


KERNEL = ngp.kernels.Matern52(1.2, 0.7)
VALUE = 0.5 * jnp.arange(4.0)


def process_of(name, dtype):
    """A posterior whose draws are all of one process, the arguments of its model, and that process."""
    if name == "exact":
        posterior = ngp.Posterior.from_mcmc(exact, {"none": jnp.zeros(2000)})
        return posterior, (DATA.astype(dtype), Y), ngp.gp_regression("y", KERNEL, DATA, 0.1, obs=Y)
    belief = ngp.beliefs.Coupled(VALUE.astype(dtype), 0.3 * jnp.eye(4, dtype=dtype))
    with numpyro.handlers.substitute(data={"f": belief}):
        f = ngp.gp("f", KERNEL, Z, mean=0.5, jitter=1e-4)
    guide = lambda *args: numpyro.sample("f", ngp.Belief(belief))  # noqa: E731
    return ngp.Posterior.from_svi(sparse, guide, {}), (DATA.astype(dtype),), f


# On inducing inputs, near them and far away.
PLACES = jnp.concatenate([Z[:2], Z[1:3] + 0.3, NEW[:2] + 3.0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("belief", jnp.float64), ("belief", jnp.float32), ("exact", jnp.float64)],
)
def test_moments_are_those_of_the_process(name, dtype):
    """2000 functions of 256 features; starved variances, or a prior without its correction, are 20 errors away."""
    posterior, args, f = process_of(name, dtype)
    found = posterior.functions(jax.random.key(1), 2000, *args, num_features=256)(PLACES.astype(dtype))
    assert found.dtype == dtype
    is_close(np.asarray(found, float), f(PLACES).mean, f.process.joint(f.basis, PLACES).covariance)


@pytest.mark.long
def test_components_and_pickling():
    def additive(X, y=None):
        kernels = {"a": ngp.kernels.RBF(1.0, 0.5).on(0), "b": ngp.kernels.Linear(0.7)}
        f = ngp.additive_gp("f", kernels, {"a": Z, "b": Z[:2]})
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    f = ngp.Posterior.from_mcmc(additive, {"f": jnp.ones((3, 6))}).functions(KEY, 3, DATA, num_features=8)
    parts = f.components(NEW)
    np.testing.assert_allclose(parts["a"] + parts["b"], f(NEW), rtol=1e-12)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(f))(NEW), f(NEW), rtol=1e-12)


def by_callable(X, y=None):
    """A kernel that is a function has no features: values are drawn together."""
    f = ngp.gp("f", lambda A, B: jnp.exp(-jnp.sum((A[:, None] - B[None]) ** 2, -1)), Z, mean=0.5)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)
    return f


@pytest.mark.long
def test_kernels_without_features_remember_what_they_were_asked():
    """The values of all rows at once, asked in two calls with rows again; the moments are those of the process."""
    posterior = ngp.Posterior.from_mcmc(by_callable, {"f": jnp.broadcast_to(VALUE, (400, 4))})
    f, g = (posterior.functions(KEY, 400, NEW) for _ in range(2))
    assert len(f) == 400
    first = f(NEW[:2])
    with pytest.raises(ValueError, match=f"X must be an array with {NEW.shape[1]} columns"):  # and it leaves nothing
        f(jnp.zeros((2, NEW.shape[1] + 1)))
    both = f(jnp.concatenate([NEW[2:3], NEW[:2], NEW[2:3]]))
    np.testing.assert_array_equal(both[:, 1:3], first)
    np.testing.assert_array_equal(both[:, 0], both[:, 3])
    np.testing.assert_allclose(g(NEW[:3]), f(NEW[:3]), rtol=1e-9)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data={"f": VALUE}):
        joint = by_callable(NEW).joint(NEW[:3])
    is_close(np.asarray(f(NEW[:3])), joint.mean, joint.covariance_matrix)
    with pytest.raises(TypeError, match="X must be known numbers, as the kernel has no features"):
        jax.jit(f)(NEW)


@pytest.mark.long
def test_refusals():
    with pytest.raises(ValueError, match=r"X must be of shape \(N, D\), or \(6, N, D\) with inputs for each function"):
        functions()(jnp.zeros((5, 2, NEW.shape[1])))
    with pytest.raises(ValueError, match="num_features"):
        POSTERIOR.functions(KEY, 2, NEW, num_features=0)
    with pytest.raises(TypeError, match="arguments of the model"):
        POSTERIOR.functions(KEY, 2)


@pytest.mark.long
def test_a_call_that_fails_leaves_nothing_behind(monkeypatch):
    """Rows whose values were never drawn had those of the last row that was, and wrong columns came to stay."""
    posterior = ngp.Posterior.from_mcmc(by_callable, {"f": 0.3 * np.random.default_rng(3).normal(size=(3, 4))})
    first, second = NEW[:2], NEW[2:4]
    wanted, f = (posterior.functions(KEY, 3, first) for _ in range(2))
    wanted(first), f(first)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f, "_draw", lambda rows: (_ for _ in ()).throw(KeyboardInterrupt))
        f(second)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"X must be an array with {NEW.shape[1]} columns"):
            f(jnp.zeros((2, NEW.shape[1] + 1)))
    np.testing.assert_allclose(f(second), wanted(second), rtol=1e-6)
    assert float(jnp.abs(f(second)[:, 0] - f(second)[:, 1]).max()) > 1e-3
