"""Features of terms at any rows against the dense kernels of all kinds of terms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.term_features import MANY, ROWS, InDouble, TermFeatures

RNG = np.random.default_rng(0)
N = 30
DATA = {name: RNG.normal(size=N) for name in "xzy"} | {"g": RNG.integers(3, size=N), "h": np.arange(N) % 24}


@pytest.mark.long
def test_features_and_factors_are_those_of_the_kernels():
    """``A_c^T A_c = K_XZ K_ZZ^-1 K_ZX`` and ``L_c L_c^T = K_ZZ`` with the jitter, at more rows than one call takes."""
    text = "y ~ s(x) + s(z) + s(h, cyclic=True) + te(x, z) + s(x, by=g) + re(g, by=z) + factor(g) + linear(z)"
    model = dataclasses.replace(ngp.gam.model(text, DATA), jitter=1e-9)
    term_features, parts, double = TermFeatures(model), model.layout.read_terms, InDouble(model)
    scales, lengths = np.linspace(0.5, 2.0, len(parts) + 1), np.linspace(0.7, 1.5, 6)
    X = np.tile(model.rows.X, (ROWS // N + 2, 1))[: ROWS + 7]
    seen, factor = term_features(scales, lengths, X), term_features.factor(scales, lengths)
    assert [at.stop - at.start for at in term_features.cuts(len(X))] == [ROWS, 7]
    assert [at.stop - at.start for at in double.cuts(MANY + 7)] == [MANY, 7]
    # The same in NumPy, but for the jitter: terms without a lengthscale have none there.
    np.testing.assert_allclose(double.factor(scales, lengths), factor, atol=1e-7)
    for one, other in zip(double(scales, lengths, X), seen, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    left = list(lengths)
    for at, part in enumerate(parts):
        own = [jnp.asarray(left.pop(0)) for _ in (part.term.columns if part.term.kind in ("s", "te") else ())]

        @jax.jit
        def dense(own=own, part=part, at=at):
            kernel = model.kernel_data.kernel(part, jnp.asarray(scales[at] ** 2), own)
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
