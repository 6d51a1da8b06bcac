"""The stacked basis: what it stacks and what it sums."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.additive import additive_basis_of, additive_of
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("additive"))
def test_features_are_stacked_and_priors_summed(case):
    """L_c^-1 k_c(Z_c, X) in NumPy; the column 7.0 of unread inputs in Z would show."""
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    kernels, inducing = additive_of(case)
    rows, total = [], np.zeros((len(X), len(X)))
    for name, kernel in kernels.items():
        factor = np.linalg.cholesky(kernel.matrix(inducing[name]))
        rows.append(np.linalg.solve(factor, kernel.matrix(inducing[name], X)))
        total = total + np.asarray(kernel.matrix(X))
    np.testing.assert_allclose(basis.features(X), np.concatenate(rows), atol=1e-10)
    np.testing.assert_allclose(basis.matrix(X), total, atol=1e-12)
    np.testing.assert_allclose(basis.diagonal(X), np.diag(total), atol=1e-12)
    assert basis.size == sum(basis.sizes) == len(case["m"])
    assert [case["m"][at].shape[0] for at in basis.slices] == list(basis.sizes)
    assert basis.component("c1") == 1


def test_an_unknown_component():
    with pytest.raises(ValueError, match=r"component must be one of \['c0', 'c1', 'c2'\], but got 'age'"):
        additive_basis_of(cases("additive")[0]).component("age")
