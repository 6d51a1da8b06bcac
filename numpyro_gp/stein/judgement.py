"""What the target says of particles where a run has left them: whether it is a number there, and who is stranded."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_gp.checks import fail

CURE = (
    "Start near the posterior: ngp.stein.auto, or init_particles=ngp.stein.Around(values) or draws of a fitted guide. "
    "Else take more steps, or weigh the particles: ngp.stein.weights."
)


class Judgement(NamedTuple):
    """The log density of the target at each particle.

    Attributes
    ----------
    params : dict
        The particles, by parameter: what was judged.
    log_density : array (n,)
        In unconstrained coordinates.
    coordinates : int
        Number of them.
    """

    params: Mapping[str, Any]
    log_density: np.ndarray
    coordinates: int

    def is_of(self, params: Mapping[str, object]) -> bool:
        """Whether these are the particles that were judged."""
        same = lambda a, b: np.shape(a) == np.shape(b) and np.array_equal(np.asarray(a), np.asarray(b))  # noqa: E731
        own, given = dict(self.params), dict(params)
        return set(own) == set(given) and bool(jax.tree.all(jax.tree.map(same, given, own)))

    def check(self) -> None:
        """Refuse particles at which the target is no number: predictions from there are none."""
        lost = np.flatnonzero(~np.isfinite(self.log_density))
        if lost.size:
            got = f"{self.log_density[lost[0]]} at particles {lost.tolist()} of {self.log_density.size}"
            cure = (
                "Keep the noise away from zero (noise_variance=noise**2 + 1e-4, or jitter=1e-5 of gp_regression), or "
                "fit in float64. ngp.fit stops at the first such step and names the site."
            )
            fail("the log density at the particles", "finite", got, cure)

    @property
    def is_stranded(self) -> np.ndarray:
        """Whether a particle is far below the others, ``(n,)``.

        At draws of a posterior of ``d`` coordinates minus the log density spreads by ``(d/2)^(1/2)`` nats; five times
        that and five nats below the median of all particles is where no draw would be.
        """
        return self._gaps > 5 * self._usual + 5

    @property
    def _gaps(self) -> np.ndarray:
        return np.median(self.log_density) - self.log_density

    @property
    def _usual(self) -> float:
        return math.sqrt(self.coordinates / 2)

    def stranded(self) -> str:
        """A sentence about particles far below the others, and nothing where there are none."""
        far, gaps, usual = np.flatnonzero(self.is_stranded), self._gaps, self._usual
        if not far.size:
            return ""
        return (
            f"{far.size} of {gaps.size} particles are stranded: the log density at particles {far.tolist()} is "
            f"up to {gaps[far].max():.0f} nats below the median; draws of a posterior with as many coordinates "
            f"({self.coordinates}) differ by about {max(usual, 1):.0f}. {CURE}"
        )
