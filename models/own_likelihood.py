"""How to add a likelihood: counts with more zeros than Poisson's, from a share of rows that can only be zero.

A likelihood is an immutable pytree with ``conditional(f)``, the distribution of the data given the function, and four
Gaussian expectations. Each is one line where quadrature will do, and a closed form where you know one. SVI then targets
the sparse variational bound, NUTS the sparse MCMC posterior; predictions, LOO and predictive checks follow.
A likelihood without any closed form needs no class: ``ngp.observe("y", f(X), lambda f: dist.Poisson(jnp.exp(f)), y)``.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

POISSON = ngp.likelihoods.Poisson()


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ZeroInflatedPoisson(ngp.likelihoods.Likelihood):
    """``y = 0`` with probability ``gate``, else Poisson with rate ``exp(f)``.

    The hooks get ``y`` and ``latent.mean``, ``latent.variance`` of one dtype and shape: the moments of f at each datum.
    """

    gate: jax.Array  # (), in (0, 1)

    def conditional(self, f):
        """``p(y | f)``."""
        return dist.ZeroInflatedPoisson(jnp.asarray(self.gate, f.dtype), jnp.exp(f), validate_args=False)

    def check_targets(self, y):
        """Counts; leave it out to accept any finite number."""
        POISSON.check_targets(y)

    def _expected(self, y, latent):
        """``E log p(y | f)``: in closed form above zero, by quadrature at zero."""
        above = jnp.log1p(-self._gate(y)) + POISSON.expected_log_prob(y, latent.mean, latent.variance)
        quadrature = ngp.likelihoods.as_likelihood(self.conditional)
        zero = quadrature.expected_log_prob(jnp.zeros_like(y), latent.mean, latent.variance)
        return jnp.where(y == 0, zero, above)

    def _predictive(self, y, latent):
        """``log E p(y | f)``: the mixture of Poisson's, as the gate does not depend on f."""
        gate = self._gate(y)
        poisson = jnp.log1p(-gate) + POISSON.predictive_log_prob(y, latent.mean, latent.variance)
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(gate), poisson), poisson)

    def _mean(self, latent):
        """``(1 - gate) E exp(f)``."""
        return (1 - self._gate(latent.mean)) * POISSON.predictive_mean(latent.mean, latent.variance)

    def _variance(self, latent):
        """``(1 - gate) (V + gate M^2)`` with Poisson's predictive mean M and variance V."""
        gate, moments = self._gate(latent.mean), (latent.mean, latent.variance)
        return (1 - gate) * (POISSON.predictive_variance(*moments) + gate * POISSON.predictive_mean(*moments) ** 2)

    def _gate(self, like):
        return jnp.broadcast_to(jnp.asarray(self.gate, like.dtype), like.shape)


def model(X, y=None, *, Z, batch=None):
    """``level`` is the log rate far from the data, of the rows that are not gated."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(-1.0, 1.0))
    level = numpyro.sample("level", dist.Normal(1.0, 1.0))
    gate = numpyro.sample("gate", dist.Beta(2.0, 2.0))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z, mean=level)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ZeroInflatedPoisson(gate), obs=None if y is None else y[idx])


def simulate(key, num_data=300, num_inducing=20):
    """Counts whose rate rises and falls, a third of them gated."""
    count, gated = jax.random.split(key)
    X = jnp.linspace(-3.0, 3.0, num_data)[:, None]
    y = jax.random.poisson(count, jnp.exp(1.0 + jnp.sin(2 * X[:, 0]))).astype(X.dtype)
    y = jnp.where(jax.random.bernoulli(gated, 1 / 3, y.shape), 0.0, y)
    return {"X": X, "y": y, "Z": jnp.linspace(-3.0, 3.0, num_inducing)[:, None]}


def guide():
    """Adam on a full covariance: the first natural steps of counts can overshoot."""
    return ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.3)})


def engine(guide):
    """About 2000 steps."""
    return SVI(model, guide, optax.adam(1e-2), Trace_ELBO())
