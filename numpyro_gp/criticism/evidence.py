"""What a verdict judges: a posterior's draws at the data of its fit, and what the processes of the model say there.

One program runs the model at each draw. Of an observed site it keeps the log density of each datum, its moments, and
how probable is what lies below it; of a process the prior variance that its inducing inputs explain, and its
lengthscales.
What a structure has no number for is left out.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from jax.scipy.stats import norm

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, BatchBasis, marked
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.checks import known
from numpyro_gp.criticism.leave_one_out import COPIES, ROWS, Seen, judged
from numpyro_gp.kernels import RBF, Kernel, Matern12, Matern32, Matern52, RationalQuadratic
from numpyro_gp.kernels.base import Active, Product, Scaled, Sum
from numpyro_gp.kernels.functionals import OfFunctionals, terms
from numpyro_gp.likelihoods import Gaussian, PointPattern
from numpyro_gp.linalg import matmul
from numpyro_gp.posterior.draws import (
    belief_trace,
    check_full,
    data_sites,
    draws_at_data,
    is_hyperparameter,
    left_out_moments,
    log_likelihood,
    seen_entries,
    whitened_sites,
)
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.tracing import Draw, Fitted, at_each_draw, key_of
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import recorded_calls
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.primitives.regression import CollapsedMarginal, Marginal
from numpyro_gp.programs.compiled import run_quickly
from numpyro_gp.rows.batches import some_rows
from numpyro_gp.rows.call import Call
from numpyro_gp.sites import Observation, Site, Trace, role, unwrap

CENSORED = tuple(getattr(dist, name) for name in dir(dist) if name.endswith("CensoredDistribution"))
OF_DISTANCE = (RBF, Matern12, Matern32, Matern52, RationalQuadratic)
# Calls of processes, in their order: the process and its inputs (..., N, D).
Calls = list[tuple[GaussianProcess | LocalProcess, Array]]


class Fact(NamedTuple):
    """Of a process at S draws: its prior variance at the data, what of it is left unexplained, and its lengthscales.

    ``by_jitter`` is the least part of ``left`` that is there for the factorisation alone; ``is_exact`` tells a process
    without inducing inputs.
    ``lengthscales`` and ``extent`` ``(S, L)`` are those of ``columns``, where all parts of a kernel have one that is a
    distance. ``gap`` is that between an upper bound of the log evidence and the collapsed bound, per datum. ``at_half``
    is what the inducing inputs would leave of the variance at half the lengthscales.
    """

    left: np.ndarray
    prior: np.ndarray
    by_jitter: np.ndarray
    lengthscales: np.ndarray | None
    extent: np.ndarray | None
    gap: np.ndarray
    size: int
    columns: tuple[int, ...]
    is_exact: bool
    at_half: np.ndarray | None = None


class FitEvidence(NamedTuple):
    """All of it: observed sites, processes, hyper-parameters, draws of their prior, lower ends, and the first inputs.

    ``is_weighable``: whether importance weights of a variational fit have a meaning: every belief is one of whitened
    values, and no draw of an inner function stands between.
    """

    sites: dict[str, Seen]
    processes: dict[str, Fact]
    parameters: dict[str, np.ndarray]
    prior: dict[str, np.ndarray]
    lower: dict[str, float]
    inputs: np.ndarray | None
    is_weighable: bool


def gather(posterior: Posterior, key: Array, call: Call, num_samples: int | None) -> FitEvidence:
    """Run the model at draws of the posterior and at the data of ``call``."""
    draws = draws_at_data(posterior, key, call, num_samples)
    look = _RowDensities(draws[1].size)

    def one(own: Fitted, draw: Draw, arrays: list[Array]) -> dict[str, Any]:
        calls: Calls = []
        trace = belief_trace(own, draw, call.at(arrays), drawn, recorded_calls(calls))
        check_full(trace)
        return look.at_draw(trace, calls, jax.random.split(jax.random.fold_in(draw[0], 3)))

    # Chains and particles hold points.
    start = jax.tree.map(lambda leaf: leaf[0], draws)
    whitened = {} if posterior.guide is None else whitened_sites(posterior, start, call)
    drawn = {name for name, is_whitened in whitened.items() if is_whitened}
    every = jax.tree.map(np.asarray, at_each_draw(one, posterior, draws, call.arrays, by=run_quickly))
    sites = {name: judged(own, look.counts[name], look.is_normal[name]) for name, own in every["sites"].items()}
    if look.has_latent:  # a datum's own latent input was drawn with the datum seen, and few draws have it elsewhere
        sites = {name: seen._replace(pit=np.zeros(0), z=np.zeros(0)) for name, seen in sites.items()}
    processes = {name: Fact(**own, **look.notes[name]) for name, own in every["processes"].items()}
    inputs = every["inputs"]
    is_known = inputs is not None and np.ptp(inputs, axis=0).max(initial=0) == 0
    given = inputs[0] if is_known else None
    is_weighable = len(drawn) == len(whitened) and not look.has_inner
    return FitEvidence(sites, processes, every["parameters"], every["prior"], look.lower, given, is_weighable)


def _rows_to_look_at(value: Any, axes: int) -> Any:
    """A value of data at the rows that are looked at, with one axis for them, then its last ``axes``."""
    shape = jnp.shape(value)
    rows = value.reshape(-1, *shape[len(shape) - axes :])
    return rows[some_rows(rows.shape[0], ROWS)]


class _RowDensities:
    """What is kept of a model at one of ``count`` draws, and what its trace tells beside numbers."""

    def __init__(self, count: int) -> None:
        self.copies, self.has_inner, self.has_latent = -(-COPIES // count), False, False
        self.counts: dict[str, int] = {}
        self.is_normal: dict[str, bool] = {}
        self.lower: dict[str, float] = {}
        self.notes: dict[str, dict[str, Any]] = {}

    def at_draw(self, trace: Trace, calls: Calls, keys: Array) -> dict[str, Any]:
        """Everything that is kept of one draw."""
        data = data_sites(trace)
        is_point = not any(isinstance(site["value"], AbstractBelief) for site in trace.values())
        params = {name: site for name, site in trace.items() if is_hyperparameter(site)}
        roles = {role(site) for site in trace.values() if site["type"] == "sample"}
        self.has_inner, self.has_latent = bool(roles & {"noise", "function"}), "latent" in roles
        proper = {n: s for n, s in params.items() if not isinstance(unwrap(s["fn"]), dist.ImproperUniform)}
        sites = {name: self.of_site(name, site, calls, is_point, keys[0]) for name, site in data.items()}
        facts: dict[str, Any] = {}
        for f, inputs in calls:
            if isinstance(f, LocalProcess):  # it has no inducing inputs
                continue
            if f.name not in facts and (f.noise is not None or not isinstance(f.process, AbstractBelief)):
                facts[f.name] = self.of_process(f, inputs, data)
                only = len(calls) == len(data) == 1
                facts[f.name]["gap"] = _gap(f, inputs, next(iter(data.values()))) if only else jnp.nan
        self.lower |= {name: low for name, site in params.items() if (low := lower_end(site)) > 0}
        return {
            "sites": {name: kept for name, kept in sites.items() if kept is not None},
            "processes": facts,
            "parameters": {n: s["value"] for n, s in trace.items() if n in params or s["type"] == "deterministic"},
            "prior": {n: s["fn"].sample(jax.random.fold_in(keys[1], c)) for c, (n, s) in enumerate(proper.items())},
            "inputs": next((x for f, x in calls[:1] if x.ndim == 2 and x.shape[1] == f.columns), None),
        }

    def of_site(self, name: str, site: Site, calls: Calls, is_point: bool, key: Array) -> dict[str, Any] | None:
        """Moments of each datum, how probable what is below it is, and its log density; None where there are none."""
        fn, y = _plain(site["fn"]), site["value"]
        moments = left_out_moments(fn, y)
        axes, noise, term, below = 0 if moments is not None else site["fn"].event_dim, None, None, None
        rows = jnp.shape(y)[: jnp.ndim(y) - axes]
        if moments is not None:
            mean, variance = moments
            term = norm.logpdf(y, mean, jnp.sqrt(variance))
            noise = next(jnp.sqrt(jnp.mean(f.noise)) for f, _ in calls if f.name == name and f.noise is not None)
        elif isinstance(fn, Observation) and isinstance(fn.likelihood, Gaussian):
            mean, variance, noise = fn.mean, fn.variance, jnp.sqrt(jnp.mean(fn.likelihood.scale**2))
        elif isinstance(fn, dist.Normal):
            mean, variance = fn.loc, fn.scale**2
        elif (copies := _copies(site["fn"], fn, key_of(key, name), self.copies)) is None:
            return None
        else:
            mean, variance = copies.mean(axis=0), copies.var(axis=0)
            ties = jax.random.uniform(jax.random.key(0), jnp.shape(y))  # data that tie lie anywhere among their equals
            own = jnp.asarray(y)[None]
            below = jnp.mean((copies < own) + ties[None] * (copies == own), axis=0)
        self.is_normal[name] = below is None
        below = ndtr((y - mean) / jnp.sqrt(variance)) if below is None else below
        if term is None:  # what is not a point has no draws whose weights leave a datum out
            term = log_likelihood(site["fn"], y) if is_point else jnp.zeros(rows)
        self.counts[name], seen = math.prod(rows), seen_entries(site["fn"], y)
        kept = {"y": y, "seen": seen, "mean": mean, "variance": variance, "below": below}
        found = {n: _rows_to_look_at(jnp.broadcast_to(x, jnp.shape(y)), axes) for n, x in kept.items()}
        return {**found, "term": _rows_to_look_at(term, 0), "noise": noise}

    def of_process(self, f: GaussianProcess, inputs: Array, data: Trace) -> dict[str, object]:
        """The prior variance at the inputs of a call and what of it is left unexplained, and the lengthscales."""
        fn = unwrap(data[f.name]["fn"]) if f.name in data else None
        is_exact = isinstance(fn, Marginal) and not isinstance(fn, CollapsedMarginal)
        few = some_rows(inputs.shape[-2], ROWS)

        def shares(process: object, basis: AbstractBasis, rows: Array) -> Array:  # noqa: ARG001
            def at(points: Array) -> Array:
                prior = basis.diagonal(points)
                if is_exact:
                    return jnp.stack([0.0 * jnp.mean(prior), jnp.mean(prior), 0.0 * jnp.mean(prior)])
                features, root = basis.features(points), marked(basis, is_exact=True).left_by_jitter()
                left = prior - jnp.sum(features**2, axis=-2)
                parts = 0.0 * prior if root is None else jnp.sum(matmul(root.T, features) ** 2, axis=-2)
                return jnp.stack([jnp.mean(left), jnp.mean(prior), jnp.mean(parts)])

            return jax.vmap(at)(rows)

        left, prior, by_jitter = f.each(shares, inputs[..., few, :]).reshape(-1, 3).mean(axis=0)
        basis = f.basis.members if isinstance(f.basis, BatchBasis) and not f.basis.own else f.basis
        parts = distance_lengthscales(basis.kernel, tuple(range(f.columns))) if isinstance(basis, Basis) else []
        columns = tuple(column for read, _ in parts for column in read)
        self.notes[f.name] = {"size": f.basis.size, "columns": columns, "is_exact": is_exact}
        fact = {"left": left, "prior": prior, "by_jitter": by_jitter, "lengthscales": None, "extent": None}
        fact |= {"at_half": None}
        if parts and inputs.ndim == 2:
            points = terms(inputs, f.columns).points.reshape(-1, f.columns)
            extent = points.max(axis=0) - points.min(axis=0)
            fact |= {"lengthscales": jnp.concatenate([x for _, x in parts]), "extent": extent[jnp.asarray(columns)]}
            if isinstance(f.basis, Basis) and f.basis.inducing.shape == (f.basis.size, f.columns) and not is_exact:
                # Half of a lengthscale is twice the distance.
                closer, rows = Basis.build(f.basis.kernel, 2 * f.basis.inducing), 2 * inputs[few]
                fact["at_half"] = jnp.mean(closer.diagonal(rows) - jnp.sum(closer.features(rows) ** 2, axis=-2))
        return fact


def _plain(fn: dist.Distribution) -> dist.Distribution:
    """The distribution inside plates, masks and events; what censors or transforms another stays around it."""
    while isinstance(fn, (dist.ExpandedDistribution, dist.MaskedDistribution, dist.Independent)):
        fn = fn.base_dist
    return fn


def _copies(whole: dist.Distribution, fn: dist.Distribution, key: Array, count: int) -> Array | None:
    """New data from an observed site; None where draws are no such data, or there are none.

    They are what is behind censored data, and counts of cells beside the events and nodes of a pattern.
    """
    is_ours = isinstance(fn, Observation)
    if is_ours and (fn.likelihood.uncensored is not fn.likelihood or isinstance(fn.likelihood, PointPattern)):
        return None
    given = _plain(fn.likelihood.conditional(fn.mean_latent)) if is_ours else fn
    if isinstance(given, CENSORED) or type(given).sample is dist.Distribution.sample:
        return None
    return whole.sample(key, (count,))


def lower_end(site: Site) -> float:
    """The lower end of the support of a hyper-parameter, where it is a number."""
    low = getattr(_plain(site["fn"]).support, "lower_bound", None)
    value = None if low is None else known(low)
    return math.nan if value is None or value.size != 1 else float(value)


def _gap(f: GaussianProcess, inputs: Array, site: Site) -> Array | float:
    """From the collapsed bound to an upper bound of the log evidence, per datum; NaN where they do not apply.

    They do for one process whose marginals are those of the data, whatever known level they have. Of many rows they
    are ``O(N M^2)`` at each draw, and too loose to prove anything.
    """
    fn, y = unwrap(site["fn"]), site["value"]
    if f.outputs is not None or jnp.shape(y) != inputs.shape[:-1] or not 0 < inputs.shape[0] <= ROWS:
        return math.nan
    if isinstance(fn, CollapsedMarginal) and not fn.lead and isinstance(f.basis, Basis):
        data, residuals = fn.spread, (y - fn.loc) / fn.spread.scale
    elif isinstance(fn, Observation) and isinstance(fn.likelihood, Gaussian) and isinstance(f.basis, Basis):
        mean, variance = f.process.marginals(f.basis, inputs)
        data = GaussianData.build(f.basis, inputs, jnp.asarray(fn.likelihood.scale) ** 2)
        is_of_f = jnp.max(jnp.abs(fn.variance_latent - variance)) <= 1e-3 * jnp.max(f.basis.diagonal(inputs))
        residuals = jnp.where(is_of_f, (y - (fn.mean_latent - mean)) / data.scale, jnp.nan)
    else:
        return math.nan
    return (data.upper_bound(residuals) - data.optimum(residuals)[2]) / inputs.shape[0]


def distance_lengthscales(kernel: Kernel, columns: tuple[int, ...]) -> list[tuple[tuple[int, ...], Array]]:
    """Columns and lengthscales of each part of a kernel; empty if some part has none that is a distance."""
    if isinstance(kernel, Active):
        return distance_lengthscales(kernel.kernel, kernel.of_columns(columns))
    if isinstance(kernel, (Scaled, OfFunctionals)):
        return distance_lengthscales(kernel.kernel, columns)
    if isinstance(kernel, (Sum, Product)):
        parts = [distance_lengthscales(part, columns) for part in (kernel.first, kernel.second)]
        return [own for part in parts for own in part] if all(parts) else []
    if isinstance(kernel, OF_DISTANCE):
        return [(columns, jnp.broadcast_to(kernel.lengthscale, (len(columns),)))]
    return []
