"""The relations that must hold on every model, each a function of a `Case` that asserts; `RELATIONS` has them by name."""

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import (
    Predictive,
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)

import numpyro_gp as ngp
from tests.contracts.models import ROWS, Case, build

KEY = jax.random.key(7)
# Particles of a guide that draws nothing are equal, so Renyi's bound of any order is the ELBO.
OBJECTIVES = {
    "mean field": TraceMeanField_ELBO(),
    "graph": TraceGraph_ELBO(),
    "enumerated": TraceEnum_ELBO(),
    "Renyi": RenyiELBO(alpha=2.0, num_particles=2),
    "two particles": Trace_ELBO(num_particles=2),
}
RELATIONS: dict[str, Callable[[Case], None]] = {}


def relation(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Add a relation to the net."""
    RELATIONS[function.__name__] = function
    return function


def same(left: Any, right: Any, rtol: float = 1e-7, atol: float = 1e-8) -> None:
    """Equality up to rounding of two trees; the smallest mistake sought is a jitter of 1e-6 forgotten."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
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
    """Value and gradient of the loss, operation by operation: fixed sizes share all programs between models."""
    return jax.value_and_grad(bound(case, **choices))(case.params, case.data if data is None else data)


def reference(case: Case) -> tuple[Any, Any]:
    """Value and gradient of ``Trace_ELBO``, computed once for each model."""
    if "reference" not in case.found:
        case.found["reference"] = differentiated(case)
    return case.found["reference"]


def fitted(case: Case) -> ngp.Posterior:
    """The posterior of the guide."""
    return ngp.Posterior.from_svi(case.model, case.guide, case.constrained)


def sampled(case: Case) -> ngp.Posterior:
    """The posterior of a chain."""
    return ngp.Posterior.from_mcmc(case.model, case.draws)


def predicted(case: Case, posterior: ngp.Posterior, new: Any = None, **options: Any) -> dict[str, Any]:
    """Moments of a prediction."""
    new = case.new if new is None else new
    if case.description.is_conditioned:
        scope = "left/" if case.description.process == "two regressions" else ""
        options["gp"] = f"{case.before}{scope}{case.prefix}target"
        found = posterior.predict_at(KEY, new["X"], **options, **case.data)
    else:
        found = posterior.predict(KEY, **options, **new)
    return {name: getattr(found, name) for name in ("mean", "variance", "function_mean", "function_variance")}


def whole(case: Case, kind: str) -> dict[str, Any]:
    """The prediction in one chunk, computed once for each model."""
    if kind not in case.found:
        case.found[kind] = predicted(case, fitted(case) if kind == "svi" else sampled(case))
    return case.found[kind]


@relation
def numpyro_objectives_agree(case: Case) -> None:
    """In value and in gradient: a stopped gradient (item 1) or a term counted twice fails."""
    expected = reference(case)
    for objective in OBJECTIVES.values():
        same(differentiated(case, objective=objective), expected)


@relation
def eager_is_compiled_is_batched(case: Case) -> None:
    """Also at the observation's variance, where ``X is Z`` shows (item 9)."""
    loss = bound(case)
    same(jax.jit(jax.value_and_grad(loss))(case.params, case.data), reference(case))
    other = jax.tree.map(lambda leaf: 0.9 * leaf, case.params)
    pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), case.params, other)
    each = jnp.stack([reference(case)[0], loss(other, case.data)])
    same(jax.vmap(lambda own: loss(own, case.data))(pair), each)
    if not case.description.is_conditioned:
        same(variances(case, case.data), jax.jit(lambda data: variances(case, data))(case.data), rtol=1e-6, atol=0.0)


def variances(case: Case, data: Any) -> Any:
    """Variances of the latent function(s) at the data, at fixed points of all sites."""
    points = {site: draws[0] for site, draws in case.draws.items()}
    with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=points):
        trace = handlers.trace(case.model).get_trace(**data)
    observed = [site for site in trace.values() if site["type"] == "sample" and site["is_observed"]]
    fn = observed[0]["fn"]
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return fn.variance_latent


