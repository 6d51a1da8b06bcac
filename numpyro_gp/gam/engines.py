"""How an additive model is fitted when nobody says how: the guide, the steps and their end, chains and particles."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from numpyro_gp.arrays import Array
from numpyro_gp.gam.model import Model
from numpyro_gp.guides import AutoGP, block_low_rank, conditional
from numpyro_gp.optim import natural_gradient
from numpyro_gp.posterior import Posterior, conditioned
from numpyro_gp.stein import SVGD
from numpyro_gp.training import NUTS, FitResult
from numpyro_gp.training.particles import auto
from numpyro_gp.training.plateau import fit_to_plateau

# Inducing inputs up to which one belief holds all covariances; above, those between terms are of low rank.
JOINT, RANK = 500, 20
# Hyper-parameters up to which their posterior has covariances.
CORRELATED = 60
# Rows above which a step sees some of them.
MANY_ROWS, BATCH = 10_000, 2048
# Steps between two looks at the bound: each look traces the step once more, which takes as long as 500 steps.
BLOCK = 400


class Fitted(NamedTuple):
    """What an engine leaves: the posterior, the guide of a variational fit, and its result."""

    posterior: Posterior
    guide: Any
    result: FitResult | None
    steps: int
    notes: tuple[str, ...] = ()


def size_of(model: Model) -> int:
    """Number of inducing inputs of all terms."""
    return 1 + sum(len(points) for points in model.ground.inducing.values())


def guide_of(model: Model) -> AutoGP:
    """A belief that follows the hyper-parameters, joint over all terms, or of low rank where they are many."""
    recipe = conditional() if size_of(model) <= JOINT else block_low_rank(RANK, natural=True)
    count = sum(1 + len(part.term.columns) for part in model.layout.parts)
    return AutoGP(model, {"f": recipe}, AutoMultivariateNormal if count <= CORRELATED else AutoNormal)


def variational(key: Array, model: Model, most_steps: int, batch: int | None, progress: bool) -> Fitted:
    """Natural steps for the terms and Adam for all else, until the bound no longer rises."""
    guide, rows = guide_of(model), len(model.rows.y)
    some = batch if batch is not None else (BATCH if rows > MANY_ROWS else None)
    whole = some is None or some >= rows
    is_joint = size_of(model) <= JOINT
    first, last = (0.3, 0.03) if whole and is_joint else (0.1, 0.01)
    adam = optax.adam(optax.exponential_decay(0.05, 100, 0.75, end_value=0.005))
    step = optax.exponential_decay(first, 100, 0.75, end_value=last)
    svi = SVI(model, guide, natural_gradient(adam, step), Trace_ELBO())
    options: dict[str, Any] = {} if whole else {"batch": some}
    result, rises = fit_to_plateau(
        key, svi, model.arguments, options, block=BLOCK, most_steps=most_steps, progress=progress
    )
    steps = len(result.losses)
    notes = (f"the bound still rose after {steps} steps: pass num_steps={2 * steps}",) if rises else ()
    return Fitted(Posterior.from_svi(model, guide, result.params), guide, result, steps, notes)


def chains(key: Array, model: Model, num_samples: int, progress: bool, first: Fitted) -> Fitted:
    """NUTS, in the coordinates of a variational fit where that is joint."""
    target: Any = model
    if size_of(model) <= JOINT and first.result is not None:
        target = conditioned(model, first.guide, first.result.params, *model.arguments)
    mcmc = MCMC(NUTS(target), num_warmup=max(num_samples // 2, 100), num_samples=num_samples, progress_bar=progress)
    mcmc.run(key, *model.arguments, extra_fields=("diverging",))
    divergent = int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum())
    notes = (f"{divergent} divergent transitions: the posterior has corners that the chain left out",) * bool(divergent)
    return Fitted(Posterior.from_mcmc(target, mcmc), None, None, num_samples, notes)


def particles(key: Array, model: Model, num_particles: int, progress: bool) -> Fitted:
    """Stein particles, as `ngp.stein.auto` starts and stops them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        svgd, result = auto(key, model, *model.arguments, num_particles=num_particles, progress=progress)
    assert isinstance(svgd, SVGD)
    notes = tuple(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    return Fitted(Posterior.from_stein(model, svgd, result.params), None, result, len(result.losses), notes)


def run(key: Array, model: Model, engine: str, num_steps: int | None, batch: int | None, progress: bool) -> Fitted:
    """Fit by an engine."""
    key_first, key_run = jax.random.split(key)
    if engine == "svgd":
        return particles(key_run, model, num_steps or 20, progress)
    first = variational(key_first, model, (num_steps or 2000) if engine == "svi" else 600, batch, progress)
    return first if engine == "svi" else chains(key_run, model, num_steps or 500, progress, first)
