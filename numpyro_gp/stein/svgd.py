"""``SVGD``: NumPyro's Stein variational gradient descent with the right target, at one score a particle and step."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.contrib.einstein as einstein
from jax import lax, random
from jax.sharding import NamedSharding
from numpyro.contrib.einstein.stein_util import get_parameter_transform
from numpyro.contrib.einstein.steinvi import SteinVIState
from numpyro.optim import optax_to_numpyro

from numpyro_gp.arrays import Array, Model, on_devices, split_arrays
from numpyro_gp.checks import check_choice, check_key, check_shared, check_type, fail, known
from numpyro_gp.guides.fit_registry import begin, fits_of, known_fit
from numpyro_gp.primitives.inducing import Inducing, check_near, sites_at_start
from numpyro_gp.programs.compiled import run
from numpyro_gp.programs.private import SteinHooks, declared_parameters, key_of_stein_step, mask_of
from numpyro_gp.programs.set_up import Feasible, abstract_trace, in_one_program
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import check_rows_of
from numpyro_gp.sites import is_latent
from numpyro_gp.stein.direction import forces, healthy_mean, healthy_particles
from numpyro_gp.stein.kernels import RBF, ParticleKernel, check_kernel
from numpyro_gp.stein.metric import Curvature, Moving, Spread, in_coordinates
from numpyro_gp.stein.particles import Around, check_supports, init_to_draw, starting_values
from numpyro_gp.stein.target import Judgement, Target, copied, not_finite, scores_of_particles, site_of

EVALUATIONS = ("vmap", "map")


class SVGD(SteinHooks):
    """Particles that settle on a model's posterior: Stein variational gradient descent (mathematics.md section 9).

    The calls are those of ``numpyro.contrib.einstein.SVGD``: ``init``, ``update``, ``evaluate``,
    ``get_params``, ``run``, ``guide``. What differs:

    * the target is ``log p(data, T(x)) + log|det dT/dx|`` of the unconstrained ``x``, so the particles
      approximate the *posterior*; without the Jacobian a lone Gamma(4, 1) site goes to mean 3. A ``handlers.scale``
      of yours is of densities alone (NumPyro's HMC and NUTS scale the Jacobians of the sites within, too);
    * latent values that ``handlers.mask`` hides, and that no data read, stay at their start and are in no distance
      (in a subsampled plate they do not: there a step knows the mask of its rows alone);
    * one score for each particle and step; one minibatch for all particles, its data term scaled by
      ``N/N_b`` by NumPyro's plate;
    * `RBF`, `IMQ`, `PerSite`, `Groups`, `Moments` kernels, in the coordinates of a
      ``metric`` (mathematics.md section 9.3); any NumPyro or optax optimiser;
    * ``run(..., init_state=result.state)`` continues a run where it stopped, as does `ngp.fit` with a checkpoint;
    * a particle whose score is not finite feels no force, is left out of the others' steps, and is named.

    On a model with `gp` sites the particles are whitened inducing values and hyper-parameters of the
    sparse target of mathematics.md section 8 (the exact posterior only where the inducing inputs are the
    data); with `gp_regression` they are hyper-parameters of the exact or collapsed model. A model's own
    ``numpyro.param`` values are shared by the particles and climb the average of their log densities.

    Parameters
    ----------
    model : callable
        NumPyro model with continuous latent sites.
    optim : numpyro or optax optimiser
        Adagrad and Adam are usual.
    kernel_fn : kernel
        `RBF` and `IMQ` take one distance over all sites, or with ``per_coordinate=True`` one for each coordinate;
        `PerSite` and `Groups` divide the sites among them. One distance keeps correlations but collapses in many
        dimensions; divided ones do not collapse but make correlated sites too narrow (see `RBF`).
    num_stein_particles : int
        One particle climbs to the MAP of the unconstrained density. Few particles in many dimensions
        understate the variance: report the number, and compare with NUTS.
    guide_kwargs : dict, optional
        For NumPyro's ``AutoDelta``; by default each particle starts at a draw from the prior, and of the fit where it
        is in its coordinates (`ngp.conditioned`).
    init_particles : dict or Around, optional
        Starting values: site names to *constrained* values with the particle axis first (sites left
        out start as above), or `Around` a point.
    metric : Curvature or Spread, optional
        Coordinates for kernel and optimiser in which the posterior is about as wide in every direction; without it the
        sites' own. With `Moments` in these coordinates spread and correlations come out.
    evaluation : str, optional
        Scores side by side ("vmap"), or one after the other ("map"), which holds the memory of one. By default
        "map" on a CPU, where batched factorisations and large intermediates made "vmap" 3 to 5 times as slow on
        whole data, and no quicker on minibatches (`examples/studies/speed/benchmarks`), and "vmap" elsewhere.
    sharding : NamedSharding of the first axis, optional
        Devices to share the particles among: each computes the scores of its own. Data, positions and forces
        are on all of them, and the scores are sent to all.
    **static_kwargs
        Fixed keyword arguments of the model.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.1), ngp.stein.RBF(), num_stein_particles=30)
    >>> result = svgd.run(jax.random.key(0), 500, progress_bar=False)
    >>> print(f"{svgd.particles(result.params)['rate'].mean():.1f}")
    4.0
    """

    def __init__(
        self,
        model: Model,
        optim: object,
        kernel_fn: ParticleKernel = RBF(),  # noqa: B008
        num_stein_particles: int = 10,
        guide_kwargs: Mapping[str, object] | None = None,
        *,
        metric: Curvature | Spread | None = None,
        init_particles: Mapping[str, object] | Around | None = None,
        evaluation: str | None = None,
        sharding: NamedSharding | None = None,
        **static_kwargs: object,
    ) -> None:
        check_shared("num_stein_particles", num_stein_particles, sharding)
        cure = "Pass ngp.stein.RBF() or ngp.stein.IMQ(), in place of NumPyro's kernels too."
        check_kernel("kernel_fn", kernel_fn, "blocks", "a kernel of ngp.stein", cure)
        if isinstance(optim, type) or not (hasattr(optim, "init") and hasattr(optim, "update")):
            cure = "Pass optax.adam(0.05)."
            fail("optim", "a NumPyro or optax optimiser", f"{optim!r:.60}", cure, TypeError)
        required, cure = "Curvature, Spread or None", "Pass Curvature(), or Spread(draws)."
        check_type("metric", metric, (Curvature, Spread, type(None)), required, cure)
        guide_kwargs = {"init_loc_fn": init_to_draw, **(guide_kwargs or {})}
        optimiser: Any = optim if hasattr(optim, "get_params") else optax_to_numpyro(optim)
        optimiser = optimiser if metric is None else Moving(optimiser, metric)
        super().__init__(model, optimiser, kernel_fn, num_stein_particles, guide_kwargs, **static_kwargs)
        self.loss_temperature = 1.0  # ours multiplies scores, which the direction averages
        self.init_particles, self.metric, self.sharding = init_particles, metric, sharding
        self.inducing: Inducing = {}  # at which the particles are values of processes
        self.judgement: Judgement | None = None  # of the end of the last run, for `Posterior.from_stein`
        if evaluation is None:
            evaluation = "map" if jax.default_backend() == "cpu" else "vmap"
        self.evaluation = check_choice("evaluation", evaluation, EVALUATIONS)

    # --------------------------------------------------------------------------- starting

    def init(self, rng_key: Array, *args: object, **kwargs: object) -> SteinVIState:
        """Place the particles and the optimiser at the start."""
        check_key("rng_key", rng_key)
        self.inducing = sites_at_start(self.model, args, {**kwargs, **self.static_kwargs})[1] or {}
        begin(self, None, self.inducing, is_again=True)
        args, kwargs = on_devices((args, kwargs))
        state = in_one_program(lambda: self._init(rng_key, args, kwargs), self)
        self.state_like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), state)
        return state

    def _init(self, rng_key: Array, args: tuple, kwargs: dict) -> SteinVIState:
        check_supports(self.model, rng_key, args, {**kwargs, **self.static_kwargs})
        starter = copy.copy(self)
        if self.metric is not None:
            starter.optim = self.optim.inner
        starter.kernel_fn = einstein.RBFKernel()  # NumPyro's init prepares its own kernels; ours hold nothing
        with Feasible():
            state = einstein.SVGD.init(starter, rng_key, *args, **kwargs)
        # What NumPyro's init learns about the model: names and transforms of its sites.
        vars(self).update({n: value for n, value in vars(starter).items() if n not in ("kernel_fn", "optim")})
        if self.metric is not None:
            transforms = {
                name: (site_of(self.guide, name), self.particle_transforms[name]) for name in self.guide_sites
            }
            state = state._replace(optim_state=self.optim.start(state.optim_state, transforms))
        return copied(state, self.sharding)

    def start_particles(self, key: Array, guide: object, args: tuple, kwargs: dict) -> dict[str, Array]:
        """Draws from the prior, or the values asked for."""
        declared, start = declared_parameters(guide, key, args, kwargs), self.init_particles
        sites, count = {name: site_of(self.guide, name) for name in declared}, self.num_stein_particles

        def draw(key: Array) -> dict[str, Array]:
            return {name: site["value"] for name, site in declared_parameters(guide, key, args, kwargs).items()}

        if start is not None and set(sites.values()) <= set(start.values if isinstance(start, Around) else start):
            params = {
                name: jnp.broadcast_to(site["value"], (count, *site["value"].shape)) for name, site in declared.items()
            }
        else:
            params = jax.vmap(draw)(random.split(key, count))
        if start is None:
            return params
        transforms = {sites[name]: get_parameter_transform(site) for name, site in declared.items()}
        started = starting_values(random.fold_in(key, 1), start, self._by_site(params), transforms)
        return {name: started[site] for name, site in sites.items()}

    # --------------------------------------------------------------------------- the step

    def update(self, state: SteinVIState, *args: object, **kwargs: object) -> tuple[SteinVIState, Array]:
        """The state after a step, and the norm of its direction."""
        state, norm, gradients = self._pulled(state, args, kwargs)
        optim_state = self.optim.update(gradients, state.optim_state, value=norm)
        following = random.split(state.rng_key, 3)[0]
        return copied(state._replace(optim_state=optim_state, rng_key=following), self.sharding), norm

    def evaluate(self, state: SteinVIState, *args: object, **kwargs: object) -> Array:
        """Norm of the direction of the next step."""
        return self._pulled(state, args, kwargs)[1]

    def _pulled(self, state: SteinVIState, args: tuple, kwargs: dict) -> tuple[SteinVIState, Array, dict]:
        """The state in the coordinates of the step, the norm of the direction there, and minus it as a gradient."""
        kwargs, key = {**kwargs, **self.static_kwargs}, key_of_stein_step(state)
        target = self._target()
        density = lambda one, shared: target.log_density(one, shared, key, args, kwargs)  # noqa: E731
        if self.metric is not None:
            state = state._replace(optim_state=self.optim.measured(state.optim_state, density))
        free, shared = self._parted(copied(self.optim.get_params(state.optim_state), self.sharding))
        slopes, shared_slopes, absent = scores_of_particles(target, key, free, shared, args, kwargs)
        slopes = jax.tree.map(lambda slope: _tempered(state.loss_temperature, slope), slopes)
        root = None if self.metric is None else state.optim_state.root
        places, turned = in_coordinates(root, free, slopes)
        parts = forces(self._by_site(places), self._by_site(turned), self.kernel_fn, self._by_site(absent))
        both = [{name: part[site_of(self.guide, name)] for name in free} for part in parts]
        phi = jax.tree.map(lambda a, r: a + _tempered(state.repulsion_temperature, r), *both)
        norm = jnp.sqrt(sum(jnp.sum(part**2) for part in phi.values()))
        # The norm says that a particle is at fault; the optimiser, which may take norms itself, must not see it.
        steps = {name: -jnp.where(jnp.isfinite(part), part, 0) for name, part in phi.items()}
        healthy = healthy_particles(free, (slopes, shared_slopes))
        climbs = {name: -healthy_mean(slope, healthy) for name, slope in shared_slopes.items()}
        return state, norm, {**steps, **climbs}

    # ---------------------------------------------------------------------------- the run

    def starting_state(self, rng_key: Array, init_state: object, args: tuple, kwargs: dict) -> SteinVIState:
        """New particles, or the state of an earlier run: of this object, or of one like it."""
        if init_state is None or self.guide_sites is None:
            start = self.init(rng_key, *args, **kwargs)  # a new object learns its sites first
        if init_state is None:
            return start
        self._check_rows(args, kwargs)
        # Refuse a state of other particles, sites, optimiser or metric.
        there, here = (
            {jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in jax.tree.leaves_with_path(state.optim_state)}
            for state in (init_state, self.state_like)
        )
        for name in (*here, *there):
            if there.get(name) != here.get(name):
                shapes = [shape.get(name, "none") for shape in (there, here)]
                required = "of an engine with as many particles and the same model, optimiser and metric"
                got = f"one with {shapes[0]} for {shapes[1]} at optim_state{name}"
                fail("init_state", required, got, "Pass result.state of a run of such an engine.")
        return init_state

    def setup_run(self, rng_key: Array, num_steps: int, args: tuple, init_state: object, kwargs: dict) -> tuple:  # noqa: ARG002
        """NumPyro's loop, which also starts from a `SteinVIState`."""
        state = self.starting_state(rng_key, init_state, args, kwargs)
        force = jax.eval_shape(lambda state: self.update(state, *args, **kwargs)[1], state)

        def step(info: tuple) -> tuple:
            return self.update(info[0], *args, **kwargs)

        def describe(info: tuple) -> str:
            return f"Stein force {info[1]:.3g}."

        return step, describe, lambda info: info[1], lambda info: info[0], (state, jnp.zeros((), force.dtype))

    def run(self, rng_key: Array, num_steps: int, *args: object, progress_bar: bool = True, **kwargs: object) -> Any:
        """Run ``num_steps`` steps; ``init_state=result.state`` continues from there (with its key, not ``rng_key``).

        Warns where a particle's score was not finite, and names the particles still at fault at the end: they felt no
        force, and the others went on without. `ngp.fit` stops at the first such step, and examines the model's sites.

        Returns
        -------
        SteinVIRunResult
            ``(params, state, losses)``; a loss is the norm of the Stein force. ``particles(params)`` has
            the particles by site.
        """
        args, kwargs = on_devices((args, kwargs))
        result = super().run(rng_key, num_steps, *args, progress_bar=progress_bar, **kwargs)
        losses = known(result.losses) if isinstance(result.losses, jax.Array) else None
        of_model = {name: value for name, value in kwargs.items() if name not in ("init_state", "collect_fn")}
        if losses is not None:
            self.judgement = self.judge(result.state, *args, **of_model)
        if losses is not None and not jnp.isfinite(losses).all():
            lost = self.faults(result.state, *args, **of_model)
            listed = ", ".join(f"particle {number} at {site!r}" for number, site in lost[:10]) or "none any more"
            message = f"Particles are not finite after {num_steps} steps: {listed}. A particle at fault feels no force"
            warnings.warn(f"{message}. ngp.fit stops at the first such step and names the cause.", stacklevel=2)
        return result

    # ----------------------------------------------------------------- what is asked of it

    def particles(self, params_or_state: object) -> dict[str, Array]:
        """Constrained particles by site, each with the particle axis first."""
        return self._by_site(self._parted(self._params(params_or_state))[0])

    def shared(self, params_or_state: object) -> dict[str, Array]:
        """The model's own ``numpyro.param`` values, which all particles share."""
        return self._parted(self._params(params_or_state))[1]

    def _params(self, params_or_state: object) -> Any:
        """Constrained values, as they are or of a state."""
        self._check_ready()
        return self.get_params(params_or_state) if isinstance(params_or_state, SteinVIState) else params_or_state

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

        def density(particle: dict, shared: dict, arrays: list[Array]) -> Array:
            args, kwargs = merge(arrays)
            return target.log_density(particle, shared, random.key(0), args, {**kwargs, **static})

        return density

    def log_density(self, params_or_state: object, *args: object, **kwargs: object) -> Array:
        """Log density of the target at each particle, ``(n,)``, in unconstrained coordinates.

        ``args`` and ``kwargs`` are those of the model; all particles see the same minibatch, if it draws one. Of values
        of a process by neighbours they have the `ngp.neighbours` of the fit.
        """
        return self._log_densities(*self.free_and_shared(params_or_state), params_or_state, args, kwargs)

    def _log_densities(self, free: dict, shared: dict, params_or_state: object, args: tuple, kwargs: dict) -> Array:
        fits = fits_of(self)
        fit = known_fit(self, self._params(params_or_state)) or (fits[0] if len(fits) == 1 else None)
        if fit is not None:  # refuse other neighbours than those of the fit, as far as it is known which that is
            check_near(self.model, call_of(self.model, args, {**kwargs, **self.static_kwargs}), fit.inducing)
        density = self.density_at(args, kwargs)

        def of_all(free: dict, shared: dict, arrays: list[Array]) -> Array:
            return lax.map(lambda particle: density(particle, shared, arrays), free)

        return run(of_all, free, shared, split_arrays((args, kwargs))[0])

    def judge(self, params_or_state: object, *args: object, **kwargs: object) -> Judgement | None:
        """What the target says of the particles: None where a minibatch would say it, whose noise is as large."""
        sites = abstract_trace(self.model, args, {**kwargs, **self.static_kwargs})
        whole = all(site["args"][1] in (None, site["args"][0]) for site in sites.values() if site["type"] == "plate")
        if not whole or self.sharding is not None:
            return None
        free, shared = self.free_and_shared(params_or_state)
        size = sum(x[0].size for x in free.values())
        if any(is_latent(site) and mask_of(site["fn"]) is not True for site in sites.values()):
            target, of_model = self._target(), (random.key(0), free, shared, args, {**kwargs, **self.static_kwargs})
            absent = scores_of_particles(target, *of_model).absent  # what a mask hides has no density
            size = max(size - sum(int(jnp.sum(hidden)) for hidden in absent.values()), 1)
        free = jax.tree.map(lambda x: jnp.concatenate([x, x.mean(0, keepdims=True)]), free)
        *each, at_mean = np.asarray(self._log_densities(free, shared, params_or_state, args, kwargs))
        return Judgement(self._params(params_or_state), np.asarray(each), size, float(at_mean))

    def _by_site(self, params: Mapping[str, Array]) -> dict[str, Array]:
        return {site_of(self.guide, name): value for name, value in params.items()}

    def _check_rows(self, args: tuple, kwargs: dict) -> None:
        check_rows_of(self.model, call_of(self.model, args, {**kwargs, **self.static_kwargs}))

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


def _tempered(temperature: object, value: Array) -> Array:
    """Product in the type of the particles, whatever the type of the temperature."""
    return jnp.asarray(temperature, value.dtype) * value
