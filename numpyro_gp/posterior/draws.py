"""Draws at the data a model was fitted to: latent values, pointwise log likelihoods and replicated data.

Which density leaving one out needs is in mathematics.md section 11.2.
"""

from collections.abc import Container, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.stats import norm

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.guides.other_sites import data_plates
from numpyro_gp.linalg import factorise, matmul
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.sources import Source
from numpyro_gp.posterior.tracing import Fitted
from numpyro_gp.primitives.lines.line_process import GivenLine
from numpyro_gp.primitives.neighbours.local_process import SeenProcesses
from numpyro_gp.primitives.neighbours.row_sites import GivenNeighbours
from numpyro_gp.primitives.observe import shifted
from numpyro_gp.primitives.opening import Plates, basis_under
from numpyro_gp.primitives.regression import CollapsedMarginal, Marginal
from numpyro_gp.programs.compiled import run, run_quickly
from numpyro_gp.programs.private import mask_of
from numpyro_gp.rows.call import Arguments, Call, is_data
from numpyro_gp.sites import Observation, Site, Trace, is_latent, role, unwrap


class TrainingDraws(NamedTuple):
    """What `training_draws` found, by site; draws on the first axis (not of the last four).

    Data that a mask hides are left out of all but ``latent``: the data of such a site are in one row, ``rows`` says
    where each stood, and single outputs that are hidden are NaN in ``observed``. ``arguments`` are the names of the
    model's arguments that are observed.
    """

    latent: dict[str, Array]
    log_likelihood: dict[str, Array]
    replicated: dict[str, Array]
    observed: dict[str, Array]
    dims: dict[str, list[str]]
    rows: dict[str, np.ndarray]
    arguments: tuple[str, ...]

    def terms(self) -> dict[str, Array]:
        """Log likelihoods with the axes of the data that they have terms for: outputs of one datum are one term."""
        terms = dict(self.log_likelihood)
        for name, each in terms.items():
            shape = self.observed[name].shape
            if each.shape[1:] != shape[: each.ndim - 1]:
                terms[name] = jnp.broadcast_to(each, each.shape[:1] + shape)
        return terms


