"""How an additive model is fitted when nobody says how: the guide, the steps and their end, chains and particles."""

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from numpyro import handlers
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from numpyro_gp.arrays import Array, set_to
from numpyro_gp.checks import fail
from numpyro_gp.gam.model.censoring import sides_at
from numpyro_gp.gam.model.family import has_numbers
from numpyro_gp.gam.model.model import Model, offset_at, vector_layout_of
from numpyro_gp.gam.model.term_kernels import CURVE, MOST_TOGETHER
from numpyro_gp.gam.search.bound import WATCH
from numpyro_gp.gam.search.modes import MANY_ROWS, Collapsed, collapsed
from numpyro_gp.gam.search.series_evidence import of_series
from numpyro_gp.gam.table.layout import other_sides
from numpyro_gp.guides import AutoGP, block_low_rank, conditional
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.optim import natural_gradient
from numpyro_gp.posterior import Posterior, conditioned
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.set_up import in_one_program, swapped
from numpyro_gp.stein.auto import MOST_STEPS, auto, from_guide
from numpyro_gp.training import NUTS, FitResult
from numpyro_gp.training.fit import fit_until, still_rises

# Inducing inputs up to which one belief holds all covariances; above, those between terms are of low rank.
JOINT, RANK = MOST_TOGETHER, 20
JOINT_OF_MORE = 1000
# Numbers in the features of all rows up to which steps are those of `collapsed`, where noise is not Gaussian.
MOST_FEATURES = 40_000_000
# Rows of a step where there are more than `MANY_ROWS`.
BATCH = 2048
# Share of rows that are censored above which they may be those with an event.
MOSTLY = 0.9
# Seconds after which a search shows a bar: most have ended before.
DELAY = 2.0
# Steps between two looks at the bound; for the start of stochastic ones; passes through the rows that these then take.
LOOK_STEPS, START_STEPS, PASSES = 400, 200, 4


class EngineResult(NamedTuple):
    """What an engine leaves: its result, its posterior and its guide; where it has none they are made of parameters.

    ``in_double`` are the parameters of a fit whose features were found in double precision, before they are rounded;
    ``model`` has inducing inputs that follow them, where these are other ones.
    """

    result: FitResult | None
    steps: int
    notes: tuple[str, ...] = ()
    posterior: Posterior | None = None
    guide: AutoGP | None = None
    in_double: dict[str, np.ndarray] | None = None
    model: Model | None = None


def is_joint(model: Model) -> bool:
    """Whether one belief holds all covariances: of classes, and of a series with an input for each row, of more."""
    has_more = model.kernel_data.time_priors or model.family.classes is not None
    return sum(model.sizes) * (model.family.classes or 1) <= (JOINT_OF_MORE if has_more else JOINT)


def guide_of(model: Model) -> AutoGP:
    """A belief that follows the hyper-parameters, joint over all terms, or of low rank where they are many."""
    if is_joint(model):
        return AutoGP(model, {"f": conditional()}, AutoMultivariateNormal)
    return AutoGP(model, {"f": block_low_rank(RANK, natural=True)}, AutoNormal)


def by_quasi_newton(model: Model, most_steps: int, tables: bool = True, progress: bool = False) -> EngineResult:
    """The mode of the hyper-parameters, a normal distribution by the curvature there, and the belief that follows."""
    search = of_series if model.kernel_data.time_priors else collapsed
    with tqdm.tqdm(disable=not progress, delay=DELAY, unit=" steps", file=sys.stderr) as bar:

        def show(loss: float) -> None:
            bar.set_postfix_str(f"loss {loss:.5g}", refresh=False)
            bar.update()

        with set_to(WATCH, show):
            result = search(model, most_steps, tables)
    if not np.isfinite(result.losses[-1]):
        cure = "Look for huge or almost equal values in the columns, or pass batch= for stochastic steps."
        fail("the bound", "finite", f"{result.losses[-1]} after {len(result.losses)} steps", cure, ArithmeticError)
    steps = len(result.losses)
    notes = (*result.notes, *still_rose(steps, result.is_flat))
    return of_values(parameters_of(result), result.losses, steps, notes, True)._replace(model=result.model)


