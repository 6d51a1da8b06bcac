"""Features of terms at any rows against the dense kernels of all kinds of terms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs import AdditiveBasis
from numpyro_gp.gam.model.features import MANY, TermFeatures
from numpyro_gp.programs.compiled import run_quickly
from tests.compiling import counted
from tests.gam.known import kernel_of_term
from tests.precision import x64

RNG = np.random.default_rng(0)
N = 30
DATA = {name: RNG.normal(size=N) for name in "xzy"} | {"g": RNG.integers(3, size=N), "h": np.arange(N) % 24}
TEXT = "y ~ s(x) + s(z) + s(h, cyclic=True) + te(x, z) + s(x, by=g) + re(g, by=z) + factor(g) + linear(z)"


@pytest.mark.long
def test_features_and_factors_are_those_of_the_kernels():
    """``A_c^T A_c = K_XZ K_ZZ^-1 K_ZX`` and ``L_c L_c^T = K_ZZ`` with the jitter, and nothing is compiled."""
    model = dataclasses.replace(ngp.gam.model(TEXT, DATA), jitter=1e-9)
    parts = model.layout.read_terms
    scales, lengths = np.linspace(0.5, 2.0, len(parts) + 1), np.linspace(0.7, 1.5, 6)
    X = model.rows.X
    with counted() as programs:
        term_features, double = TermFeatures(model), TermFeatures(model, is_of_programs=False)
        seen, factor = term_features.at(X)(scales, lengths), term_features.roots(scales, lengths)[0]
    assert programs.count == 0
    assert term_features.step == MANY
    # The same but for the jitter: terms without a lengthscale have none in the search.
    np.testing.assert_allclose(double.roots(scales, lengths)[0], factor, atol=1e-7)
    for one, other in zip(double.at(X)(scales, lengths), seen, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    left = list(lengths)
    for at, part in enumerate(parts):
        own = [jnp.asarray(left.pop(0)) for _ in (part.term.columns if part.term.kind in ("s", "te") else ())]

        @jax.jit
        def dense(own=own, part=part, at=at):
            kernel = kernel_of_term(model, part, jnp.asarray(scales[at] ** 2), own)
            Z = jnp.asarray(model.kernel_data.inducing[part.name])
            return kernel.matrix(Z), kernel(Z, jnp.asarray(X)), kernel.diagonal(jnp.asarray(X))

        gram, cross, prior = map(np.asarray, dense())
        first, size = term_features.blocks.first[at], term_features.sizes[at]
        rows = slice(first, first + size)
        gram = gram + 1e-9 * np.mean(np.diagonal(gram)) * np.eye(size)
        np.testing.assert_allclose(factor[rows, rows] @ factor[rows, rows].T, gram, atol=1e-10, err_msg=part.name)
        wanted = np.linalg.solve(factor[rows, rows], cross)
        np.testing.assert_allclose(seen.A[rows], wanted, atol=1e-7, err_msg=part.name)
        np.testing.assert_allclose(seen.prior[at], prior, atol=1e-12, err_msg=part.name)
    np.testing.assert_allclose(seen.A[-1], scales[-1], rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("is_double", "atol"), [(True, 1e-9), (False, 3e-3)])
def test_features_are_those_that_a_model_in_jax_has(is_double, atol):
    """With the jitter that JAX looks for: whitened values of chains and of stochastic steps belong to its factors.

    The tolerance in single precision is what rounding of a Gram matrix leaves of features where its jitter is least.
    """
    text = "y ~ s(x, num_inducing=6) + s(z, num_inducing=6) + factor(g) + linear(z)"
    dtype, lengths = np.float64 if is_double else np.float32, np.array([0.9, 6.0])

    def basis(lengths, X):
        kernels = model.kernel_data.kernels(jnp.ones(4, dtype), lengths)
        own = AdditiveBasis.build({name: kernels[name] for name in kernels.names}, model.inducing(dtype), None)
        return own.features(X)

    with x64(is_double):
        model = ngp.gam.model(text, DATA)
        wanted = run_quickly(basis, jnp.asarray(lengths, dtype), jnp.asarray(model.rows.X, dtype))
        found = TermFeatures(model).at(model.rows.X)(np.ones(5), lengths)
    np.testing.assert_allclose(found.A[:-1], wanted, atol=atol)
