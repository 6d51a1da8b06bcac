"""Natural gradients beside any optax optimiser, and the step sizes that the papers use, or that batches ask for."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_choice, check_count, check_positive, check_type, fail
from numpyro_gp.guides.natural import is_natural, is_of_rows
from numpyro_gp.programs.compiled import run
from numpyro_gp.programs.trace import as_function, traced

__all__ = ["check_natural_steps", "natural_gradient", "ramp"]


Schedule = Callable[[Array], Array]
# The natural step where none is given: the papers' own.
STEP = 0.1
# That of pseudo-data of single rows, of which one batch says all there is to say.
ROW_STEP = 0.7
# What JAX says, while it traces, of a function that is not linear.
NOT_LINEAR = (RuntimeError, AssertionError, TypeError, ValueError)


def ramp(initial: float, final: float, num_steps: int, kind: str = "log") -> Schedule:
    """A step size that grows at the start of a fit: from ``initial`` to ``final`` within ``num_steps``, then constant.

    ``kind="log"``: ``initial (final / initial)^min(1, t/T)``; ``kind="linear"``: a straight line
    (mathematics.md section 3.2).

    Parameters
    ----------
    initial, final : float
        At most 1, as steps along the natural gradient are.
    num_steps : int
    kind : {"log", "linear"}

    Returns
    -------
    callable
        Step number to step size, as optax schedules are.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> schedule = ngp.optim.ramp(0.001, 0.1, 100)
    >>> [round(float(schedule(step)), 4) for step in (0, 50, 100, 200)]
    [0.001, 0.01, 0.1, 0.1]
    """
    check_positive("initial", initial)
    check_positive("final", final)
    if max(initial, final) > 1:
        cure = "Take 1 at most, which replaces the belief by its conjugate update. Adam may have any optax schedule."
        fail("initial and final", "at most 1", f"{initial} and {final}", cure)
    check_count("num_steps", num_steps)
    check_choice("kind", kind, ("log", "linear"))

    if kind == "linear":
        return optax.linear_schedule(initial, final, num_steps)
    return optax.exponential_decay(initial, num_steps, final / initial, end_value=final)


def _labels(params: Mapping[str, object], alone: str = "natural", rows: str = "natural") -> dict[str, str]:
    """Label each parameter by its optimiser; ``alone``: natural ones without others, ``rows``: those of single rows."""
    cure = "Pass the optimiser to numpyro.infer.SVI."
    check_type("params", params, Mapping, "a dictionary of parameters by name", cure)
    labels = {name: "natural" if is_natural(name) else "rest" for name in params}
    if "natural" not in labels.values():
        cure = "Use a recipe with natural=True, such as ngp.guides.coupled(natural=True), or the plain optimiser."
        fail("guide", "one with natural parameters", f"parameters {sorted(params)}", cure)
    labels = labels if "rest" in labels.values() else dict.fromkeys(labels, alone)
    return {name: rows if is_of_rows(name) else label for name, label in labels.items()}


class Agreement(NamedTuple):
    """Running means of the directions of gradients, and over how many steps they go."""

    mean: Any
    memory: Array


def _settling(most: float) -> optax.GradientTransformation:
    """Plain steps ``min(most, |mean direction|^2)``, of order ``1/t`` once gradients are noise (mathematics.md 3.2)."""

    def init(params: object) -> Agreement:
        return Agreement(jax.tree.map(jnp.zeros_like, params), jnp.ones(()))

    def squares(tree: object) -> Array:
        return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(()))

    def update(gradients: object, state: Agreement, params: object = None) -> tuple[Any, Agreement]:  # noqa: ARG001
        weight = 1 / (jnp.sqrt(jnp.maximum(squares(gradients), jnp.finfo(jnp.float32).tiny)) * state.memory)
        kept = 1 - 1 / state.memory
        mean = jax.tree.map(lambda old, new: (kept * old + weight * new).astype(old.dtype), state.mean, gradients)
        step = jnp.minimum(most, squares(mean))
        moves = jax.tree.map(lambda gradient: (-step * gradient).astype(gradient.dtype), gradients)
        return moves, Agreement(mean, 1 + (1 - step) * state.memory)

    return optax.GradientTransformation(init, update)


def natural_gradient(
    rest: optax.GradientTransformation, step: float | Schedule | None = None
) -> optax.GradientTransformationExtraArgs:
    """Fast training of beliefs: natural-gradient steps on their natural parameters, ``rest`` on all other parameters.

    The natural gradient itself is the backward rule of the map from natural to mean parameters
    (`numpyro_gp.guides.natural`); here plain steps ``theta - step * gradient`` are enough. With a
    log-concave likelihood and ``step <= 1`` no step can leave the positive definite matrices; for a
    Gaussian likelihood on full data, one step of 1 lands on the optimum. An optimiser such as Adam alone,
    which divides gradients by their size, leaves them and ends in NaN: `ngp.fit` refuses it, ``SVI.run`` cannot.

    Parameters
    ----------
    rest : optax.GradientTransformation
        For kernels, likelihoods, inducing inputs: ``optax.adam(1e-2)``.
    step : float or schedule, optional
        A number in (0, 1], `ramp` or any optax schedule. None is 0.1 while there are other parameters that train, as
        beliefs have to follow them. Where beliefs alone train it is at most 0.1, and falls as ``1/t`` once gradients of
        successive batches are noise (Ranganath et al. 2013), which averages it out. It is 0.7 for pseudo-data of
        single rows (`ngp.guides.pseudo_data`).

    Returns
    -------
    optax.GradientTransformationExtraArgs
        An optimiser for `numpyro.infer.SVI`; recipes must hold natural parameters, as ``coupled(natural=True)``.

    Examples
    --------
    >>> import optax, numpyro_gp as ngp
    >>> optimiser = ngp.optim.natural_gradient(optax.adam(1e-2), step=ngp.optim.ramp(1e-4, 0.1, 100))
    """
    if not isinstance(rest, optax.GradientTransformation):
        fail("rest", "an optax optimiser", f"{rest!r:.60}", "Pass, for example, optax.adam(1e-2).", TypeError)
    if step is None:
        return optax.partition(_by_kind(rest), lambda params: _labels(params, "alone", "rows"))
    if not callable(step):
        check_positive("step", step)
        if step > 1:
            fail("step", "at most 1", step, "Pass a number up to 1, which replaces the belief by its conjugate update.")
    return optax.partition({"natural": optax.sgd(step), "rest": rest}, _labels)


def usual(step_size: float = 0.02) -> optax.GradientTransformationExtraArgs:
    """Adam, beside natural steps where a guide holds natural parameters, as pseudo-data of rows are."""

    def labels(params: Mapping[str, object]) -> dict[str, str]:
        has_natural = any(map(is_natural, params))
        return _labels(params, "alone", "rows") if has_natural else dict.fromkeys(params, "rest")

    return optax.partition(_by_kind(optax.adam(step_size)), labels)


def _by_kind(rest: optax.GradientTransformation) -> dict[str, optax.GradientTransformation]:
    """Steps of parameters by their labels, where no natural step is given."""
    return {"natural": optax.sgd(STEP), "alone": _settling(STEP), "rows": optax.sgd(ROW_STEP), "rest": rest}


def check_natural_steps(optimiser: Any, params: Mapping[str, object]) -> None:
    """Refuse a NumPyro optimiser whose steps on natural parameters are not proportional to their gradients.

    Decided by what it does. JAX transposes what is linear in the gradients, and refuses all else while it traces;
    steps that it refuses (a choice by the value of a gradient, a mean over minibatches of another size) are tried, and
    must go twice as far for gradients twice as large.
    """
    natural = [name for name in params if is_natural(name)]
    if not natural or not all(hasattr(optimiser, method) for method in ("init", "update", "get_params")):
        return
    zeros = {name: jax.tree.map(lambda leaf: jnp.zeros((1,) * jnp.ndim(leaf)), value) for name, value in params.items()}

    def steps(count: int, gradients: dict[str, Array], others: Array) -> dict[str, Array]:
        state = optimiser.init(zeros)
        every = jax.tree.map(lambda leaf: jnp.full_like(leaf, others), zeros) | gradients
        for _ in range(count):
            state = optimiser.update(every, state, value=others)
        return {name: optimiser.get_params(state)[name] for name in natural}

    start = {name: zeros[name] for name in natural}
    with suppress(*NOT_LINEAR):
        # What other parameters get falls away before it is transposed.
        kept = traced(lambda start: steps(1, start, jnp.zeros(())), start)
        step, leaves = partial(as_function(kept.program), *kept.constants), jax.tree.leaves(start)
        jax.eval_shape(lambda: jax.linear_transpose(step, *leaves)(leaves))
        return
    every = lambda size: steps(2, jax.tree.map(lambda leaf: jnp.full_like(leaf, size), start), size)  # noqa: E731
    once, twice = run(every, jnp.asarray(1e-4)), run(every, jnp.asarray(2e-4))
    if not all(jnp.allclose(2 * once[name], twice[name], rtol=1e-3, atol=0) for name in natural):
        required = f"one that takes plain gradient steps on the natural parameters {natural}"
        cure = "Wrap it: ngp.optim.natural_gradient(optax.adam(1e-2), 0.1). Or use recipes without natural=True."
        fail("the optimiser", required, "one that divides gradients by their size, as Adam does", cure)
