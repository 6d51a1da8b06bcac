"""Likelihoods whose log density is one function of ``f``, of the datum and of their parameters."""

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.likelihoods.base import Likelihood, like, together
from numpyro_gp.likelihoods.expectations import expect, log_expect
from numpyro_gp.likelihoods.quadrature import Latent


class ByDensity(Likelihood):
    """What follows from ``density(f, y, *parameters)``: log densities, and expectations by the composite rule.

    A class names the fields that are its ``parameters``; one whose tails are ``heavy`` looks for an outlier's peak too.
    """

    density: ClassVar[Callable[..., Array]]
    parameters: ClassVar[tuple[str, ...]] = ()
    heavy: ClassVar[bool] = False

    def given(self, array: Float[Array, "*batch"]) -> list[Array]:
        """The parameters, each in the shape and precision of an array."""
        return [like(name, getattr(self, name), array) for name in self.parameters]

    def log_prob(self, y: ArrayLike, f: ArrayLike) -> Array:
        """``log p(y | f)`` of each datum, by the density and not by that of NumPyro's distribution."""
        values, targets = together(y, f)
        return self.density(values, targets, *self.given(values))

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return self._integral(expect, y, latent)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return self._integral(log_expect, y, latent)

    def _integral(self, rule: Callable[..., Array], y: Float[Array, "*batch"], latent: Latent) -> Array:
        given, cuts = self.given(y), self._turns(y)
        return rule(self.density, latent.mean, latent.variance, y, *given, cuts=cuts, heavy=self.heavy)