def parameters_of(found: Collapsed) -> dict[str, np.ndarray]:
    """Of a joint `guide_of`."""
    values = {f"f{NATURAL_MARK}shift": found.shift, f"f{NATURAL_MARK}precision": found.precision}
    return values | {"auto_loc": found.location, "auto_scale_tril": found.root}


def of_values(
    values: Mapping[str, np.ndarray] | None, losses: object, steps: int, notes: tuple[str, ...], is_double: bool
) -> EngineResult:
    """The result that parameters are, found a moment ago or read from a file; chains have none."""
    if values is None:
        return EngineResult(None, steps, notes)
    # Rounded before they are arrays of JAX, which would compile a program for it.
    own = {name: jnp.asarray(np.asarray(value, jnp.result_type(float))) for name, value in values.items()}
    result = FitResult(own, jnp.asarray(np.asarray(losses, jnp.result_type(float))), None)
    kept = {name: np.asarray(value) for name, value in values.items()} if is_double else None
    return EngineResult(result, steps, notes, in_double=kept)


def rounded_away(model: Model) -> tuple[str, ...]:
    """A note for steps in JAX where the level of the response, offsets included, leaves no digits for what varies."""
    levels, constant = np.ravel(offset_at(model, model.rows.X)), float(model.start.constant)
    level = float(levels[np.argmax(np.abs(levels))])
    step = abs(level) * float(jnp.finfo(jnp.result_type(float)).eps)
    if model.family.link != "identity" or step < 0.1 * float(model.start.noise):
        return ()
    words = f"The response is near {level:.2g}, where single precision has steps of {step:.1g}"
    is_constant = abs(constant) > 0.5 * abs(level)
    cure = f"Take {constant:.2g} off it before the fit" if is_constant else "Take the offset off it before the fit"
    return (f"{words}: the fit sees it rounded to that. {cure}, or set JAX_ENABLE_X64=1.",)


def still_rose(steps: int, is_flat: bool) -> tuple[str, ...]:
    """A note for fits that ended before their bound did not rise any more."""
    return () if is_flat else (f"the bound still rose after {steps} steps: pass num_steps={2 * steps}",)


@alone
def set_up(guide: AutoGP, model: Model) -> AutoGP:
    """A guide that knows the sites of the model, of which it keeps shapes: its parameters come from elsewhere."""

    def run_engine() -> None:
        with handlers.block(), handlers.seed(rng_seed=0):
            guide(*model.arguments)

    if vector_layout_of(model).priors is not None:
        jax.eval_shape(run_engine)
        swapped(guide, lambda tracer: jnp.zeros(tracer.shape, tracer.dtype))
    else:  # supports may hold numbers
        in_one_program(run_engine, guide)
    return guide


