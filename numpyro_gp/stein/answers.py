"""What an engine says of the particles that it moves: where they are, their scores and densities, which are lost."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax, random
from numpyro.contrib.einstein.steinvi import SteinVIState

from numpyro_gp.arrays import Array, split_arrays
from numpyro_gp.checks import fail
from numpyro_gp.guides.fit_registry import fits_of, known_fit
from numpyro_gp.primitives.inducing import check_near
from numpyro_gp.programs.compiled import run
from numpyro_gp.programs.private import SteinHooks, key_of_stein_step
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import check_rows_of
from numpyro_gp.stein.target import Target, not_finite, scores_of_particles, site_of

# --------------------------------------------------------------------------------------
# What the target says of particles where a run has left them: whether it is a number there, and who is stranded.


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


class Answers(SteinHooks):
    """An engine that has particles, and is asked of them."""

    def particles(self, params_or_state: object) -> dict[str, Array]:
        """Constrained particles by site, each with the particle axis first."""
        return self._by_site(self._constrained(params_or_state)[0])

    def shared(self, params_or_state: object) -> dict[str, Array]:
        """The model's own ``numpyro.param`` values, which all particles share."""
        return self._constrained(params_or_state)[1]

    def _constrained(self, given: object) -> tuple[dict, dict]:
        self._check_ready()
        return self._parted(self.get_params(given) if isinstance(given, SteinVIState) else given)

    def unconstrained(self, state: SteinVIState) -> dict[str, Array]:
        """Unconstrained particles by site: the coordinates in which they move."""
        return self._by_site(self.free_and_shared(state)[0])

    def scores(self, state: SteinVIState, *args: object, **kwargs: object) -> dict[str, Array]:
        """Gradients of the log target at the particles, by site, on the minibatch of the next step."""
        self._check_ready()
        self._check_rows(args, kwargs)
        free, shared = self._parted(self.optim.get_params(state.optim_state))
        kwargs, key = {**kwargs, **self.static_kwargs}, key_of_stein_step(state)
        return self._by_site(scores_of_particles(self._target(), key, free, shared, args, kwargs).own)

    def faults(self, state: SteinVIState, *args: object, **kwargs: object) -> list[tuple[int, str]]:
        """Particles and sites whose position or score is not finite, as ``(particle, site)``.

        Where the log density itself is not finite all sites of the particle are listed.
        """
        lost = not_finite(self.unconstrained(state))
        return sorted(set(lost) | set(not_finite(self.scores(state, *args, **kwargs))))

    def free_and_shared(self, params_or_state: object) -> tuple[dict[str, Array], dict[str, Array]]:
        """Unconstrained particles, and what they share, by parameter."""
        self._check_ready()
        if isinstance(params_or_state, SteinVIState):
            return self._parted(self.optim.get_params(params_or_state.optim_state))
        return self._parted(self.uconstrain_fn(params_or_state))

    def density_at(self, args: tuple, kwargs: dict) -> Callable[[dict, dict, list[Array]], Array]:
        """``log p(particle, shared, arrays)`` of unconstrained values and of the arrays among the arguments."""
        self._check_rows(args, kwargs)
        target, static = self._target(), self.static_kwargs
        _, merge = split_arrays((args, kwargs))

        def density(one: dict, shared: dict, arrays: list[Array]) -> Array:
            args, kwargs = merge(arrays)
            return target.log_density(one, shared, random.key(0), args, {**kwargs, **static})

        return density

    def log_density(self, params_or_state: object, *args: object, **kwargs: object) -> Array:
        """Log density of the target at each particle, ``(n,)``, in unconstrained coordinates.

        ``args`` and ``kwargs`` are those of the model; all particles see the same minibatch, if it draws one. Of values
        of a process by neighbours they have the `ngp.neighbours` of the fit.
        """
        self._check_near(params_or_state, args, kwargs)
        density = self.density_at(args, kwargs)

        def of_all(free: dict, shared: dict, arrays: list[Array]) -> Array:
            return lax.map(lambda one: density(one, shared, arrays), free)

        return run(of_all, *self.free_and_shared(params_or_state), split_arrays((args, kwargs))[0])

    def judge(self, params_or_state: object, *args: object, **kwargs: object) -> Judgement | None:
        """What the target says of the particles: None where a minibatch would say it, whose noise is as large."""
        sites = abstract_trace(self.model, args, {**kwargs, **self.static_kwargs})
        whole = all(site["args"][1] in (None, site["args"][0]) for site in sites.values() if site["type"] == "plate")
        if not whole or self.sharding is not None:
            return None
        is_state = isinstance(params_or_state, SteinVIState)
        params = self.get_params(params_or_state) if is_state else params_or_state
        size = sum(x[0].size for x in self._parted(params)[0].values())
        return Judgement(params, np.asarray(self.log_density(params_or_state, *args, **kwargs)), size)

    def _by_site(self, params: Mapping[str, Array]) -> dict[str, Array]:
        return {self._site(name): value for name, value in params.items()}

    def _site(self, name: str) -> str:
        return site_of(self.guide, name)

    def _check_rows(self, args: tuple, kwargs: dict) -> None:
        check_rows_of(self.model, call_of(self.model, args, {**kwargs, **self.static_kwargs}))

    def _check_near(self, given: object, args: tuple, kwargs: dict) -> None:
        """Refuse other neighbours than those of the fit of these particles, as far as it is known which that is."""
        params, fits = self.get_params(given) if isinstance(given, SteinVIState) else given, fits_of(self)
        found = known_fit(self, params)
        if found is not None or len(fits) == 1:
            call = call_of(self.model, args, {**kwargs, **self.static_kwargs})
            check_near(self.model, call, (found or fits[0]).inducing)

    def _check_ready(self) -> None:
        if self.guide_sites is None:
            fail("svgd", "initialised", "one that has seen no model arguments", "Call svgd.init first.", RuntimeError)

    def _parted(self, unconstrained: Mapping[str, Array]) -> tuple[dict, dict]:
        """Particles, and the model's own parameters, which all particles share."""
        free = {name: value for name, value in unconstrained.items() if name in self.guide_sites}
        return free, {name: value for name, value in unconstrained.items() if name not in free}

    def _target(self) -> Target:
        parts = self.model, self.guide, self.constrain_fn, self.particle_transforms
        return Target(*parts, self.evaluation, self.sharding)
