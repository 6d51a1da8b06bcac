"""Relations of the bound of a composed model: to dense numbers, to its parts, to differences, to single precision.

`NET` has them by name; `composed_answers.py` adds those of predictions and fits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer import RenyiELBO, Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from numpyro.infer.util import log_density
from scipy.stats import lognorm, norm

from tests.contracts import dense
from tests.contracts.composed_case import START, Case, arrays, program, same
from tests.contracts.compositions import CATEGORY, COUPLED, GROUPS, LAYERS, NOISY, OF_MEMBERS, ROWS, Composition
from tests.precision import x64


class Renyi(RenyiELBO):
    """NumPyro's own, which subtracts ``(G,)`` from ``(S, G)`` where all sites stand in a plate (0.22: elbo.py:638)."""

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return super().loss(*args, **kwargs)


class Relation(NamedTuple):
    """What is asserted of a model, and of which models."""

    check: Callable[[Case], None]
    applies: Callable[[Composition], bool]
    share: float  # of the models to which it applies


NET: dict[str, Relation] = {}


def relation(applies: Callable[[Composition], bool] = lambda c: True, share: float = 1.0) -> Callable[..., Any]:

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        NET[check.__name__] = Relation(check, applies, share)
        return check

    return add


@relation()
def minibatches_average_to_the_whole(case: Case) -> None:
    order = np.random.default_rng(case.c.seed).permutation(ROWS)
    halves = [case.bound(rows) for rows in np.split(order, 2)]
    same(jax.tree.map(lambda a, b: (a + b) / 2, *halves), case.whole, rtol=1e-6, atol=1e-7)


@relation()
def gradients_equal_differences(case: Case) -> None:
    """Along one direction; but natural gradients, and those through a divisor that is held still (section 4.5)."""
    rng, params = np.random.default_rng(case.c.seed + 1), case.params
    direction = {name: _direction(name, value, rng) for name, value in params.items() if _is_ordinary(case.c, name)}
    ends = [{name: v + e * direction.get(name, 0.0) for name, v in params.items()} for e in (1e-5, -1e-5)]
    up, down = (case.bound(params=end)[0] for end in ends)
    along = sum(float(np.vdot(case.whole[1][name], step)) for name, step in direction.items())
    scale = 1.0 + sum(float(np.abs(case.whole[1][name] * step).sum()) for name, step in direction.items())
    assert abs(along - (up - down) / 2e-5) < 3e-5 * scale, (along, (up - down) / 2e-5)


