"""One program where a model runs eagerly: same values and gradients, same refusals, nothing stale."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.checks import waiting_checks
from numpyro_gp.kernels import Coregion, Matern32
from numpyro_gp.programs.compiled import is_of_library, one_program

Z = jnp.linspace(0.0, 1.0, 3)[:, None]


def gram(kernel, X):
    return kernel.matrix(X)


@pytest.mark.long
def test_values_gradients_and_batches_are_those_of_the_function():
    single = one_program(gram)
    for transform in (lambda f: f, jax.jit, lambda f: jax.grad(lambda k, X: f(k, X).sum())):
        one, other = (transform(f)(Matern32(1.5, 0.4), Z) for f in (single, gram))
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    batch = jnp.stack([Z, 2.0 * Z])
    one, other = (jax.vmap(lambda X, f=f: f(Matern32(1.5, 0.4), X))(batch) for f in (single, gram))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_checks_of_values_follow_and_reach_the_block_outside():
    kernel, codes = Coregion(jnp.ones((2, 1)), 1.0), jnp.array([[0.0], [5.0]])
    single = one_program(gram)
    for _ in range(2):  # the second call finds the compiled program
        with pytest.raises(ValueError, match=r"category codes 0, 1, .*, 1"):
            single(kernel, codes)
    single(kernel, codes.at[1].set(1.0))

    def outer(codes):
        with waiting_checks() as waiting:
            single(kernel, codes)
        assert len(waiting) > 0
        return jnp.zeros(())

    jax.jit(outer)(codes)


def test_trees_with_functions_are_not_remembered(collect):
    """Only those of the library are: a mean function of the user's may hold data."""

    def mean(X):
        return 0.0 * X[:, 0]

    with numpyro.handlers.seed(rng_seed=0):
        ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)), mean=mean)(jnp.zeros((2, 1)))
    reference = weakref.ref(mean)
    del mean
    collect()
    assert reference() is None
    assert not is_of_library(jax.tree.structure(jax.tree_util.Partial(jnp.sin)))
