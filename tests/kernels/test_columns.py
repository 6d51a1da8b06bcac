"""The form of a kernel and the columns it reads are the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import RBF, Linear, Matern32, Uniform, ZeroMean, stack
from numpyro_gp.kernels.members import at_columns, form_and_columns

X1, X2 = jnp.asarray(np.random.default_rng(0).uniform(size=(2, 3, 4)))
ZERO = ZeroMean(RBF(1.3, jnp.array([0.3, 0.6])), Uniform(0.0, 1.0))


@pytest.mark.parametrize(
    ("kernel", "columns"),
    [
        (RBF(1.3, 0.4).on(2), (2,)),
        (2.0 * RBF(1.3, 0.4).on(3) * Matern32(0.7, 0.2).on([2, 0]), (3, 2, 0)),
        (RBF(1.3, 0.4).on(1) + Linear(0.3), (1, 0, 1, 2, 3)),
        ((RBF(1.3, 0.4).on(1) * Linear(0.3).on(0)).on([3, 1]), (1, 3)),
        (0.5 * ZERO.on([1, 3]), (1, 3)),
    ],
)
def test_the_form_at_its_columns_is_the_kernel(kernel, columns):
    form, found = form_and_columns(kernel, (0, 1, 2, 3))
    assert found == columns
    rows = [X[:, np.array(columns)] for X in (X1, X2)]
    np.testing.assert_allclose(form.matrix(*rows), kernel.matrix(X1, X2), rtol=1e-14)
    np.testing.assert_allclose(form.diagonal(rows[0]), kernel.diagonal(X1), rtol=1e-14)
    assert jax.tree.leaves(form) == jax.tree.leaves(kernel)  # the same objects, in the same order
    np.testing.assert_allclose(at_columns(form, columns).matrix(X1, X2), kernel.matrix(X1, X2), rtol=1e-14)


def test_kernels_on_other_columns_have_one_form_and_a_batch_keeps_its_axes():
    first, second = (RBF(1.0, 0.4).on(d) * Linear(0.3).on(d + 1) for d in (0, 2))
    kernels = first, second, Linear(0.3).on(1) * RBF(1.0, 0.4).on(0)
    forms = [jax.tree.structure(form_and_columns(kernel, (0, 1, 2, 3))[0]) for kernel in kernels]
    assert forms[0] == forms[1] != forms[2]
    form, columns = form_and_columns(stack([2.0 * RBF(1.0, 0.4).on(1), 3.0 * RBF(2.0, 0.1).on(1)]), (0, 1))
    assert columns == (1,)
    assert [leaf.shape for leaf in jax.tree.leaves(form)] == [(2,)] * 3
