"""Functions drawn from a belief: a draw of the prior, corrected at the points a belief is about.

Matheron's rule for each belief (mathematics.md section 13.2): a prior function of features, plus kernel functions at
the inducing inputs whose coefficients make up for what the prior draw has there and the belief has not.
"""

from collections.abc import Callable
from functools import singledispatch

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis, slices
from numpyro_gp.beliefs.base import AbstractBelief, Point, Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.decoupled import WithMeanPoints, single
from numpyro_gp.checks import fail
from numpyro_gp.kernels import Kernel
from numpyro_gp.kernels.features import FeatureMap, features
from numpyro_gp.linalg import einsum, matmul

# Standard normal noise by what it is for and its shape: from a key, or from sample sites of a model.
Normal = Callable[[str, tuple[int, ...]], Array]


@value_type()
class PriorDraw:
    """``f0(x) = psi(x) . w``: a function of features with standard normal weights ``(F,)``, or ``(P, F)``."""

    features: FeatureMap
    weights: Float[Array, "*batch F"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N"]:
        return matmul(self.weights, _features_in_rows(self.features, X).T)


def _features_in_rows(make: FeatureMap, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
    """All features in a row for each input, scaled so that their inner products are the kernel's."""
    return jnp.concatenate([b.reshape(b.shape[0], -1) / b.shape[1] ** 0.5 for b in make(X)], axis=1)


def prior_draw(
    kernel: Kernel, points: Float[Array, "M D"], key: Array, num: int, normal: Normal, batch: tuple[int, ...], name: str
) -> PriorDraw | None:
    """A draw from the prior for inputs like ``points``; None for kernels without features."""
    if (make := features(kernel, key, num, points)) is None:
        return None
    count = jax.eval_shape(lambda X: _features_in_rows(make, X), points[:1]).shape[1]
    return PriorDraw(make, normal(name, (*batch, count)))


@value_type()
class Correction:
    """``sum_m c_m k(z_m, x)`` with coefficients ``(M,)``, or ``(P, M)``."""

    kernel: Kernel
    points: Float[Array, "M D"]
    coefficients: Float[Array, "*batch M"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N"]:
        # In this order the kernel centres at the points, not at inputs that come together by chance.
        return matmul(self.coefficients, self.kernel.matrix(X, self.points).T)


def root(variance: Array) -> Array:
    """A square root whose derivative at zero, where there is nothing to vary, is zero."""
    is_positive = variance > 0
    return jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, variance, 1)), 0)


# One for each part of a basis; and with further ones for means that have points of their own.
Priors = tuple[PriorDraw, ...]
Corrections = tuple[Correction, ...]


@singledispatch
def corrections(process: Process, basis: AbstractBasis, priors: Priors, normal: Normal) -> Corrections:  # noqa: ARG001
    """Teach function draws about a belief of your own: what turns draws of the prior into draws of the process.

    A belief of your own that is a distribution of whitened values (`AbstractBelief.whitened`) needs nothing; others
    register a function of these arguments with ``@corrections.register``.

    Parameters
    ----------
    process : Process
    basis : AbstractBasis
    priors : tuple of PriorDraw
        One for each part.
    normal : callable
        ``normal(name, shape)`` gives standard normal noise, each name once.

    Returns
    -------
    tuple of callable
        For each part of the basis the function that is added to its draw of the prior.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.beliefs.Point in ngp.beliefs.corrections.registry
    True
    """
    cure = "Register a function with numpyro_gp.beliefs.corrections.register."
    fail("the process", "one whose functions are known", f"a {type(process).__name__}", cure, TypeError)


def _given_values(basis: AbstractBasis, v: Float[Array, "*batch M"], priors: Priors, normal: Normal) -> Corrections:
    """``k(x, Z) L^-T (v - L^-1 (f0(Z) + eps^(1/2) xi))``: the prior given the whitened values ``v``."""
    parts = basis.parts if isinstance(basis, AdditiveBasis) else (basis,)
    noise, corrections_of_parts = normal("jitter", v.shape), []
    for part, prior, at in zip(parts, priors, slices([part.size for part in parts]), strict=True):
        assert isinstance(part, Basis)
        drawn = prior(part.inducing)
        drawn = drawn + jnp.broadcast_to(root(part.jitter), drawn.shape) * noise[..., at]
        coefficients = matmul(v[..., at] - matmul(drawn, part.inverse.T), part.inverse)
        corrections_of_parts.append(Correction(part.kernel, part.inducing, coefficients))
    return tuple(corrections_of_parts)


@corrections.register
def _(process: Point, basis: AbstractBasis, priors: Priors, normal: Normal) -> Corrections:
    return _given_values(basis, process.v, priors, normal)


@corrections.register
def _(process: AbstractBelief, basis: AbstractBasis, priors: Priors, normal: Normal) -> Corrections:
    mean, factor = process.whitened(basis)
    return _given_values(basis, _draw_values(mean, factor, normal), priors, normal)


def _draw_values(mean: Float[Array, "*batch M"], factor: Float[Array, "*batch M M"], normal: Normal) -> Array:
    return mean + einsum("...ij,...j->...i", factor, normal("value", mean.shape))


@corrections.register
def _(process: WithMeanPoints, basis: AbstractBasis, priors: Priors, normal: Normal) -> Corrections:
    site = single(process, basis)
    of_mean = Correction(site.kernel, process.mean_points, process.coefficients(site))
    covariance, rest = process.covariance(site), process.remaining(site)
    if covariance is None:
        mean = jnp.zeros_like(process.whitened_mean) if rest is None else rest
        return (*_given_values(site, _draw_values(mean, process.scale_tril, normal), priors, normal), of_mean)
    # ``-E(x)^T (E f0 + L_T^-1 xi)``: the prior that saw zeros through ``L_B^T f(Z)`` with unit noise.
    B_tril = process.B_tril
    pulled = einsum("...ji,...j->...i", B_tril, priors[0](site.inducing))
    explained = einsum("...ij,...j->...i", covariance.inverse, pulled + normal("value", B_tril.shape[:-1]))
    coefficients = -einsum("...ij,...i->...j", covariance.projection, explained)
    return Correction(site.kernel, site.inducing, coefficients), of_mean