def by_stochastic_steps(
    key: Array, model: Model, num_steps: int | None, batch: int | None, progress: bool
) -> EngineResult:
    """Natural steps for the terms and Adam for all else: as many as are asked for, else until the bound rises no more.

    A joint belief starts where some of the rows have their mode: noise of minibatches hides the slope of parameters
    that start far away. Steps end so small that what they remember are the batches of some passes through the rows.
    """
    guide, rows = guide_of(model), len(model.rows.y)
    some = min(batch if batch is not None else BATCH if rows > MANY_ROWS else rows, rows)
    block, most = (LOOK_STEPS, 2000) if num_steps is None else (num_steps, num_steps)
    first, last = (0.3, 0.03) if is_joint(model) else (0.1, 0.01)  # natural steps
    decay, rate, start = 0.75, 0.05, None  # of these in 100 steps; steps of Adam at first; parameters at first
    if some < rows:
        first, last = 0.1, min(0.01, 2 * some / (PASSES * rows))
        if is_joint(model) and not has_numbers(model.family, rows):
            found = collapsed(model, START_STEPS, tables=False, is_start=True)
            if np.isfinite(found.losses[-1]):
                guide, rate = set_up(guide, model), 0.01  # parameters of this guide stand in the order of these
                start = {n: jnp.asarray(one, jnp.result_type(float)) for n, one in parameters_of(found).items()}
                block = max(block, min(PASSES * rows // some, most))
                decay = (last / first) ** (100 / max(block // 2, 100))
    adam = optax.adam(optax.exponential_decay(rate, 100, 0.75, end_value=0.1 * rate))
    natural = natural_gradient(adam, optax.exponential_decay(first, 100, decay, end_value=last))
    result = fit_until(
        key,
        SVI(model, guide, natural, Trace_ELBO()),
        model.arguments,
        {"batch": some} if some < rows else {},
        block=block,
        most_steps=most,
        progress=progress,
        init_params=start,
    )
    steps = len(result.losses)
    posterior = Posterior.from_svi(model, guide, result.params)
    return EngineResult(result, steps, still_rose(steps, not still_rises(result.losses, LOOK_STEPS)), posterior, guide)


def chains(key: Array, model: Model, num_samples: int | None, progress: bool, first: EngineResult) -> EngineResult:
    """NUTS, in the coordinates of a variational fit where that is joint."""
    target: Callable[..., object] = model
    num_samples = num_samples or 500
    if is_joint(model) and first.result is not None:
        guide = first.guide or set_up(guide_of(model), model)
        target = conditioned(model, guide, first.result.params, *model.arguments)
    mcmc = MCMC(NUTS(target), num_warmup=max(num_samples // 2, 100), num_samples=num_samples, progress_bar=progress)
    mcmc.run(key, *model.arguments, extra_fields=("diverging",))
    divergent = int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum())
    notes = (f"{divergent} divergent transitions: the posterior has corners that the chain left out",) * bool(divergent)
    return EngineResult(None, num_samples, notes, Posterior.from_mcmc(target, mcmc))


def stein_particles(key: Array, model: Model, count: int | None, progress: bool, first: EngineResult) -> EngineResult:
    """Particles as `ngp.stein.auto` starts and stops them: where a variational fit is, if there is one."""
    count = count or 20
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if first.result is None:
            svgd, found = auto(key, model, *model.arguments, num_particles=count, progress=progress)
        else:
            guide, params = set_up(guide_of(model), model), first.result.params
            svgd, found = from_guide(key, model, guide, params, count, MOST_STEPS, progress, model.arguments, {})
    words = tuple(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    return EngineResult(found, len(found.losses), words, Posterior.from_stein(model, svgd, found.params))


def run_engine(
    key: Array | None, model: Model, engine: str, num_steps: int | None, batch: int | None, tables: bool, progress: bool
) -> EngineResult:
    """Fit by an engine, with what there is to say of the data.

    By variational inference, from which chains start too: steps in the hyper-parameters alone where terms and rows
    allow it, else stochastic ones in all.
    """
    if model.family.classes is not None and not is_joint(model):
        each, required = sum(model.sizes), f"at most {JOINT_OF_MORE} inducing inputs of all terms and classes together"
        cure = f"Give curves fewer, as s(x, num_inducing={max(CURVE // 2, 2)}), or join classes that are few."
        fail("the model of classes", required, f"{model.family.classes} classes with {each} each", cure)
    most = num_steps if engine == "svi" else 600
    # Of Gaussian noise rows go through in chunks.
    is_held = vector_layout_of(model).is_exact or sum(model.sizes) * len(model.rows.y) <= MOST_FEATURES

    def key_of(number: int) -> Array:
        """Split the key where it is used: the steps of most fits need none, and a split compiles."""
        return jax.random.split(jax.random.split(jax.random.key(0) if key is None else key)[0])[number]

    if batch is None and is_joint(model) and is_held:
        result = by_quasi_newton(model, most or 2000, tables, progress)
    elif engine == "svgd":
        result = EngineResult(None, 0)  # particles begin with a fit of their own
    else:
        result = by_stochastic_steps(key_of(0), model, most, batch, progress)
    if engine != "svi":
        model = result.model or model
        sampled = chains if engine == "nuts" else stein_particles
        result = sampled(key_of(1), model, num_steps, progress, result)._replace(model=model)
    notes = [*result.notes, *(rounded_away(model) if result.in_double is None else ())]
    sides = sides_at(model.layout, model.rows.X)
    if sides is not None and np.mean(sides != 0) > MOSTLY:  # the column may be one of events
        cure = f"if they are those that are observed, {other_sides(model.layout.columns[-1])}"
        notes.append(f"{np.sum(sides != 0)} of {len(sides)} rows are censored: {cure}")
    return result._replace(notes=tuple(notes))
