"""NUTS on a hierarchical model: ranks of the true hyper-parameters are uniform where the prior made the data.

Chance of a failure of the right model: 0.001 for each of three sites, 0.003 in all; the seed is fixed. The wrong one
has its population's median e times that of the prior, which 40 data sets show.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp

G, X = 3, jnp.linspace(-1.0, 1.0, 4)[:, None]


def hierarchy(X, y=None, *, level=0.0):
    """A function for each group, its variance from a population; inducing inputs at all data, so nothing is lost."""
    typical = numpyro.sample("typical", dist.LogNormal(level, 0.7))
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-0.5, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    with numpyro.plate("group", G, dim=-2):
        variance = typical * numpyro.sample("factor", dist.LogNormal(0.0, 0.3))[:, 0]
        f = ngp.gp("f", jax.vmap(lambda v: ngp.kernels.RBF(v, lengthscale))(variance), X)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f.at_inducing(), ngp.likelihoods.Gaussian(noise), obs=y)


@pytest.mark.statistical
@pytest.mark.parametrize("level", [0.0, 1.0], ids=["right prior", "wrong prior"])
def test_nuts_on_a_hierarchical_model_is_calibrated(level):
    truth = partial(hierarchy, level=level)
    sites = ["typical", "lengthscale", "noise"]
    found = ngp.diagnose.sbc(
        jax.random.key(0), hierarchy, X, truth=truth, sites=sites, num_simulations=40, num_draws=15, thinning=4
    )
    print(found)
    wrong = {name for name, p_value in found.p_values.items() if p_value < 1e-3}
    assert wrong == ({"typical"} if level else set())
