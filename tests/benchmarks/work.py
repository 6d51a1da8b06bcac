"""What each row of the table asks of the library: the same work as is asked of its peers (`peers`)."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import initialize_model

import numpyro_gp as ngp
from tests.benchmarks.clock import Party, compiled

ROWS, COLUMNS, BATCH, LABELLED, WIDTH = 36_000, 8, 1024, 300, 5
MARGINAL_SITES = ("lengthscale", "variance", "noise")


def regression(dtype):
    """Inputs and targets of the size of kin40k."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=ROWS)
    return X.astype(dtype), y.astype(dtype)


def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(LABELLED, 2))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)


def sparse(X, y=None, *, Z, batch=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern52(jnp.ones((), X.dtype), lengthscale), numpyro.param("Z", Z))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        given = None if y is None else y[rows]
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(noise), obs=given)


def step(size, dtype, natural, mean_points=0):
    """One step of SVI, minibatch and all: Adam, or natural steps on the belief and Adam elsewhere.

    With ``mean_points`` the belief is orthogonal, its covariance on the ``size`` inducing inputs.
    """
    X, y = map(jnp.asarray, regression(dtype))
    rest = optax.adam(1e-2)
    recipe = ngp.guides.coupled(natural=natural)
    if mean_points:
        recipe = ngp.guides.orthogonal(X[size : size + mean_points], natural=natural, train_inputs=True)
    guide = ngp.AutoGP(sparse, {"f": recipe})
    svi = SVI(sparse, guide, ngp.optim.natural_gradient(rest, 0.1) if natural else rest, Trace_ELBO())
    keywords = dict(Z=X[:size], batch=BATCH)
    state = jax.jit(lambda key: svi.init(key, X, y, **keywords))(jax.random.key(0))
    return compiled("ours", lambda state: svi.update(state, X, y, **keywords), state, carry=True)


def deep_model(X, y, *, Z, batch):
    """Two layers; the units of the first share its kernel and its inducing inputs."""
    widths = {"inner": (X.shape[1], WIDTH), "outer": (WIDTH, None)}
    found = {}
    for name, (columns, outputs) in widths.items():
        lengthscale = numpyro.param(
            f"lengthscale_{name}", jnp.ones(columns, X.dtype), constraint=dist.constraints.positive
        )
        variance = numpyro.param(f"variance_{name}", jnp.ones((), X.dtype), constraint=dist.constraints.positive)
        inducing = numpyro.param(f"Z_{name}", Z[:, :columns])
        found[name] = ngp.gp(name, ngp.kernels.Matern52(variance, lengthscale), inducing, outputs=outputs)
    noise = numpyro.param("noise", jnp.full((), 0.1, X.dtype), constraint=dist.constraints.positive)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        h = found["inner"].draw("h", X[rows])
        ngp.observe("y", found["outer"](h), ngp.likelihoods.Gaussian(noise), obs=y[rows])


def deep_step(size, dtype):
    X, y = map(jnp.asarray, regression(dtype))
    svi = SVI(deep_model, ngp.AutoGP(deep_model), optax.adam(1e-2), Trace_ELBO())
    keywords = dict(Z=X[:size], batch=BATCH)
    state = jax.jit(lambda key: svi.init(key, X, y, **keywords))(jax.random.key(0))
    return compiled("ours", lambda state: svi.update(state, X, y, **keywords), state, carry=True)


def prediction(size, dtype, rows=100_000):
    X, y = map(jnp.asarray, regression(dtype))
    guide = ngp.AutoGP(sparse)
    svi = SVI(sparse, guide, optax.adam(1e-2), Trace_ELBO())
    state = svi.init(jax.random.key(0), X[:BATCH], y[:BATCH], Z=X[:size])
    posterior = ngp.Posterior.from_svi(sparse, guide, svi.get_params(state))
    new = np.random.default_rng(1).normal(size=(rows, COLUMNS)).astype(dtype)

    def call():
        found = posterior.predict(jax.random.key(1), new, Z=X[:size])
        jax.block_until_ready((found.mean, found.variance))

    return Party("ours", call)


def latent(X, y):
    """Classification with the inducing inputs at the data."""
    lengthscale, variance = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "variance"))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), X)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f.at_inducing(with_jitter=True), ngp.likelihoods.Bernoulli(), obs=y)


def leapfrog(model, name="ours"):
    """What a step of NUTS computes: the potential and its gradient."""
    X, y = map(jnp.asarray, labels())
    potential = initialize_model(jax.random.key(0), model, model_args=(X, y))
    return compiled(name, jax.value_and_grad(potential.potential_fn), potential.param_info.z)


def marginal(X, y):
    """Regression with the function integrated out."""
    lengthscale, variance, noise = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in MARGINAL_SITES)
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise, obs=y)


def particles(model, make=ngp.stein.SVGD, kernel=ngp.stein.RBF, name="ours"):
    X, y = map(jnp.asarray, labels())
    svgd = make(model, numpyro.optim.Adam(0.01), kernel(), 10)
    state = jax.tree.map(jnp.asarray, svgd.init(jax.random.key(0), X, y))
    return compiled(name, lambda state: svgd.update(state, X, y), state, carry=True)


def minibatch(name, handler):
    def rows(key):
        with numpyro.handlers.seed(rng_seed=key), handler(), numpyro.plate("data", ROWS, subsample_size=BATCH) as drawn:
            return drawn

    return compiled(name, rows, jax.random.key(0))
