"""How to add a variational posterior: covariance of low rank plus a diagonal, between `mean_field` and `coupled`.

A belief says four things about the whitened values ``v`` of its site, whose prior is N(0, I): their mean, the marginals
and the joint of the function, and its KL divergence. SVI then targets the same bound as with `coupled`, over a smaller
family with ``M (R + 2)`` parameters; NUTS knows nothing of it. Predictions, draws, LOO and ArviZ follow.
To use it elsewhere: ``from own_belief import low_rank`` and ``ngp.AutoGP(model, {"f": low_rank(5)})``.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LowRank(ngp.beliefs.AbstractBelief):
    """``q(v) = N(m, S)`` with ``S = diag(s^2) + W W^T``; with outputs, P on the left of every array."""

    mean: jax.Array  # m, (..., M)
    scale: jax.Array  # s, (..., M), positive
    factor: jax.Array  # W, (..., M, R)

    @property
    def whitened_mean(self):
        """The array that this value looks like to NumPyro."""
        return self.mean

    def marginals(self, basis, X):
        """With features ``A = L^-1 k(Z, X)`` ``(M, N)``: ``A^T m`` and ``k_nn + A_n^T (S - I) A_n``."""
        A, prior = basis.features(X), basis.diagonal(X)
        shared = jnp.einsum("...mr,mn->...rn", self.factor, A)
        variance = jnp.einsum("...m,mn->...n", self.scale**2 - 1, A**2) + jnp.sum(shared**2, axis=-2)
        variance = variance + jnp.broadcast_to(prior, variance.shape)
        # Next to an inducing point the terms cancel: keep the variance above their rounding error.
        floor = 4 * jnp.finfo(prior.dtype).eps * jnp.broadcast_to(prior, variance.shape)
        return ngp.beliefs.Marginals(self.mean @ A, jnp.maximum(variance, floor))

    def joint(self, basis, X):
        """``A^T m`` and ``k(X, X) + A^T (S - I) A``."""
        A = basis.features(X)
        shared = jnp.einsum("...mr,mn->...rn", self.factor, A)
        change = jnp.einsum("mn,...m,mk->...nk", A, self.scale**2 - 1, A)
        change = change + jnp.einsum("...rn,...rk->...nk", shared, shared)
        return ngp.beliefs.Joint(self.mean @ A, jnp.broadcast_to(basis.matrix(X), change.shape) + change)

    def kl(self, basis):  # noqa: ARG002
        """``(tr S + |m|^2 - M - log |S|) / 2``, where ``|S| = |diag(s^2)| |I_R + W^T diag(s^-2) W|``."""
        small = jnp.einsum("...mr,...m,...mq->...rq", self.factor, self.scale**-2, self.factor)
        small = small + jnp.broadcast_to(jnp.eye(small.shape[-1], dtype=small.dtype), small.shape)
        log_det = 2 * jnp.sum(jnp.log(self.scale)) + jnp.sum(jnp.linalg.slogdet(small)[1])
        trace = jnp.sum(self.scale**2) + jnp.sum(self.factor**2)
        return 0.5 * (trace + jnp.sum(self.mean**2) - self.mean.size - log_det)


def low_rank(rank, scale=1.0):
    """The recipe: declares the parameters of a site, starting next to its prior, and makes the belief of them."""

    def recipe(name, prior):
        shape, dtype = prior.event_shape, prior.dtype
        mean = numpyro.param(f"{name}/mean", jnp.zeros(shape, dtype))
        spread = jnp.full(shape, scale, dtype)
        spread = numpyro.param(f"{name}/scale", spread, constraint=constraints.softplus_positive)
        # At W = 0 its gradient vanishes, so it starts at small random values.
        start = 0.1 * jax.random.normal(jax.random.key(0), (*shape, rank), dtype)
        return LowRank(mean, spread, numpyro.param(f"{name}/factor", start))

    return recipe


def model(X, y=None, *, Z, batch=None):
    """Sparse regression: nothing in it knows of the belief."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def simulate(key, num_data=500, num_inducing=30):
    """A wave with noise of scale 0.2."""
    at, noise = jax.random.split(key)
    X = jax.random.uniform(at, (num_data, 1), minval=-3.0, maxval=3.0)
    y = jnp.sin(2 * X[:, 0]) + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide(rank=5):
    """The belief at "f", points elsewhere."""
    return ngp.AutoGP(model, {"f": low_rank(rank)})


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
