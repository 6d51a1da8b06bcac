"""A belief that moves with the hyper-parameters: what data said, under the prior of the moment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, over_axes, store, value_type
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals
from numpyro_gp.beliefs.basis import AbstractBasis, Frame, Whitened
from numpyro_gp.beliefs.coupled import Coupled, CovarianceMoments, check_mean
from numpyro_gp.checks import check_symmetric, fail
from numpyro_gp.linalg import (
    flipped,
    half_diagonal,
    half_log_det,
    identity_like,
    inverse_factors,
    matmul,
    nothing,
    outer_square,
    symmetric_gradient,
)


@value_type(static=("is_natural", "noise_site", "is_joint"))
class Conditional(AbstractBelief):
    """What data said about a process, which gives the posterior at whatever hyper-parameters are met.

    Normal pseudo-data ``exp(shift . u - u^T precision u / 2)`` over the values ``u = f(Z)`` at the site's own inducing
    inputs, mean function included: ``q(v) = N(m, S)`` with ``S^-1 = I + L^T precision L`` and
    ``m = S L^T (shift - precision m_Z)``, ``L`` and ``m_Z`` being those of the moment (mathematics.md section 14.1).
    The other beliefs hold ``q(v)`` still, and so punish every spread of hyper-parameters; use this one beside a
    distribution over them. Of an `additive_gp` the values are those of all components, without the mean function.

    Parameters
    ----------
    shift : Array (M,) or (P, M)
    precision : Array (M, M) or (P, M, M)
        Symmetric, positive semi-definite; zero is the prior.
    is_natural : bool
        Set by recipes: derivatives in ``shift`` and ``precision`` are then natural gradients. It changes no value.
    noise : Array, optional
        Standard deviation of the noise of the moment: ``shift`` and ``precision`` are then those of noise 1, and are
        divided by its square. A number, or one for each output or member.
    noise_site : str, optional
        Site that the noise is taken from (`given`), by `AutoGP`.
    is_joint : bool
        Whether `AutoGP` is to give it slopes.
    slopes : Array (M, K) or (P, M, K), optional
        What each of the K unconstrained numbers of the other sites adds to the process at the inducing inputs.
    added : Array (M,) or (P, M), optional
        What those of the moment add, from their medians on (`given`): the data leave so much less for the process.

    Notes
    -----
    Its whitened mean depends on the kernel, so the array this value looks like holds zeros.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> belief = ngp.beliefs.Conditional(jnp.array([1.0, 0.0]), jnp.diag(jnp.array([2.0, 0.0])))
    >>> for variance in (0.1, 10.0):
    ...     basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(variance, 0.1), jnp.array([[0.0], [1.0]]))
    ...     mean, spread = belief.marginals(basis, jnp.array([[0.0]]))
    ...     print(f"{mean[0]:.2f} ± {spread[0] ** 0.5:.2f}")
    0.08 ± 0.29
    0.48 ± 0.69
    """

    shift: ArrayField
    precision: ArrayField
    is_natural: bool = False
    noise: ArrayField | None = None
    noise_site: str | None = None
    is_joint: bool = False
    slopes: ArrayField | None = None
    added: ArrayField | None = None

    reads_basis = True

    def __post_init__(self) -> None:
        shift, noise = check_mean("shift", self.shift), self.noise
        if noise is not None:
            noise = jnp.asarray(noise, shift.dtype)
            if noise.ndim and noise.shape != shift.shape[:-1]:
                cure = "Sample one for all data, or one for each output or member of plates."
                fail("noise", f"a number, or of shape {shift.shape[:-1]}", f"shape {noise.shape}", cure)
            noise = jnp.broadcast_to(noise, shift.shape[:-1])
        store(self, shift=shift, precision=check_symmetric("precision", self.precision, shift.shape), noise=noise)

    @property
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        return jnp.zeros_like(self.shift)

    def given(self, values: Mapping[str, Any], coordinates: Array | None = None) -> "Conditional":
        """The belief at values of the other sites: at the noise among them, and less what their coordinates add."""
        if self.slopes is not None and coordinates is not None:
            added: Any = matmul(self.slopes, coordinates)
            return replace(self, slopes=None, added=added).given(values)
        if self.noise_site is None:
            return self
        if self.noise_site not in values:
            cure = "Name a site of the model that is no process: its noise's standard deviation."
            fail("noise of the recipe", f"one of {sorted(values)}", repr(self.noise_site), cure)
        return replace(self, noise=values[self.noise_site])

    @property
    def said(self) -> tuple[Array, Array]:
        """Shift and precision of the pseudo-data at the noise of the moment."""
        if self.noise is None:
            return self.shift, self.precision
        return self.shift / self.noise[..., None] ** 2, self.precision / self.noise[..., None, None] ** 2

    def at(self, basis: AbstractBasis) -> Coupled:
        """``N(m, S)`` at the basis of the moment."""
        if self.noise_site is not None and self.noise is None:
            cure = f"Pass one: belief.given({{{self.noise_site!r}: 0.1}})."
            fail("the belief", f"at a value of {self.noise_site!r}", "one without", cure)
        level, function = basis.level, _natural_posterior if self.is_natural else _posterior
        weight = None if self.noise is None else self.noise**-2
        if self.added is not None:  # the pseudo-data are of the process and what is added to it
            level = self.added if level is None else level + self.added
        axes = (0, 0, None, None if level is None else 0, None if weight is None else 0)
        frame = basis.frame()
        if self.is_natural:  # whose rule is written in the turn: no zeros go back through the factor
            frame = Frame(*lax.stop_gradient((frame.factor, frame.inverse)), frame.turn)
        posterior = over_axes(function, self.shift.ndim - 1, axes)(self.shift, self.precision, frame, level, weight)
        return Coupled(posterior.mean, posterior.root, CovarianceMoments(posterior.covariance, posterior.divergence))

    def whitened(self, basis: AbstractBasis | None = None) -> Whitened:
        return super().whitened() if basis is None else self.at(basis).whitened()

    def marginals(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Marginals:
        """Those of `at`."""
        return self.at(basis).marginals(basis, X)

    def joint(self, basis: AbstractBasis, X: Float[Array, "N D"]) -> Joint:
        """That of `at`."""
        return self.at(basis).joint(basis, X)

    def kl(self, basis: AbstractBasis) -> Float[Array, ""]:
        """That of `at`."""
        return self.at(basis).kl(basis)


class NormalPosterior(NamedTuple):
    """``N(m, S)``, a lower root of ``S``, ``S`` itself and the KL divergence from ``N(0, I)``."""

    mean: Float[Array, " M"]
    root: Float[Array, "M M"]
    covariance: Float[Array, "M M"]
    divergence: Float[Array, ""]


def _solve_posterior(
    shift: Array, precision: Array, frame: Frame, level: Array | None, weight: Array | None
) -> tuple[NormalPosterior, tuple[object, ...]]:
    """The posterior; for its rule ``C^-1``, ``Lambda L``, ``G = L^T Lambda L``, ``p = L^T (shift - Lambda m_Z)``.

    Of pseudo-data that are ``weight`` times those stored.
    """
    if weight is not None:
        shift, precision = weight * shift, weight * precision
    side = matmul(precision, frame.factor)
    inner = matmul(flipped(frame.factor), side)
    inner = 0.5 * (inner + inner.T)
    root, root_inverse = inverse_factors(inner + identity_like(inner))
    rest = shift if level is None else shift - matmul(precision, level)
    pulled = matmul(rest, frame.factor)
    mean = matmul(root, matmul(pulled, root))
    covariance = outer_square(root)
    spread = 0.5 * (matmul(mean, mean) + jnp.trace(covariance) - mean.size)
    return NormalPosterior(mean, root, covariance, spread - half_log_det(root)), (root_inverse, side, inner, pulled)


def _posterior(*arguments: Any) -> NormalPosterior:
    return _solve_posterior(*arguments)[0]


_natural_posterior = jax.custom_vjp(_posterior)


def _posterior_forward(*arguments: object) -> tuple[NormalPosterior, tuple[object, ...]]:
    values: Any = jax.tree.map(lambda leaf: leaf.value, arguments, is_leaf=lambda leaf: hasattr(leaf, "value"))
    posterior, kept = _solve_posterior(*values)
    return posterior, (posterior, kept, values)


def _posterior_backward(residuals: tuple[Any, ...], cotangents: NormalPosterior) -> tuple[object, ...]:
    """Natural gradients in the pseudo-data, and ordinary ones in the kernel and the mean function.

    With ``q = S (dm + dKL m)`` and ``H = -S (dS - dKL G / 2) S - (q m^T + m q^T) / 2``, the gradient in ``G``: that of
    ``Phi(turn)`` is ``2 G H + p q^T``. The natural gradient is the one in the moments of ``u`` itself; in that of the
    divergence nothing is solved for: it is the pseudo-data (mathematics.md section 14.3). A step on what is stored is
    that on the weighted pseudo-data by the weight, whose own gradient is ``(tr G H + p.q) / weight``.
    """
    (mean, root, covariance, _), (root_inverse, side, inner, pulled), values = residuals
    shift, precision, frame, level, weight = values
    unused: list[Any] = [slope.aval if isinstance(slope, SymbolicZero) else None for slope in cotangents]
    pairs = zip(cotangents, unused, strict=True)
    d_mean, d_root, d_spread, d_kl = (d if aval is None else jnp.zeros(aval.shape, aval.dtype) for d, aval in pairs)
    d_spread = 0.5 * (d_spread + d_spread.T)
    if unused[1] is None:
        d_spread = d_spread + symmetric_gradient(root, root_inverse, d_root)
    q = matmul(covariance, d_mean + d_kl * mean)
    half = matmul(d_spread - 0.5 * d_kl * inner, covariance)  # 2 G H with G S = I - S
    moved = jnp.outer(matmul(inner, q), mean) + jnp.outer(matmul(inner, mean), q)
    turning = 2 * (matmul(covariance, half) - half) - moved + jnp.outer(pulled, q)
    d_turn = half_diagonal(turning)
    d_level = None if level is None else -matmul(side, q)
    # d/dE[u] - 2 d/dCov[u] E[u], and -2 d/dCov[u].
    turned = -matmul(matmul(flipped(frame.inverse), d_spread), frame.inverse)
    turned = turned + turned.T  # exactly symmetric, as the precision that it is added to
    center = matmul(frame.factor, mean) + (0.0 if level is None else level)
    d_shift, d_weight = matmul(d_mean, frame.inverse) + matmul(turned, center), None
    if weight is not None:
        d_weight = 0.5 * (jnp.trace(turning) + matmul(pulled, q)) / weight
        d_shift, turned = d_shift / weight, turned / weight
    d_frame = Frame(nothing(frame.factor), nothing(frame.inverse), d_turn)
    return d_shift + d_kl * shift, turned + d_kl * precision, d_frame, d_level, d_weight


_natural_posterior.defvjp(_posterior_forward, _posterior_backward, symbolic_zeros=True)
