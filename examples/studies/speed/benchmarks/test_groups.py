"""Many processes at once: ``pytest -m benchmark examples/studies/speed/benchmarks/test_groups.py -s -n 0``.

64 groups of 100 rows in a plate, one program, against 64 fits one after the other, compilation included.
"""

import time
from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_feasible
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp

GROUPS, ROWS, STEPS, SOME = 64, 100, 300, 6
Z = np.linspace(-1.0, 1.0, 12)[:, None]


def many(X, y):
    with numpyro.plate("group", GROUPS, dim=-2):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))[:, 0]
        f = ngp.gp("f", jax.vmap(lambda l: ngp.kernels.Matern52(1.0, l))(lengthscale), Z)
        with numpyro.plate("data", ROWS):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)


def one(X, y):
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))), Z)
    with numpyro.plate("data", ROWS):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)


def engine(model):
    """Natural steps on the beliefs, Adam on the lengthscales, whose steps do not mix the groups."""
    rest = partial(AutoDelta, init_loc_fn=init_to_feasible)  # the same start for one group and for many
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)}, rest=rest)
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.5), Trace_ELBO())


def fitted(svi, X, y):
    """Losses of a fit, and its seconds, compilation included."""
    start = time.perf_counter()
    losses = np.asarray(ngp.fit(jax.random.key(0), svi, STEPS, X, y, progress=False).losses)
    return losses, time.perf_counter() - start


@pytest.mark.benchmark
def test_groups_in_one_program_take_a_quarter_of_the_time_of_single_fits():
    """The same losses, step by step: the same work. A loop over groups that makes an engine for each, or has one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (GROUPS, ROWS, 1))
    y = np.sin(4 * X[..., 0]) + 0.2 * rng.normal(size=(GROUPS, ROWS))
    every, single = engine(many), engine(one)
    losses, together = fitted(every, X, y)
    found = [fitted(single, X[g], y[g]) for g in range(GROUPS)]
    np.testing.assert_allclose(losses, sum(own for own, _ in found), rtol=1e-6)
    again, reused = fitted(every, X, y)[1], [seconds for _, seconds in found]
    made = [fitted(engine(one), X[g], y[g])[1] for g in range(SOME)]
    alone = reused[0] + (GROUPS - 1) * np.median(made)
    print(
        f"\n64 groups of 100 rows, {STEPS} steps: {together:.1f} s in one program, again {again:.2f} s; one after the "
        f"other {alone:.0f} s (the first {reused[0]:.1f}, others {np.median(made):.2f} each, {SOME} of them timed), by one "
        f"engine for all {sum(reused):.1f} s, again {GROUPS * np.median(reused[1:]):.2f} s"
    )
    assert together < alone / 4