def stored_index(posterior: Fitted, num_samples: int | None) -> np.ndarray:
    """Indices of the draws that are asked for at the data of a fit; a guide makes as many as one wants."""
    if num_samples is not None:
        check_count("num_samples", num_samples)
    if (available := posterior.num_draws) is None:
        return np.arange(num_samples or 1000)
    # As many and the same ones of each chain, spread evenly.
    chains, count = posterior.num_chains, min(num_samples or available, available)
    each = np.round(np.linspace(0, available // chains - 1, max(1, count // chains))).astype(int)
    return (np.arange(chains)[:, None] * (available // chains) + each).ravel()


def draws_at_data(
    posterior: Fitted, key: Array, call: Call, num_samples: int | None, is_whole: bool = True
) -> tracing.Draw:
    """Draws for the data of a fit; refuse a posterior that is not of its model, sites of single data too if whole."""
    key = check_key("key", key)
    tracing.plates_at(posterior, call, (lambda _: None) if is_whole else data_plates)
    return tracing.draws_of(key, stored_index(posterior, num_samples))


def training_draws(posterior: Fitted, draws: tracing.Draw, call: Call) -> TrainingDraws:
    """Run the model at posterior draws and at the data of ``call``.

    Parameters
    ----------
    posterior : Posterior
    draws : keys (S,) and indices (S,)
    call : Call
        Arguments of the model, data included.
    """
    sites: dict[str, Site] = {}

    def trace_at(own: Fitted, draw: tracing.Draw, arrays: list[Array], drawn: Container[str]) -> Trace:
        sites.update(belief_trace(own, draw, call.at(arrays), drawn))
        return dict(sites)

    def one(own: Fitted, draw: tracing.Draw, arrays: list[Array]) -> tuple[dict[str, Array], ...]:
        trace = trace_at(own, draw, arrays, drawn)
        is_point = not any(isinstance(s["value"], AbstractBelief) for s in trace.values())
        key = jax.random.fold_in(draw[0], 3)
        seen = data_sites(trace)
        keys = {name: tracing.key_of(key, name) for name in seen}  # the noise of one site is not that of another
        terms = {n: log_likelihood(s["fn"], s["value"], None if is_point else keys[n]) for n, s in seen.items()}
        values = {n: s for n, s in trace.items() if s["type"] == "deterministic" or is_latent(s)}
        latent = {n: s["value"] for n, s in values.items() if not isinstance(s["value"], AbstractBelief)}
        # Draws of marginal likelihoods are no new data given the posterior.
        new = {
            n: s["fn"]
            for n, s in seen.items()
            if not isinstance(unwrap(s["fn"]), (Marginal, GivenNeighbours, GivenLine))
        }
        copies = {n: fn.sample(jax.random.fold_in(keys[n], 1)) for n, fn in new.items()}
        return latent, terms, copies

    def data(source: Source, draw: tracing.Draw, arrays: list[Array]) -> tuple[dict[str, Array], ...]:
        trace = trace_at(posterior.at(source), draw, arrays, ())
        seen = data_sites(trace)
        values = {name: site["value"] for name, site in seen.items()}
        entries = {name: seen_entries(site["fn"], site["value"]) for name, site in seen.items()}
        return values, entries, are_whitened(trace)

    first = jax.tree.map(lambda leaf: leaf[0], draws)
    observed, seen, found = run(data, posterior.source, first, call.arrays)
    drawn = {name for name, is_whitened in found.items() if is_whitened}
    check_full(sites)
    latent, terms, copies = tracing.at_each_draw(one, posterior, draws, call.arrays)
    dims = {name: _dimensions(site) for name, site in sites.items() if name in latent or name in observed}
    arguments = []
    for name, given in call.arguments.items():
        for y in observed.values() if is_data(given) else ():
            if np.shape(given) == y.shape and np.array_equal(np.asarray(given).astype(y.dtype), y):  # in its precision
                arguments.append(name)
                break
    return _without_hidden(TrainingDraws(latent, terms, copies, observed, dims, {}, tuple(arguments)), seen)


def data_sites(trace: Trace) -> dict[str, Site]:
    """Observed sites, but for the terms of `numpyro.factor` and `ngp.recall`, which are no data."""
    observed = {n: site for n, site in trace.items() if site["type"] == "sample" and site["is_observed"]}
    return {name: site for name, site in observed.items() if not isinstance(unwrap(site["fn"]), dist.Unit)}


def seen_entries(fn: object, value: Array) -> Array:
    """Which entries of an observed value no mask hides, in its shape."""
    mask = jnp.asarray(mask_of(fn))
    mask = jnp.broadcast_to(mask.reshape(mask.shape + (1,) * fn.event_dim), jnp.shape(value))
    single = getattr(unwrap(fn), "seen", None)
    return mask if single is None else mask & single


def _without_hidden(found: TrainingDraws, seen: Mapping[str, Array]) -> TrainingDraws:
    """Leave out what masks hide: it is no data, and its terms would count in averages over data."""
    for name, entries in seen.items():
        if np.all(entries):
            continue
        axes = found.log_likelihood[name].ndim - 1 if name in found.log_likelihood else entries.ndim
        keep = np.asarray(entries).any(axis=tuple(range(axes, entries.ndim)))
        value = found.observed.pop(name)
        value = value if entries.ndim == axes else jnp.where(entries, value, jnp.nan)
        for group in (found.log_likelihood, found.replicated):
            if name in group:
                group[name] = group[name][:, keep]
        found.observed[name] = value[keep]
        found.dims[name][:axes] = [f"{name}_seen"]
        found.rows[name] = np.flatnonzero(keep)
        for group in (found.log_likelihood, found.replicated, found.observed) if not keep.any() else ():
            group.pop(name, None)
    return found


class GlobalDraws(dict[str, Array]):
    """Draws by site; one that is asked for a site in a plate says where its draws are."""

    def __init__(self, draws: Mapping[str, Array], inside: Container[str]) -> None:
        super().__init__(draws)
        self.inside = inside

    def __missing__(self, name: str) -> NoReturn:
        cure = "Take posterior.draws(key, *args).latent, which has draws of sites in plates and of processes."
        got = f"{name!r}, which is in a plate" if name in self.inside else repr(name)
        fail("the site", f"one outside every plate, of {sorted(self)}", got, cure, KeyError)


jax.tree_util.register_pytree_node(
    GlobalDraws,
    lambda own: ([own[name] for name in sorted(own)], (sorted(own), own.inside)),
    lambda names, leaves: GlobalDraws(dict(zip(names[0], leaves, strict=True)), names[1]),
)


def is_hyperparameter(site: Site) -> bool:
    """Whether a site is the user's own, latent, and outside every plate."""
    return is_latent(site) and role(site) is None and not site["cond_indep_stack"]


def belief_trace(
    posterior: Fitted,
    draw: tracing.Draw,
    call: Arguments,
    drawn: Container[str] = (),
    around: AbstractContextManager[object] = nullcontext(),  # noqa: B008
) -> Trace:
    """Trace of the model at one draw, with points at the GP sites ``drawn`` and beliefs at the others.

    The model, and not the guide, which may run it too, runs inside of ``around``.
    """
    key_values, key_points, key_model = jax.random.split(draw[0], 3)
    values = posterior.source.training_values(key_values, draw[1], call)
    with around:
        return tracing.run_model(posterior.fitted_model, PointsAt(values, key_points, drawn), key_model, call)


def are_whitened(trace: Trace) -> dict[str, Array]:
    """Whether the belief of each GP site is no more than a distribution of the whitened values."""
    no = jnp.zeros((), bool)
    beliefs = {n: s for n, s in trace.items() if s["type"] == "sample" and isinstance(s["value"], AbstractBelief)}
    return {
        n: no if isinstance(s["value"], PseudoRows) else s["value"].is_whitened(unwrap(s["fn"]).basis_of(s["value"]))
        for n, s in beliefs.items()
    }


def whitened_sites(posterior: Fitted, draw: tracing.Draw, call: Call) -> dict[str, Array]:
    """`are_whitened` of a posterior, as one program."""

    def first(source: Source, draw: tracing.Draw, arrays: list[Array]) -> dict[str, Array]:
        return are_whitened(belief_trace(posterior.at(source), draw, call.at(arrays)))

    return run_quickly(first, posterior.source, draw, call.arrays)


class PointsAt(tracing.SiteValues):
    """Values at the data of the fit, with points drawn from the beliefs of the sites ``drawn``.

    Beliefs are drawn where they stand, because their whitened values may follow from the site's basis alone.
    """

    def __init__(self, values: Mapping[str, object], key: Array, drawn: Container[str]) -> None:
        super().__init__(values)
        self.key, self.drawn = key, drawn

    def __call__(self, site: Site) -> object:
        name, value = site["name"], super().__call__(site)
        if name not in self.drawn or value is None:
            return value
        key = jax.random.fold_in(self.key, list(self.values).index(name))
        return value.draw_whitened(key, (), basis_under(value, unwrap(site["fn"]), Plates.of(site["cond_indep_stack"])))


def log_likelihood(fn: object, y: Array, key: Array | None = None) -> Array:
    """``log p(y_n | draw)`` of each datum, on the true predictive density and not on the bound.

    With points at the GP sites it is ``log E_{p(f_n | v)} p(y_n | f_n)``. With a decoupled belief, whose
    function is not fixed by ``v``, it is ``log p(y_n | f_n)`` at ``f_n ~ q(f_n)`` drawn with ``key``. For
    exact `gp_regression`, and by neighbours, it is ``log p(y_n | y_-n, draw)``: the data are not independent given
    hyper-parameters, and this is the density that makes PSIS-LOO right; so it is of pseudo-data by neighbours. With
    ``inducing=`` it is that of the process which the inducing points leave.
    """
    inner = unwrap(fn)
    if (moments := left_out_moments(inner, y)) is not None:
        return norm.logpdf(y, moments[0], jnp.sqrt(moments[1]))
    if not isinstance(inner, Observation):
        return fn.log_prob(y)
    if isinstance(seen := inner.seen_of, SeenProcesses) and (left_out := seen.left_out()) is not None:
        f = left_out if seen.offset is None else shifted(seen.name, left_out, seen.offset, inner.likelihood)
        terms = Observation(f, inner.likelihood).predictive_log_prob(y)
    elif key is None:
        terms = inner.predictive_log_prob(y)
    else:
        replicates = (None,) * (jnp.ndim(y) - len(inner.batch_shape) - inner.event_dim)
        terms = inner.log_prob_at(y, inner.draw_latent(key)[replicates])
    return jnp.where(mask_of(fn), terms, 0.0)


def left_out_moments(fn: object, y: Array) -> tuple[Array, Array] | None:
    """Mean and variance of each datum of a marginal likelihood given all others; None of other distributions."""
    if isinstance(fn, (GivenNeighbours, GivenLine)):
        return fn.left_out(y)
    if isinstance(fn, Marginal):
        found: tuple[Array, Array] = fn.each(
            collapsed_left_out if isinstance(fn, CollapsedMarginal) else normal_left_out, y
        )
        return found
    return None


def normal_left_out(loc: Array, covariance: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance of ``y_n`` given all other data, for ``y ~ N(loc, K)``.

    ``mu_n = y_n - [K^-1 (y - loc)]_n / [K^-1]_nn`` and ``s_n = 1 / [K^-1]_nn`` (Rasmussen & Williams
    2006, equation 5.12).
    """
    inverse_factor = factorise(covariance)[1]
    precision = jnp.sum(inverse_factor**2, axis=0)
    return y - matmul(inverse_factor.T, matmul(inverse_factor, y - loc)) / precision, 1.0 / precision


def collapsed_left_out(loc: Array, data: GaussianData, y: Array) -> tuple[Array, Array]:
    """The same under the model of the collapsed bound, ``K = Q + noise``, with what inducing points leave at ``n``."""
    mean, variance = data.leave_one_out((y - loc) / data.scale)
    return loc + data.scale * mean, data.scale**2 * variance


def check_full(sites: Trace) -> None:
    """Refuse a minibatch, and a call without the data."""
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][0] != site["args"][1] and site["args"][1] is not None:
            got = f"{site['args'][1]} of {site['args'][0]} rows"
            fail(f"plate {name!r}", "over all data", got, "Call it without a minibatch: batch=None.")
        if site["type"] == "sample" and isinstance(unwrap(site["fn"]), Observation) and not site["is_observed"]:
            cure = "Pass the arguments of the fit, y included."
            fail(f"site {name!r}", "observed: draws are made at the data of the fit", "a call without data", cure)


def _dimensions(site: Site) -> list[str]:
    """Names of the axes of a site's value: plates, inducing points, and numbers for the others."""
    name, shape = site["name"], jnp.shape(site["value"])
    names = [f"{name}_dim_{axis}" for axis in range(len(shape))]
    if site["type"] != "sample":
        return names
    event = len(site["fn"].event_shape)
    for frame in site["cond_indep_stack"]:
        axis = len(shape) - event + frame.dim
        if 0 <= axis < len(shape) and shape[axis] == frame.size:
            names[axis] = frame.name
    if site["infer"].get("numpyro_gp") == "gp":
        names[-1] = f"{name}_inducing"
        names[-2:-1] = [f"{name}_output"] if event == 2 else names[-2:-1]
    return names
