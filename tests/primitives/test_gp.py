"""The gp primitive: kernels of one and of several, in plates and as outputs, handlers, bad input."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.primitives.function_draw import function_draw
from tests.primitives.test_process import process


def test_bad_input():
    """What ``contracts/misuses.py`` does not have."""
    kernel, Z = ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1))
    for call, message in (
        (lambda: ngp.gp("f", kernel, jnp.zeros((3, 1), bool)), "inducing must be floating point"),
        (lambda: process(jnp.zeros(3), kernel, Z)(jnp.zeros((0, 1))), "X must be a non-empty array"),
        (
            lambda: ngp.additive_gp("f", {"a": kernel}, {"a": Z}).at_inducing(),
            r"made by gp\(\), with inducing",
        ),
    ):
        with handlers.seed(rng_seed=0), pytest.raises((TypeError, ValueError), match=message):
            call()


HERE = jnp.linspace(0.0, 1.0, 4)[:, None]
ROWS = jnp.array([[0.1], [0.45], [0.8]])


@pytest.mark.long
def test_functions_of_own_kernels_are_those_of_single_processes():
    """With the same features and noise; the point is that of each output.

    Weights of harmonics that are rounding, 1e-16, enter by their roots, 1e-8; the other output's kernel is 0.1 away.
    """
    kernels = ngp.kernels.stack([ngp.kernels.Periodic(1.0, 0.7, 2.0), ngp.kernels.Periodic(2.0, 0.5, 3.0)])
    value = jnp.arange(8.0).reshape(2, 4) / 8
    normal = lambda name, shape: jnp.broadcast_to(jnp.linspace(-1.0, 1.0, shape[-1]), shape)  # noqa: E731
    both = function_draw(process(value, kernels, HERE, outputs=2), jax.random.key(0), 40, normal)(ROWS)
    for p in range(2):
        kernel = jax.tree.map(lambda leaf, p=p: leaf[p], kernels)
        single = function_draw(process(value[p], kernel, HERE), jax.random.key(0), 40, normal)(ROWS)
        np.testing.assert_allclose(both[:, p], single, atol=1e-7)


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
        (3, lambda: ngp.gp("f", batch, HERE), r"kernel.* of site 'f' must be a batch of the plates around it, \(3,\)"),
        (3, lambda: ngp.gp("f", kernel, HERE, mean=jnp.zeros(2)), "mean must be one level for each member of plate 'g"),
        (3, lambda: ngp.gp("f", kernel, HERE)(jnp.stack([ROWS, ROWS])), of_three),
    ):
        around = numpyro.plate("group", plates) if plates else nullcontext()
        with handlers.seed(rng_seed=0), around, pytest.raises(ValueError, match=message):
            call()


@jax.jit
def alone(value, factor, number, Z):
    """Mean, joint covariance and divergence of one process."""
    f = process(ngp.beliefs.Coupled(value, factor), ngp.kernels.Matern52(number, 0.3 * number), Z)
    return f(ROWS).mean, f.joint(ROWS).covariance_matrix, f.process.kl(f.basis)


@pytest.mark.long
@pytest.mark.parametrize(("lead", "in_plate"), [((2,), False), ((2,), True), ((3, 2), True)], ids=str)
def test_outputs_are_single_processes(lead, in_plate):
    """Kernels of each output, with inducing inputs of its own; in a plate, and of each output of each member."""
    numbers = 1.0 + jnp.arange(float(np.prod(lead, dtype=int))).reshape(lead)
    made = ngp.kernels.Matern52
    for _ in lead:
        made = jax.vmap(made)
    values = jnp.arange(24.0).reshape(3, 2, 4) / 24
    factors = jnp.stack([0.5 * jnp.eye(4), 0.3 * jnp.eye(4) + 0.1 * jnp.tril(jnp.ones((4, 4)))])
    each = [HERE, HERE] if in_plate else [HERE, HERE + 0.2]

    @jax.jit
    def found():
        held = (values, jnp.stack([factors] * 3)) if in_plate else (values[0], factors)
        Z = HERE if in_plate else jnp.stack(each)
        with numpyro.plate("group", 3) if in_plate else nullcontext():
            f = process(ngp.beliefs.Coupled(*held), made(numbers, 0.3 * numbers), Z, outputs=2)
        assert (f(ROWS).batch_shape, f(ROWS).event_shape) == ((3, 3) if in_plate else (3,), (2,))
        return f(ROWS).mean, f.joint(ROWS).covariance_matrix, f.process.kl(f.basis)

    mean, covariance, kl = found() if in_plate else (one[None] for one in found())
    every = np.broadcast_to(numbers, (3, 2))
    for g in range(len(kl)):
        single = [alone(values[g, p], factors[p], every[g, p], each[p]) for p in range(2)]
        np.testing.assert_allclose(kl[g], sum(divergence for *_, divergence in single), rtol=1e-10)
        for p, (own_mean, own_covariance, _) in enumerate(single):
            np.testing.assert_allclose(mean[g, :, p], own_mean, rtol=1e-10)
            np.testing.assert_allclose(covariance[g, p], own_covariance, rtol=1e-8)


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
