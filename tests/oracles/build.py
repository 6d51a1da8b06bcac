"""Library objects from oracle cases."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp import kernels
from numpyro_gp.beliefs import AbstractBelief, Basis

CLASSES = {"rbf": kernels.RBF, "matern12": kernels.Matern12, "matern32": kernels.Matern32, "matern52": kernels.Matern52}


def kernel_of(case: dict[str, Any], prefix: str = "", dtype: Any = jnp.float64) -> kernels.Kernel:
    variance = jnp.asarray(case[prefix + "variance"], dtype)
    return CLASSES[str(case[prefix + "kernel"])](variance, jnp.asarray(case[prefix + "lengthscale"], dtype))


# One program for what is dozens of operations: each of these would be compiled alone.
build = partial(jax.jit, static_argnums=2)


@jax.jit
def answers(belief: AbstractBelief, basis: Any, X: Any) -> Any:
    """Marginals and joint at X, and the divergence."""
    return belief.marginals(basis, X), belief.joint(basis, X), belief.kl(basis)


def answers_and_fitted(belief: AbstractBelief, basis: Any, case: dict[str, Any]) -> Any:
    """The same at the new inputs of a case, and the marginals at its data: by one program."""
    count = len(case["Xs"])
    marginals, joint, divergence = answers(belief, basis, jnp.concatenate([case["Xs"], case["X"]]))
    new, fitted = ([one[part] for one in marginals] for part in (slice(count), slice(count, None)))
    return new, (joint.mean[:count], joint.covariance[:count, :count]), divergence, fitted


def basis_of(case: dict[str, Any], inducing: str = "Z", jitter: float = 0.0, dtype: Any = jnp.float64) -> Basis:
    """The basis on the inducing inputs of a case, without jitter unless asked for."""
    return build(Basis.build)(kernel_of(case, dtype=dtype), jnp.asarray(case[inducing], dtype), jitter)
