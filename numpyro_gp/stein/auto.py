"""Stein particles without a choice: where they start, in which coordinates they move, and when they have arrived."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.guides import AutoGP, conditional
from numpyro_gp.optim import natural_gradient
from numpyro_gp.posterior.conditioned import conditioned
from numpyro_gp.primitives.neighbours.row_sites import RowPrior
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.sites import is_latent, role, unwrap
from numpyro_gp.stein.kernels import IMQ, RBF, Groups, ParticleKernel
from numpyro_gp.stein.metric import Spread, in_coordinates
from numpyro_gp.stein.svgd import SVGD
from numpyro_gp.training.checkpoints import FitResult, Position
from numpyro_gp.training.fit import fit_until

MOST_STEPS, BLOCK = 2000, 100
# Steps that are as long as a tenth of the posterior's width at the most settle in some hundred.
RATE = 0.05
# Means and spreads of particles that have arrived move by less than this part of a standard deviation in a block.
STILL = 0.1
MOST_COORDINATES = 10  # that one distance keeps apart


def auto(
    key: Array,
    model: object,
    *args: object,
    num_particles: int = 20,
    most_steps: int = MOST_STEPS,
    progress: bool = False,
    **kwargs: object,
) -> tuple[SVGD, FitResult]:
    """Run Stein particles without a choice: start, coordinates, kernel and number of steps come from the model.

    A guide is fitted first, with beliefs at `gp` sites that follow the hyper-parameters (`guides.conditional`).
    Particles start at draws of it, of the model in its coordinates (`conditioned`), where processes are nearly
    independent of all else and have a kernel for each coordinate; the other sites share a distance. The run ends where
    means and spreads of the particles no longer change. All particles start in the mode that the guide has found, from
    the best of 24 starts of a `gp_regression` (``search`` of `ngp.fit`). For other modes start them at the prior,
    `SVGD` itself, and weigh them (`weights`).

    Parameters
    ----------
    key : PRNG key
    model : callable
        NumPyro model with continuous latent sites, and without draws of inner functions.
    *args, **kwargs
        Its arguments.
    num_particles : int
    most_steps : int
        Of the particles; a run that has not settled by then warns.
    progress : bool

    Returns
    -------
    SVGD, FitResult
        The engine and its result, for ``Posterior.from_stein(model, svgd, result.params)``.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    >>> svgd, found = ngp.stein.auto(jax.random.key(0), model, num_particles=10)
    >>> print(f"{svgd.particles(found.params)['rate'].mean():.0f}")
    4
    """
    key_guide, key_run = jax.random.split(check_key("key", key))
    counts = check_count("num_particles", num_particles), check_count("most_steps", most_steps)
    latent = {name: site for name, site in abstract_trace(model, args, kwargs).items() if is_latent(site)}
    roles = {name: role(site) for name, site in latent.items()}
    if local := [name for name, site in latent.items() if isinstance(unwrap(site["fn"]), RowPrior)]:
        cure = "Take ngp.NUTS, or stein.SVGD itself; with Gaussian noise gp_regression."
        fail("the model", "of processes with inducing inputs", f"rows with neighbours or a line at {local}", cure)
    if inner := [name for name, own in roles.items() if own in ("noise", "function")]:
        cure = "Fit ngp.AutoGP by SVI, or sample with ngp.NUTS."
        fail("the model", "without draws of inner functions", f"those of the sites {inner}", cure)
    recipes = {name: conditional() for name, own in roles.items() if own == "gp"}
    guide = AutoGP(model, recipes, AutoMultivariateNormal)
    step = natural_gradient(optax.adam(RATE), 0.3) if recipes else optax.adam(RATE)
    svi = SVI(model, guide, step, Trace_ELBO(num_particles=4))
    # Particles stay in the mode that this fit finds: it is to begin at the better of two, however short it is.
    limits = {"block": BLOCK, "most_steps": 20 * BLOCK}
    fitted = fit_until(key_guide, svi, args, kwargs, **limits, progress=progress, search=True)
    return from_guide(key_run, model, guide, fitted.params, *counts, progress, args, kwargs)


def from_guide(
    key: Array,
    model: Any,
    guide: AutoGP,
    params: Mapping[str, Array],
    num_particles: int,
    limit: int,
    progress: bool,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[SVGD, FitResult]:
    """Run particles from draws of a guide that was fitted, until they are still or have done ``limit`` steps.

    The guide has a `conditional` belief at each process, and a joint normal of all other sites.
    """
    target = conditioned(model, guide, params, *args, **kwargs) if guide.recipes else model
    shifts = {f"{name}_conditioned": own.shift for name, own in target.past.items()} if guide.recipes else {}
    key_run, key_rest, *keys = jax.random.split(key, 2 + len(shifts))
    size = sum(shift.size for shift in shifts.values()) + (0 if guide.rest is None else guide.rest.latent_dim)
    count = (max(1000, 5 * size, num_particles),)
    draws: dict[str, Array] = {}
    if guide.rest is not None:
        draws |= jax.vmap(lambda key: guide.rest.sample_posterior(key, params))(jax.random.split(key_rest, count))
    others = list(draws)
    for key_of_site, (name, shift) in zip(keys, shifts.items(), strict=True):
        draws[name] = jax.random.normal(key_of_site, count + shift.shape, shift.dtype)
    start = {name: values[:num_particles] for name, values in draws.items()}
    # One distance for hyper-parameters, if they are few, and one for each whitened value. On the README's data the
    # heavier tails of IMQ hold 0.94, 0.85, 0.97 of the standard deviations of NUTS where RBF has 0.90, 0.79, 0.95.
    kernel: ParticleKernel = IMQ(per_coordinate=sum(draws[name][0].size for name in others) > MOST_COORDINATES)
    if shifts:
        each = RBF(per_coordinate=True)
        kernel = Groups([others], kernel, rest=each) if others else each
    svgd = SVGD(target, optax.adam(RATE), kernel, num_particles, metric=Spread(draws), init_particles=start)
    before: list[tuple[np.ndarray, np.ndarray]] | None = None
    moved: float | None = None

    def is_still(position: Position) -> bool:
        """Whether means and spreads by site, in the coordinates in which particles move, are those a block before."""
        nonlocal before, moved
        free = svgd.free_and_shared(position.state)[0]
        z = in_coordinates(position.state.optim_state.root, free, free)[0]
        tables = [np.asarray(values).reshape(len(values), -1) for values in z.values()]
        now = [(table.mean(0), table.std(0)) for table in tables]
        if before is not None:
            # What a short last block moves is taken as a part of what a whole one would.
            steps = position.steps % BLOCK or BLOCK
            pairs = [pair for site in zip(now, before, strict=True) for pair in zip(*site, strict=True)]
            moved = max(float(np.sqrt(np.mean((a - b) ** 2))) for a, b in pairs) * BLOCK / steps
        before = now
        return moved is not None and moved < STILL

    given = key_run, svgd, tuple(args), kwargs
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are (stranded|narrow)")
        result = fit_until(*given, block=BLOCK, most_steps=limit, progress=progress, is_over=is_still)
    if moved is None or moved >= STILL:
        what = "Whether particles still move was not seen after" if moved is None else "Particles still move after"
        warnings.warn(f"{what} {limit} steps: pass most_steps={2 * max(limit, BLOCK)}.", stacklevel=3)
    return svgd, result
