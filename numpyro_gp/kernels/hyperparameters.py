"""Hyper-parameters of kernels: their shapes, and how they meet the columns of inputs."""

import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_nonnegative, check_positive, fail, when_known
from numpyro_gp.linalg import matmul


def require_axes(argument: str, array: Array, most: int) -> Array:
    """Return an array of at most so many axes; else name the batch of kernels, or the plate, that gave it more."""
    if array.ndim > most:
        required = "a scalar" if most == 0 else "a scalar or one value for each input, shape (D,)"
        cure = "For a batch of kernels use ngp.kernels.stack([...]), or jax.vmap over one value for each kernel."
        if array.ndim > 1 and array.shape[-1] == 1:  # what a sample site in a plate has, whose rows have the last axis
            cure = (
                f"A value sampled in plate(..., dim=-2) has an axis for rows: take {argument}[..., 0] and make a "
                f"kernel for each member, jax.vmap(lambda own: ngp.kernels.RBF(1.0, own))({argument}[..., 0]). A value "
                "that all members share is sampled outside of the plate."
            )
        fail(argument, required, f"shape {array.shape}", cure)
    return array


def positive_scalar(argument: str, value: ArrayLike) -> Float[Array, ""]:
    """A positive scalar hyper-parameter, which may be traced."""
    return require_axes(argument, check_positive(argument, value), 0)


def nonnegative_scalar(argument: str, value: ArrayLike) -> Float[Array, ""]:
    """A scalar hyper-parameter that may be zero."""
    return require_axes(argument, check_nonnegative(argument, value), 0)


def positive_per_input(argument: str, value: ArrayLike) -> Array:
    """A positive hyper-parameter, ``()`` or ``(D,)``."""
    return require_axes(argument, check_positive(argument, value), 1)


def per_input(argument: str, value: Array, X: Float[Array, "N D"]) -> Float[Array, "1 #D"]:
    """``value`` as a row ``(1, D)`` or ``(1, 1)`` that multiplies the inputs; its length must be theirs."""
    if value.ndim == 1 and value.shape[0] != X.shape[1]:
        required = f"a scalar or of shape ({X.shape[1]},), one value for each column of the inputs"
        cure = "Choose the columns with kernel.on(dims), pass one value for each, or map over members with jax.vmap."
        fail(argument, required, f"shape {value.shape}", cure)
    return value.reshape(1, -1)


def inner_products(A: Float[Array, "N1 D"], B: Float[Array, "N2 D"]) -> Float[Array, "N1 N2"]:
    """``A B^T`` in full precision: accelerators would round float32 inputs to fewer bits by default."""
    return matmul(A, B.T)


def as_integers(X: Float[Array, "N D"]) -> Array:
    """Inputs as the integers that they are."""

    def check(values: np.ndarray) -> None:
        if (values != np.round(values)).any():
            cure = "Pass numbers of nodes, or give the process inducing inputs that are floats."
            fail("X", "whole numbers, as the inducing inputs are", f"{values[values != np.round(values)][0]}", cure)

    when_known(check, X)
    return X.astype(int)