@relation
def numpy_inputs_are_jax_inputs(case: Case) -> None:
    """In the bound, compiled and not, and in predictions from a guide and from a chain."""
    data = jax.tree.map(np.asarray, case.data)
    same(bound(case)(case.params, data), reference(case)[0])
    new, draws = jax.tree.map(np.asarray, (case.new, case.draws))
    same(predicted(case, ngp.Posterior.from_mcmc(case.model, draws), new), whole(case, "mcmc"))


@relation
def renamed_sites_rename_results(case: Case) -> None:
    """Parameters, bound, gradient and predictions."""
    _check_renamed(case, build(case.description, prefix="other_"))


@relation
def scoped_is_unscoped(case: Case) -> None:
    """The whole model under a scope, twice where it can be (item 5)."""
    _check_renamed(case, build(case.description, before="top/"))


def _check_renamed(case: Case, other: Case) -> None:
    assert len(other.params) == len(case.params)
    same(list(jax.tree.leaves(differentiated(other))), list(jax.tree.leaves(reference(case))))
    same(predicted(other, sampled(other)), whole(case, "mcmc"))


@relation
def conditioned_processes_keep_their_data(case: Case) -> None:
    """Of two regressions in one model, each predicts as it does alone (item 5)."""
    if case.description.process != "two regressions":
        return
    alone = build(case.description, process="regression")
    same(whole(case, "mcmc"), predicted(alone, sampled(alone)))


@relation
def permuted_rows_permute_results(case: Case) -> None:
    """The bound does not change, predictions change places."""
    order = np.random.default_rng(3).permutation(ROWS)
    held = ("Z",)
    if case.description.inducing == "X" or case.description.is_deep:
        return  # rows of Z, or noise of function draws, belong to rows of X
    turned = {name: value if name in held else value[order] for name, value in case.data.items()}
    same(differentiated(case, turned), reference(case))
    new = {name: value if name in held else value[order] for name, value in case.new.items()}
    expected = jax.tree.map(lambda leaf: leaf[order], whole(case, "svi"))
    same(predicted(case, fitted(case), new), expected)


@relation
def chunked_is_whole(case: Case) -> None:
    """Also where a second argument has a row for each datum (item 4)."""
    if case.description.is_deep:
        return  # each chunk has its own noise
    if case.description.inducing == "X":
        return  # a model that holds all rows at once
    same(predicted(case, fitted(case), chunk_size=4), whole(case, "svi"))
    same(predicted(case, sampled(case), chunk_size=1), whole(case, "mcmc"))


