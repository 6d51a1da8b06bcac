"""The relations that must hold on every model, each a function of a `Case` that asserts; those of the bound are here.

`RELATIONS` has them by name; `answers.py` adds those of predictions.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import (
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)

from numpyro_gp.sites import unwrap
from tests.contracts.descriptions import Description
from tests.contracts.models import ROWS, Case, build

KEY = jax.random.key(7)


class Renyi(RenyiELBO):
    """NumPyro's own, which subtracts ``(G,)`` from ``(S, G)`` where all sites stand in a plate (0.22: elbo.py:638)."""

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return super().loss(*args, **kwargs)


# Particles of a guide that draws nothing are equal, so Renyi's bound of any order is the ELBO.
OBJECTIVES = {
    "mean field": TraceMeanField_ELBO(),
    "graph": TraceGraph_ELBO(),
    "enumerated": TraceEnum_ELBO(max_plate_nesting=2),
    "Renyi": Renyi(alpha=2.0, num_particles=2),
    "two particles": Trace_ELBO(num_particles=2),
}


class Relation(NamedTuple):
    """What is asserted of a model, and of which models."""

    check: Callable[[Case], None]
    applies: Callable[[Description], bool]


RELATIONS: dict[str, Relation] = {}


def relation(applies: Callable[[Description], bool] = lambda d: True) -> Callable[..., Any]:
    """Add a relation to the net, for the models to which it applies."""

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        RELATIONS[check.__name__] = Relation(check, applies)
        return check

    return add


def same(left: Any, right: Any, rtol: float = 1e-7, atol: float = 1e-8) -> None:
    """Equality up to rounding of two trees; the smallest mistake sought is a jitter of 1e-6 forgotten."""
    parts = [jax.tree.structure(tree) for tree in (left, right)]
    assert parts[0] == parts[1], f"{parts[0]} is not {parts[1]}"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), left, right)


def bound(case: Case, objective: Any = None, indices: Any = None) -> Callable[..., Any]:
    """The loss as a function of parameters and data; noise of function draws and rows of a minibatch are fixed."""
    fixed: dict[str, Any] = {} if indices is None else {"data": jnp.asarray(indices)}
    if case.description.is_deep:
        noise = jnp.asarray(np.random.default_rng(5).normal(size=(ROWS, 2)))
        fixed[f"{case.scope}{case.prefix}jiggle"] = noise if indices is None else noise[indices]

    def loss(params: Any, data: Any) -> Any:
        model, guide = (handlers.substitute(part, data=fixed) for part in (case.model, case.guide))
        return (objective or Trace_ELBO()).loss(KEY, case.svi.constrain_fn(params), model, guide, **data)

    return loss


def differentiated(case: Case, data: Any = None, **choices: Any) -> tuple[Any, Any]:
    """Value and gradient of the loss, by one program: hundreds of operations one by one take ten times as long."""
    return compiled(bound(case, **choices), case, case.data if data is None else data)


def compiled(loss: Callable[..., Any], case: Case, data: Any) -> tuple[Any, Any]:
    """Value and gradient of a loss in the parameters; the size of a batch is no array."""
    fixed = {name: value for name, value in data.items() if name == "batch"}
    arrays = {name: value for name, value in data.items() if name not in fixed}
    return jax.jit(jax.value_and_grad(lambda params, arrays: loss(params, {**arrays, **fixed})))(case.params, arrays)


def reference(case: Case) -> tuple[Any, Any]:
    """Value and gradient of ``Trace_ELBO``, computed once for each model."""
    if "reference" not in case.found:
        case.found["reference"] = differentiated(case)
    return case.found["reference"]


def objective_agrees(case: Case, name: str) -> None:
    """In value and in gradient: a stopped gradient (item 1) or a term counted twice fails."""
    same(differentiated(case, objective=OBJECTIVES[name]), reference(case))


RELATIONS |= {
    f"{name} objective": Relation(
        partial(objective_agrees, name=name),  # Renyi's is refused where inner functions are drawn
        lambda d, name=name: name != "Renyi" or not d.is_deep,
    )
    for name in OBJECTIVES
}


@relation()
def compiled_is_eager(case: Case) -> None:
    same(jax.value_and_grad(bound(case))(case.params, case.data), reference(case))


@relation()
def batched_is_one_by_one(case: Case) -> None:
    """Parameters on an axis of ``vmap``, as in `SVGD`."""
    loss = bound(case)
    other = jax.tree.map(lambda leaf: 0.9 * leaf, case.params)
    pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), case.params, other)
    each = jnp.stack([reference(case)[0], jax.jit(loss)(other, case.data)])
    same(jax.jit(jax.vmap(loss, in_axes=(0, None)))(pair, case.data), each)


@relation(lambda d: not d.is_conditioned)
def variances_are_those_of_a_compiled_model(case: Case) -> None:
    """Of the functions at points of all sites; at its own inducing inputs one has that of the jitter, however asked for.

    There it is what two numbers near one differ by, so that the same number takes the same operations (item 9).
    """
    d = case.description
    kinds = ("Z",) if d.inducing == "Z" else ("X", "object")
    expected = variances(case, case.data)
    for case in (build(d, inducing=kind) for kind in kinds):
        same(variances(case, case.data), expected, rtol=1e-6, atol=0.0)
        same(jax.jit(partial(variances, case))(case.data), expected, rtol=1e-6, atol=0.0)


def variances(case: Case, data: Any) -> Any:
    """Variances of the latent function(s) at the data, at fixed points of all sites."""
    points = {site: draws[0] for site, draws in case.draws.items()}
    with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=points):
        trace = handlers.trace(case.model).get_trace(**data)
    (observed,) = (site for site in trace.values() if site["type"] == "sample" and site["is_observed"])
    return unwrap(observed["fn"]).variance_latent


@relation(lambda d: d.has_rows)
def permuted_rows_keep_the_bound(case: Case) -> None:
    order = np.random.default_rng(3).permutation(ROWS)
    if case.description.is_deep:  # the noise of function draws belongs to the rows
        same(_batch(case, order), reference(case))
    else:
        same(differentiated(case, case.taken(case.data, order)), reference(case))


@relation(lambda d: d.has_rows and not d.is_deep)
def masked_rows_are_left_out(case: Case) -> None:
    """In the bound and its gradient (item 12)."""
    masked = build(dataclasses.replace(case.description, around="mask"))
    left = {name: value for name, value in masked.taken(masked.data, slice(ROWS - 2)).items() if name != "seen"}
    same(differentiated(masked, left), reference(masked))


@relation(lambda d: d.has_rows)
def a_batch_of_all_rows_is_the_data(case: Case) -> None:
    """And the bounds of a partition into batches average to the bound of the data."""
    same(_batch(case, np.arange(ROWS)), reference(case))
    halves = [_batch(case, np.asarray(half)) for half in ([0, 4, 2], [5, 1, 3])]
    same(jax.tree.map(lambda a, b: 0.5 * (a + b), *halves), reference(case))


def _batch(case: Case, rows: np.ndarray) -> Any:
    return compiled(bound(case, indices=rows), case, {**case.data, "batch": len(rows)})