def _direction(name: str, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    step = rng.normal(size=value.shape)
    if name.endswith("inducing_mean"):  # codes of a category stay
        return step * (np.arange(step.shape[-1]) != CATEGORY)
    is_factor = value.ndim > 1 and value.shape[-1] == value.shape[-2] and not np.triu(value, 1).any()
    return np.tril(step) if is_factor else step


def _is_ordinary(c: Composition, name: str) -> bool:
    if "natural_" in name or (c.belief == "orthogonal natural" and name.startswith("f/")):
        return False
    return c.belief != "orthogonal" or name.startswith("f/") or name.startswith("noise")


# Particles of a guide that draws nothing are equal, so Renyi's bound of any order is the ELBO. Of latent inputs the exact
# KL is not its estimate by one draw; Renyi's is refused where inner functions are drawn.
OBJECTIVES = {
    "graph": TraceGraph_ELBO,
    "enumerated": partial(TraceEnum_ELBO, max_plate_nesting=2),
    "two particles": partial(Trace_ELBO, num_particles=2),
    "mean field": TraceMeanField_ELBO,
    "Renyi": partial(Renyi, alpha=2.0, num_particles=2),
}


@relation(lambda c: c.rest == "delta")
def every_objective_is_the_elbo(case: Case) -> None:
    """In value and in gradient, one for each seed: a stopped gradient or a term counted twice fails."""
    name = list(OBJECTIVES)[case.c.seed % (3 if case.c.process in NOISY else 5)]
    loss = program(case.model, case.guide, with_gradient=True, objective=OBJECTIVES[name])
    same(loss(*arrays((case.params, case.noise, case.data)), None), case.whole)


@relation(lambda c: c.rest == "delta")
def parameters_on_an_axis_are_one_by_one(case: Case) -> None:
    """Under ``vmap``, as in `SVGD`."""
    other = {name: value if name.endswith("inducing_mean") else 0.9 * value for name, value in case.params.items()}
    pair = {name: np.stack([value, other[name]]) for name, value in case.params.items()}
    found = program(case.model, case.guide, is_batched=True)(*arrays((pair, case.noise, case.data)))
    same(found, np.stack([case.value, case.bound(params=other)[0]]))


@relation(lambda c: c.rest == "delta" and c.process not in ("drawn", "scan"))  # whose features are of other keys
def single_precision_is_double(case: Case) -> None:
    """The bound to 2e-3 of the sum of its parts, where the jitter is asked for; else, with a larger one, to 2e-2."""
    value, count = case.value, ROWS * (2 if case.model.is_wide else 1)
    with x64(False):
        single = program(case.model, case.new_guide())
        found = single(*arrays((case.params, case.noise, case.data)), None)
        assert found.dtype == np.float32
    assert abs(float(found) - float(value)) < (2e-3 if case.c.has_jitter else 2e-2) * (count + abs(float(value)))


def is_dense(c: Composition) -> bool:
    """Whether `dense.py` can compute it."""
    is_plain = c.rest == "delta" and not c.has_replicates and not c.is_monotone and c.likelihood != "closure"
    beliefs = {
        "one": (*COUPLED, *LAYERS, "decoupled", "hybrid", "orthogonal"),
        "additive": ("coupled", "natural", "conditional"),
    }
    return is_plain and c.has_jitter and c.belief in beliefs.get(c.process, ())


@relation(is_dense)
def the_bound_is_dense(case: Case) -> None:
    c, hyper, data = case.c, case.hyper(), case.data
    process = dense.Process(c, data["X"], data["Z"], hyper)
    mean, variance, divergence = process.belief(c.belief, case.of_belief, case.others)
    value = dense.expected(c, data["y"], mean, variance, hyper["noise"], data["table"]) - divergence
    wanted = value + sum(log_priors(c, hyper).values())
    np.testing.assert_allclose(-case.value, wanted, rtol=tolerance_of(c))


@relation(lambda c: is_dense(c) and c.hyper != "param")
def the_density_of_points_is_dense(case: Case) -> None:
    """What NUTS and particles see: the prior of the whitened values, and the expectation under what is left of it."""
    c, data, rng = case.c, case.data, np.random.default_rng(case.c.seed + 2)
    hyper = {
        name: start * np.exp(0.3 * rng.normal()) if c.hyper == "sampled" else start for name, start in START.items()
    }
    process = dense.Process(c, data["X"], data["Z"], hyper)
    v = rng.normal(size=len(process.L))
    mean, variance = process.covered(v, np.zeros(process.L.shape))
    value = dense.expected(c, data["y"], mean, variance, hyper["noise"], data["table"]) + norm.logpdf(v).sum()
    points = {"f": v, **(hyper if c.hyper == "sampled" else {})}
    density = jax.jit(lambda points, data: log_density(case.model, (), data, points)[0])
    found = density(*arrays((points, data)))
    np.testing.assert_allclose(found, value + sum(log_priors(c, hyper).values()), rtol=tolerance_of(c))


def tolerance_of(c: Composition) -> float:
    """Of a bound: some quadrature is as good as its docstring says, no better."""
    return 1e-4 if c.likelihood == "negative binomial" else 1e-6


def log_priors(c: Composition, hyper: Any) -> dict[str, float]:
    if c.hyper != "sampled":
        return {}
    return {name: lognorm(0.5, scale=START[name]).logpdf(value).sum() for name, value in hyper.items()}


@relation(lambda c: c.process in (*OF_MEMBERS, "outputs") and c.likelihood != "softmax" and c.rest == "delta")
def members_equal_a_loop(case: Case) -> None:
    """The bound of all is the sum of the bounds of each, less the priors of what they share counted again."""
    c, hyper = case.c, case.hyper()
    shared = {name: p for name, p in log_priors(c, hyper).items() if not (c.has_own_scale and name == "scale")}
    total, single = -sum(shared.values()) * (1 - GROUPS), None
    for member in range(GROUPS):
        alone = Case(c._replace(process="one", has_own_scale=False))
        single = single or program(alone.model, case.new_guide(alone.model))
        data = {**member_of(case, member), "Z": case.data["Z"]}
        own = {name: _own(c, name, value, member) for name, value in case.params.items()}
        total += float(single(*arrays((own, {}, data)), None))
    np.testing.assert_allclose(total, case.value, rtol=1e-6)


def member_of(case: Case, member: int) -> dict[str, Any]:
    data = {name: value for name, value in case.data.items() if name != "Z"}
    if case.c.process == "named":
        return jax.tree.map(lambda leaf: leaf[data["table"]["group"] == member], data)
    X = data["X"][:, member] if case.c.process == "own rows" else data["X"]
    return {"X": X, "table": data["table"], "y": data["y"][:, member]}


def _own(c: Composition, name: str, value: np.ndarray, member: int) -> np.ndarray:
    is_own = name.startswith("f/") or (c.has_own_scale and name.startswith("scale"))
    shared = ("Z_alpha", "Z_gamma", "Z_mean")
    if not is_own or name.endswith(shared) or not np.ndim(value):
        return value
    return value[member] if c.process in ("named", "outputs") else value[member, 0]


@relation(lambda c: not c.is_full and c.process != "latent")
def rows_that_are_masked_are_left_out(case: Case) -> None:
    """The bound, on half of the rows."""
    kept = np.sort(np.random.default_rng(case.c.seed).permutation(ROWS)[: ROWS // 2])
    masked, data = Case(case.c._replace(is_masked=True)), dict(case.data)
    assert set(masked.params) == set(case.params)  # and its guide is set up: a first call draws other numbers
    data["table"] = {**data["table"], "seen": np.isin(np.arange(ROWS), kept)}
    left = {n: value if n == "Z" else jax.tree.map(lambda leaf: leaf[kept], value) for n, value in data.items()}
    noise = {name: value[kept] if len(value) == ROWS else value for name, value in case.noise.items()}
    loss = program(masked.model, masked.guide)
    found = [loss(*arrays((case.params, *own)), None) for own in ((case.noise, data), (noise, left))]
    same(found[0], found[1], rtol=1e-6, atol=1e-7)
