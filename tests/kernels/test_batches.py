"""Kernels by name in batches of one form: each is the kernel that its own numbers make."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels import RBF, Constant
from numpyro_gp.kernels.members import Batch, KernelBatches, kernel_batch_of

X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
NAMES = ("a", "constant", "b", "c")
COLUMNS = {"a": (2, 0), "b": (1, 3), "c": (3, 2)}
VARIANCES, LENGTHS = jnp.array([0.5, 1.5, 2.5]), jnp.array([[0.3, 1.0], [0.4, 2.0], [0.5, 3.0]])


def product(variance, lengths):
    """An interaction of columns 0 and 1 that reads the second first."""
    return variance * (RBF(1.0, lengths[1]).on(1) * RBF(1.0, lengths[0]).on(0))


def batches():
    three = kernel_batch_of(tuple(COLUMNS), tuple(COLUMNS.values()), product, VARIANCES, LENGTHS)
    return KernelBatches(NAMES, (three, Batch(("constant",), (), Constant(9.0))))


def one_by_one():
    own = {name: (VARIANCES[at], LENGTHS[at], COLUMNS[name]) for at, name in enumerate(COLUMNS)}
    found = {n: v * (RBF(1.0, l[1]).on(c[1]) * RBF(1.0, l[0]).on(c[0])) for n, (v, l, c) in own.items()}
    return {name: found.get(name, Constant(9.0)) for name in NAMES}


def test_a_batch_is_its_kernels():
    """Columns follow the order in which the form reads them: the other order is another kernel by more than 0.1."""
    found, wanted = batches(), one_by_one()
    assert list(found) == list(NAMES)
    assert len(found) == 4
    for name, kernel in wanted.items():
        np.testing.assert_allclose(found[name].matrix(X), kernel.matrix(X), atol=1e-14)
    turned = RBF(0.5, 0.3).on(0) * RBF(1.0, 1.0).on(2)
    assert np.abs(turned.matrix(X) - found["a"].matrix(X)).max() > 0.1
    with pytest.raises(KeyError):
        found["d"]
