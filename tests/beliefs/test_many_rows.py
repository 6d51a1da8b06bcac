"""Half of a product over very many rows, in blocks, against the plain form: values, members, float32, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis
from numpyro_gp.beliefs import coupled as module
from numpyro_gp.beliefs import products as many_rows
from numpyro_gp.beliefs.coupled import whitened_marginals
from numpyro_gp.kernels import RBF
from tests.beliefs.test_moments import plain, values_of


@pytest.fixture(scope="module")
def many():
    """As few inducing points and rows as the eigendecomposition is used for, smooth enough to need the jitter."""
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (module.FEWEST_INDUCING, 2)), rng.uniform(
        -1, 1, (module.ROWS_TO_REPAY * module.FEWEST_INDUCING, 2)
    )


def belief(kind, batch=(), dtype=float):
    """A belief that data have narrowed, that of no data (``S = I``), and one that is wider than the prior somewhere."""
    mean, factor = values_of(batch, float, module.FEWEST_INDUCING)
    if kind == "narrowed":
        precision = np.eye(module.FEWEST_INDUCING) + np.asarray(factor @ jnp.swapaxes(factor, -1, -2))
        factor = jnp.asarray(np.linalg.cholesky(np.linalg.inv(precision)))
    elif kind == "prior":
        factor = jnp.broadcast_to(jnp.eye(module.FEWEST_INDUCING), factor.shape)
    return mean.astype(dtype), factor.astype(dtype)


def at_rows(form, many, dtype, jitter, kind, batch=()):
    Z, X = (jnp.asarray(part, dtype) for part in many)
    basis = Basis.build(RBF(jnp.asarray(1.0, dtype), jnp.asarray(1.0, dtype)), Z, jitter)
    return jax.jit(lambda *values: form(basis, X, *values))(*belief(kind, batch, dtype))


@pytest.mark.parametrize(
    ("kind", "batch", "jitter"),
    [
        ("narrowed", (), 1e-6),
        ("narrowed", (2,), 1e-10),
        ("prior", (2,), 1e-3),
        ("wide", (), 1e-10),
        ("wide", (2,), 1e-6),
    ],
)
def test_one_product_over_many_rows(many, kind, batch, jitter, monkeypatch):
    """K has condition 1e5 to 1e12; ``W^T (S - I) W`` would be off by 1e-4 at the last. Blocks leave a short one."""
    monkeypatch.setattr(many_rows, "CROSS_NUMBERS", 100 * module.FEWEST_INDUCING)
    found, wanted = (at_rows(form, many, float, jitter, kind, batch) for form in (whitened_marginals, plain))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


@pytest.mark.long
def test_members_that_need_both_ways_have_one_product_each(many):
    """Of one member the data narrow the belief, of the other they do not; a choice by member would compute both."""
    basis, X = Basis.build(RBF(1.0, 1.0), jnp.asarray(many[0]), 1e-6), jnp.asarray(many[1])
    both = jax.tree.map(lambda *a: jnp.stack(a), belief("narrowed"), belief("wide"))
    found = jax.vmap(lambda mean, factor: whitened_marginals(basis, X, mean, factor))(*both)
    wanted = jax.vmap(lambda mean, factor: plain(basis, X, mean, factor))(*both)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["narrowed", "prior", "wide"])
def test_one_product_loses_no_more_of_float32_than_two(many, kind):
    exact = at_rows(plain, many, float, 1e-4, kind)
    for number in range(2):
        fast, slow = (
            np.abs(np.asarray(at_rows(form, many, np.float32, 1e-4, kind)[number], float) - exact[number]).max()
            for form in (whitened_marginals, plain)
        )
        assert fast < 2 * slow + 1e-6


def test_many_rows_are_differentiated_as_few_are(many, rng):
    """The eigenvectors of ``S - I = 0`` have no derivative, and none is asked of them."""
    Z, X = (jnp.asarray(part) for part in many)
    eye = jnp.eye(module.FEWEST_INDUCING)

    def total(form, lengthscale, factor):
        mean, variance = form(Basis.build(RBF(1.0, lengthscale), Z, 1e-3), X, eye[0], factor)
        return jnp.sum(mean) + jnp.sum(jnp.log(variance + 0.1))

    slope = lambda f: jax.jit(jax.grad(lambda a: total(f, *a)))  # noqa: E731
    found, wanted = (slope(form)((jnp.array(0.7), eye)) for form in (whitened_marginals, plain))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())
