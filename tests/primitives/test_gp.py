"""The gp primitive: kernels of one and of several, in plates and as outputs, handlers, bad input."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from tests.primitives.test_process import process

HERE = jnp.linspace(0.0, 1.0, 4)[:, None]
ROWS = jnp.array([[0.1], [0.45], [0.8]])


def test_wrong_axes_of_batches_are_named():
    kernel = ngp.kernels.RBF(1.0, 0.7)
    batch = ngp.kernels.stack([kernel] * 2)
    outside = (
        r"the kernel, the inducing inputs or the noise of site 'f' must be no batch outside of every plate, but "
        r'got leading axes \(2,\)\. Call it inside numpyro\.plate\("group", G\)\. For outputs pass'
    )
    of_three = r"X must be of shape \(N, D\), rows that all members share, or \(3, N, D\)"
    for plates, call, message in (
        (0, lambda: ngp.gp("f", batch, HERE), outside),
        (
            0,
            lambda: ngp.gp("f", batch, HERE, outputs=3),
            "outputs must be 2, as the batch of kernels has a leading axis",
        ),
        (0, lambda: ngp.gp("f", batch, jnp.stack([HERE] * 3), outputs=2), r"of shape \(M, D\), shared, or \(2, M, D\)"),
        (0, lambda: process(jnp.ones((5, 2, 4)), batch, HERE, outputs=2), r"values of shape \(2, 4\), .*no plate"),
        (
            3,
            lambda: process(jnp.zeros((2, 4)), kernel, HERE),
            r"value at site 'f' must be .* \(3, 4\), .* but got shape \(2,",
        ),
        (3, lambda: ngp.gp("f", batch, HERE), r"kernel.* of site 'f' must be a batch of the plates around it, \(3,\)"),
        (3, lambda: ngp.gp("f", kernel, HERE, mean=jnp.zeros(2)), "mean must be one level for each member of plate 'g"),
        (3, lambda: ngp.gp("f", kernel, HERE)(jnp.stack([ROWS, ROWS])), of_three),
    ):
        around = numpyro.plate("group", plates) if plates else nullcontext()
        with handlers.seed(rng_seed=0), around, pytest.raises(ValueError, match=message):
            call()


@pytest.mark.long
def test_draws_in_a_plate_are_draws_of_the_members():
    """Two sets of rows for each member share a function; members have their own."""
    X, noise = jnp.stack([ROWS, ROWS + 0.3])[:, None] + jnp.array([0.0, 0.1])[None, :, None, None], jnp.ones((2, 2, 3))
    values = jnp.arange(8.0).reshape(2, 4) / 8
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])

    def drawn(value, kernel, X, noise):
        f = process(value, kernel, HERE)
        with handlers.substitute(data={"e": noise}):
            return f.draw("e", X)

    with numpyro.plate("group", 2, dim=-2):
        both = drawn(values[:, None], kernels, X, noise)
    for g in range(2):
        one = drawn(values[g], jax.tree.map(lambda leaf, g=g: leaf[g], kernels), X[:, g], noise[:, g])
        np.testing.assert_allclose(both[:, g], one, rtol=1e-8)


@pytest.mark.long
def test_at_inducing_in_a_plate():
    """Shared inputs and inputs of each member: read off the factors, the same numbers as the process called there."""
    values, kernels = (
        jnp.arange(8.0).reshape(2, 4) / 8,
        ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)]),
    )
    for Z in (HERE, jnp.stack([HERE, HERE + 0.3])):
        with numpyro.plate("group", 2):
            f = process(values, kernels, Z, mean=jnp.array([1.0, -1.0]), jitter=1e-3)
        np.testing.assert_allclose(f.at_inducing().mean, f(Z + 0.0).mean, atol=1e-10)
        np.testing.assert_allclose(f.at_inducing().variance, f(Z + 0.0).variance, atol=1e-10)
