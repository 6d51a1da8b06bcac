"""One program where a model runs eagerly: same values and gradients, same refusals, nothing stale."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.checks import waiting_checks
from numpyro_gp.kernels import Coregion, FunctionKernel, Matern32
from numpyro_gp.programs import compiled as module
from numpyro_gp.programs.compiled import is_of_library, one_program
from tests.compiling import counted

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


def test_one_program_and_then_none():
    single, kernel, other = one_program(gram), Matern32(1.5, 0.4), Matern32(0.5, 0.2)
    with counted() as programs:
        single(kernel, Z)
    assert programs.count == 1
    with counted() as programs:
        single(other, Z)
    assert programs.count == 0


def test_few_numbers_outside_of_other_programs_are_compiled_with_less_effort(monkeypatch):
    """Where a program is a part of another, JAX refuses options of its own."""
    asked, own = [], module.compiler_options
    monkeypatch.setattr(module, "compiler_options", lambda effort: asked.append(effort) or own(effort))
    single = one_program(lambda X: jnp.sum(X[:, 0]))
    many = jnp.ones((module.FEW + 1, 1))
    assert (single(many), jax.jit(single)(Z), jax.vmap(single)(Z[None])[0]) == (module.FEW + 1, 1.5, 1.5)
    assert asked == []
    assert (single(Z), single(Z), jax.grad(single)(Z)[0, 0]) == (1.5, 1.5, 1.0)
    assert asked == [1]


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


def test_functions_of_a_user_are_never_stale():
    state = {"scale": 1.0}

    def function(X1, X2):
        return state["scale"] * jnp.exp(-jnp.abs(X1 - X2.T))

    for scale in (1.0, 3.0):
        state["scale"] = scale
        basis = one_program(Basis.build)(FunctionKernel(function), Z, None)
        np.testing.assert_allclose(basis.kernel.matrix(Z)[0, 0], scale)
        np.testing.assert_allclose((basis.factor @ basis.factor.T)[0, 0], scale, rtol=1e-5)
        mean = ngp.means.as_mean(lambda X: state["scale"] * jnp.ones(len(X)))
        np.testing.assert_allclose(one_program(lambda mean, X: mean(X))(mean, Z), scale)


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