@relation
def saved_and_pickled_is_itself(case: Case) -> None:
    """A posterior read from a file, and one pickled without its model where that is a closure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.npz"
        fitted(case).save(path)
        again = ngp.Posterior.load(path, case.model, case.guide)
        same(
            jax.tree.leaves(again.values(KEY, 0, **case.data)),
            jax.tree.leaves(fitted(case).values(KEY, 0, **case.data)),
        )
        sampled(case).save(path)
        same(ngp.Posterior.load(path, case.model).samples, case.draws)
    belief = case.guide.beliefs(case.constrained) if case.description.sites else {}
    again = pickle.loads(pickle.dumps(belief))
    same(jax.tree.leaves(again), jax.tree.leaves(belief))


@relation
def masked_rows_are_left_out(case: Case) -> None:
    """In the bound, its gradient and the pointwise log likelihood (item 12)."""
    d = case.description
    if d.around != "mask" or d.is_deep or d.inducing == "X":
        return
    kept = {name: value if name == "Z" else value[: ROWS - 2] for name, value in case.data.items()}
    same(differentiated(case, kept), reference(case))
    if d.hyper != "param":
        masked, left = (sampled(case).to_arviz(KEY, **data) for data in (case.data, kept))
        terms = [np.asarray(tree["log_likelihood"][f"{case.scope}{case.prefix}target"]) for tree in (masked, left)]
        same(terms[0][..., : terms[1].shape[2]] if terms[0].ndim == 3 else terms[0][:, :, : ROWS - 2], terms[1])


@relation
def a_batch_of_all_rows_is_the_data(case: Case) -> None:
    """And the bounds of a partition into batches average to the bound of the data."""
    d = case.description
    if d.is_conditioned or d.inducing == "X":
        return
    same(_batch(case, np.arange(ROWS)), reference(case))
    halves = [_batch(case, np.asarray(half)) for half in ([0, 4, 2], [5, 1, 3])]
    same(jax.tree.map(lambda a, b: 0.5 * (a + b), *halves), reference(case))


def _batch(case: Case, rows: np.ndarray) -> Any:
    loss = bound(case, indices=rows)
    return jax.value_and_grad(loss)(case.params, {**case.data, "batch": len(rows)})


@relation
def a_belief_that_delegates_is_its_delegate(case: Case) -> None:
    """Bound, gradient, predictions, groups of ArviZ and pointwise log likelihood (item 2)."""
    if case.description.belief != "own":
        return
    other = build(case.description, belief="coupled")
    same(reference(other), reference(case))
    same(whole(other, "svi"), whole(case, "svi"))
    mine, its = (fitted(one).to_arviz(KEY, num_samples=200, **one.data) for one in (case, other))
    assert set(mine["posterior"].data_vars) == set(its["posterior"].data_vars)
    for site in case.description.sites:
        name = f"{case.scope}{site}"
        same(*(np.asarray(tree["posterior"][name]).mean((0, 1)) for tree in (mine, its)), rtol=0.0, atol=0.3)
        same(*(np.asarray(tree["posterior"][name]).std((0, 1)) for tree in (mine, its)), rtol=0.3, atol=0.0)
    terms = [np.asarray(tree["log_likelihood"][f"{case.scope}target"]).mean((0, 1)) for tree in (mine, its)]
    same(*terms, rtol=0.3, atol=0.3)


@relation
def all_answers_tell_one_story(case: Case) -> None:
    """``predict``, ``to_arviz``, ``compare`` and NumPyro's ``Predictive``, of the same draws at the same data."""
    d = case.description
    if d.is_conditioned or d.is_deep:
        return
    posterior = sampled(case)
    at_data = {name: value for name, value in case.data.items() if name not in ("y", "seen")}
    y, target = case.data["y"], f"{case.scope}{case.prefix}target"
    prediction = posterior.predict(KEY, **at_data)
    density = prediction.log_density(y)
    tree = posterior.to_arviz(KEY, **at_data, y=y)
    terms = np.asarray(tree["log_likelihood"][target])[0]
    same(logsumexp(terms.reshape(terms.shape[0], ROWS, -1)[..., 0], axis=0) - np.log(len(terms)), np.asarray(density))
    table = ngp.compare({"chain": posterior}, KEY, **at_data, y=y, train={**at_data, "y": y})
    np.testing.assert_allclose(table["chain"]["log density"].value, density.mean(), rtol=1e-6)
    place = f"{case.scope}{case.prefix}location"
    drawn = Predictive(case.model, posterior_samples=case.draws)(KEY, **at_data)[place]
    first = prediction.function_mean[..., 0] if d.process in ("two", "three") else prediction.function_mean
    same(drawn.mean(0), first)
    same(np.asarray(tree["posterior"][place])[0], drawn)
    by_guide = Predictive(case.model, guide=case.guide, params=case.constrained, num_samples=1)(KEY, **at_data)[place]
    own = fitted(case).predict(KEY, **at_data).function_mean
    same(by_guide[0], own[..., 0] if d.process in ("two", "three") else own)
