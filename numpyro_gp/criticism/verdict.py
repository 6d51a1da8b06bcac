"""A verdict on a fit: what is wrong with it, the gravest first, each with the next thing to try.

Findings are looked for in one order, that of how much they spoil: chains that disagree, then noise and functions that
are wrong for a reason that is known, then data that do not look as predicted, then posteriors of the wrong shape.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs import Conditional
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.criticism.evidence import ROWS, Evidence, gather
from numpyro_gp.criticism.weights import POOR, Weights, importance_weights
from numpyro_gp.guides import AutoGP
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import Call, call_of

MOST = 10
DRAWS = 200
# Where a number becomes a fault. Shares of the prior variance and of the noise variance that inducing inputs may leave,
# nats per datum under which a bound proves that they do, and noise over the spread of the data, or over its lower end.
UNEXPLAINED, OF_NOISE, PROVEN, FLOOR, AT_END = 0.05, 0.5, 0.02, 0.01, 1.1
R_HAT, ESS_PER_CHAIN = 1.05, 100.0
# Of normal data: least skewness and excess kurtosis, and how many standard errors they must be away.
SKEWNESS, KURTOSIS, ERRORS = 0.5, 1.0, 6.0
# Correlation of neighbours, distance from uniform, and the same in units of 1 / sqrt(N).
NEIGHBOURS, DISTANCE = (0.2, 5.0), (0.05, 1.95)
# Two fits: means apart in standard deviations, spreads apart as a ratio; functions apart in those of the data.
APART, WIDER, SAME_FUNCTION = 0.75, 1.6, 0.1
# A posterior is its prior where both its median and its width are within these shares of the prior's width.
SAME_PLACE, SAME_WIDTH = 0.25, 0.8


class Finding(NamedTuple):
    """One thing that is wrong with a fit, as `verdict` finds it.

    Attributes
    ----------
    fault : str
        Its name: "R-hat", "divergences", "effective draws", "noise", "inducing inputs", "long lengthscale",
        "residuals not normal", "residuals follow the inputs", "calibration", "fits differ", "Pareto k",
        "parameters differ" or "lengthscale at its prior".
    sentence : str
    number, threshold : float
        What was found, and where it becomes a fault.
    cure : str
        The next thing to try.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> print(ngp.diagnose.Finding("R-hat", "R-hat is 1.2", 1.2, 1.05, "warm up longer"))
    R-hat is 1.2: warm up longer.
    """

    fault: str
    sentence: str
    number: float
    threshold: float
    cure: str

    def __str__(self) -> str:
        return f"{self.sentence}: {self.cure}."


class Case(NamedTuple):
    """All that findings are made of: evidence, and what else is known of a fit.

    ``weights`` are importance weights that there are already; without them those of the posterior at the call. ``cure``
    is what to try where the fit has a wrong shape, if not what follows from its guide.
    """

    evidence: Evidence
    posterior: Posterior | None = None
    call: Call | None = None
    key: Array | None = None
    other: Evidence | None = None
    weights: Weights | None = None
    cure: str | None = None


def verdict(
    posterior: Posterior,
    *data: object,
    key: Array | None = None,
    other: Posterior | None = None,
    num_samples: int = DRAWS,
    **kwargs: object,
) -> tuple[Finding, ...]:
    """What is wrong with a fit: at most ten sentences, the gravest first, each with the next thing to try.

    They are printed and returned as values; a fit without faults is said to be one, and the tuple is empty. It looks at
    what the model has numbers for: inducing inputs, lengthscales and noise of `gp` and `gp_regression`, chains of NUTS,
    the shape of a variational fit, and any observed site with draws. Data are judged with each of them left out, by
    importance weights, at 2000 rows at most. No finding is no proof: held-out data are better (`compare`), and
    `sbc` is better still.

    Parameters
    ----------
    posterior : Posterior
    *data, **kwargs
        Arguments of the model as in the fit, data included and without minibatches.
    key : PRNG key, optional
    other : Posterior, optional
        A second fit of the same model and data, as by NUTS: do their parameters and their functions agree?
    num_samples : int
        Draws of the posterior to look at. R-hat and effective sample sizes take all that are stored.

    Returns
    -------
    tuple of Finding

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.1), X[::8])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=y)
    >>> X = jnp.linspace(0.0, 1.0, 24)[:, None]
    >>> y = 0.5 * jax.random.normal(jax.random.key(1), (24,))
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": 0.3 * jax.random.normal(jax.random.key(0), (200, 3))})
    >>> [finding.fault for finding in ngp.diagnose.verdict(posterior, X, y)]
    1. The 3 inducing inputs of f leave 55 % of its prior variance at the data unexplained, and 5 % is little (the log
    evidence may be ... nats per datum higher): take as many as ngp.inducing.enough(kernel, X) says.
    ['inducing inputs']
    """
    for name, value in {"posterior": posterior, "other": posterior if other is None else other}.items():
        if not isinstance(value, Posterior):
            got, cure = f"a {type(value).__name__}", "Use Posterior.from_svi, from_mcmc or from_stein."
            fail(name, "made of ngp.Posterior", got, cure, TypeError)
    key = jax.random.key(0) if key is None else check_key("key", key)
    count, call = check_count("num_samples", num_samples), call_of(posterior.model, data, kwargs)
    second = None if other is None else gather(other, key, call_of(other.model, data, kwargs), count)
    case = Case(gather(posterior, key, call, count), posterior, call, key, second)
    found = findings(case)
    for number, finding in enumerate(found, 1):
        print(f"{number}. {finding}")
    if not found:
        if any(seen.z.size for seen in case.evidence.sites.values()):
            print("No fault was found in the chains, inducing inputs, lengthscales, noise, residuals and calibration.")
        else:
            print("No fault was found in the chains, inducing inputs and lengthscales. Such data are not judged.")
    return found


def findings(case: Case) -> tuple[Finding, ...]:
    """At most ten, the gravest first."""
    each = (list(look(case)) for look in LOOKS)
    return tuple(max(same, key=_how_far) for same in each if same)[:MOST]


def _how_far(finding: Finding) -> float:
    """How far a number is from its threshold, on either side: of several processes or sites the worst is told."""
    return abs(np.log(max(finding.number, 1e-300) / finding.threshold)) if finding.threshold else finding.number


# ------------------------------------------------------------------------------------------------ the sampler


def entries(arrays: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of some hyper-parameters, by a label: ``lengthscale[0]``; draws on the first axis."""
    for name, given in arrays.items():
        draws = np.asarray(given)
        for at in np.ndindex(draws.shape[1:]):
            yield f"{name}{list(at) or ''}", draws[(slice(None), *at)]


def _chains(case: Case) -> dict[str, np.ndarray]:
    """Chains ``(chains, draws)`` of all hyper-parameters that vary, or of whitened values where there are none."""
    if case.posterior is None or case.posterior.kind != "mcmc" or case.posterior.samples is None:
        return {}
    stored, count = case.posterior.samples, case.posterior.num_chains
    own = {name: x for name, x in stored.items() if name in case.evidence.parameters}
    found = {label: x.reshape(count, -1) for label, x in entries(own or stored) if np.ptp(x) > 0}
    return {label: x for label, x in found.items() if x.shape[1] >= 8}


def _r_hat(case: Case) -> Iterator[Finding]:
    worst = {label: float(split_gelman_rubin(x)) for label, x in _chains(case).items()}
    if worst and (largest := max(worst.values())) > R_HAT:
        where = max(worst, key=worst.__getitem__)
        text = f"R-hat of {where} is {largest:.2f}, above {R_HAT}, so the chains have not reached one distribution"
        yield Finding("R-hat", text, largest, R_HAT, "warm up longer, or start where ngp.conditioned puts the chains")


def _divergences(case: Case) -> Iterator[Finding]:
    known = {} if case.posterior is None else case.posterior.extra_fields
    diverged = np.asarray(known.get("diverging", ()), bool).ravel()
    if not diverged.any():
        return
    shares = {}
    for label, draws in _chains(case).items():
        if 0 < (count := diverged.sum()) < diverged.size == draws.size:
            ranks = draws.ravel().argsort().argsort() / draws.size
            shares[label] = (ranks[diverged].mean() - 0.5) * np.sqrt(
                12 * count
            )  # in standard errors of a mean of ranks
    where = max(shares, key=lambda label: abs(shares[label]), default=None)
    text = f"{diverged.sum()} of {diverged.size} draws diverged"
    if where is not None and abs(shares[where]) > 3:
        text += f", most of them where {where} is {'small' if shares[where] < 0 else 'large'}"
    cure = "raise target_accept_prob to 0.95, or give that parameter a prior that excludes such values"
    yield Finding("divergences", text, float(diverged.sum()), 0.0, cure)


def _effective_draws(case: Case) -> Iterator[Finding]:
    sizes = {label: float(effective_sample_size(x)) for label, x in _chains(case).items()}
    wanted = 0.0 if case.posterior is None else ESS_PER_CHAIN * case.posterior.num_chains
    if sizes and (least := min(sizes.values())) < wanted:
        where = min(sizes, key=sizes.__getitem__)
        text = f"The chains hold {least:.0f} independent draws of {where}, and {wanted:.0f} are needed"
        yield Finding("effective draws", text, least, wanted, "run them longer, or sample ngp.conditioned(model, ...)")


# -------------------------------------------------------------------------------------------- noise and functions


def _noise(case: Case) -> Iterator[Finding]:
    for name, seen in case.evidence.sites.items():
        if seen.noise is None or not seen.y.size:
            continue
        middle = np.subtract(*np.quantile(seen.y, [0.75, 0.25])) / 1.349  # outliers do not make noise look small
        ratio = float(seen.noise.mean() / max(middle or seen.y.std(), 1e-300))
        end = _lower_end(case, seen.noise)
        cure = "look for rows that repeat or a lengthscale that is too short, or give the noise a prior"
        if ratio < FLOOR:
            text = f"The noise of {name} is {ratio:.1e} of the spread of the data, and the function passes through all"
            yield Finding("noise", text, ratio, FLOOR, cure)
        elif end and (ratio := float(seen.noise.mean() / end)) < AT_END:
            text = f"The noise of {name} is {ratio:.3f} times {end:.3g}, the least that its prior allows"
            yield Finding("noise", text, ratio, AT_END, "let the prior go lower, and see whether the fit changes")


def _lower_end(case: Case, noise: np.ndarray) -> float:
    """The lower end of the prior of the hyper-parameter that a noise is, as a standard deviation; 0 without one."""
    for name, low in case.evidence.lower.items():
        for power in (1.0, 0.5):
            draws = case.evidence.parameters[name]
            if draws.shape == noise.shape and np.allclose(np.abs(draws) ** power, noise, rtol=1e-4):
                return float(low**power)
    return 0.0


def _inducing(case: Case) -> Iterator[Finding]:
    noises = [seen.noise.mean() ** 2 for seen in case.evidence.sites.values() if seen.noise is not None]
    for name, fact in case.evidence.processes.items():
        gap, share = float(fact.gap.mean()), float(fact.left.mean() / fact.prior.mean())
        noise = noises[0] if len(noises) == len(case.evidence.sites) == len(case.evidence.processes) == 1 else np.inf
        threshold = min(UNEXPLAINED, OF_NOISE * float(noise / fact.prior.mean()))
        if share > threshold and not gap < PROVEN:
            text = f"The {fact.size} inducing inputs of {name} leave {100 * share:.2g} % of its prior variance at the "
            text += f"data unexplained, and {100 * threshold:.2g} % is little"
            text += f" (the log evidence may be {gap:.2g} nats per datum higher)" if np.isfinite(gap) else ""
            cure = "take as many as ngp.inducing.enough(kernel, X) says"
            yield Finding("inducing inputs", text, share, threshold, cure)


def _long_lengthscale(case: Case) -> Iterator[Finding]:
    for name, fact in case.evidence.processes.items():
        if fact.lengthscales is None or fact.extent is None or np.ptp(fact.extent, axis=0).max() > 0:
            continue
        ratio = float((fact.lengthscales.mean(axis=0) / np.maximum(fact.extent[0], 1e-300)).min())
        if ratio > 1.0:
            text = f"The lengthscales of {name} are at least {ratio:.1f} times the data's extent, so it is nearly flat"
            cure = "start from a shorter one, try other columns, or take a linear mean and a prior in the data's units"
            yield Finding("long lengthscale", text, ratio, 1.0, cure)


# ------------------------------------------------------------------------------------------------ the data


def _not_normal(case: Case) -> Iterator[Finding]:
    for name, seen in case.evidence.sites.items():
        if not seen.is_normal or (count := seen.z.size) < 20:
            continue
        z = (seen.z - seen.z.mean()) / seen.z.std()
        skewness, kurtosis = float((z**3).mean()), float((z**4).mean()) - 3
        limits = max(SKEWNESS, ERRORS * np.sqrt(6 / count)), max(KURTOSIS, ERRORS * np.sqrt(24 / count))
        number, limit = max((abs(skewness), limits[0]), (kurtosis, limits[1]), key=lambda pair: pair[0] / pair[1])
        if number > limit:
            text = (
                f"Residuals of {name} are not normal, with skewness {skewness:.1f} and excess kurtosis {kurtosis:.1f}"
            )
            cure = "try ngp.likelihoods.StudentT for outliers, or a transformation of skewed data"
            yield Finding("residuals not normal", text, number, float(limit), cure)


def _follow(case: Case) -> Iterator[Finding]:
    for name, seen in case.evidence.sites.items():
        X = case.evidence.inputs
        if X is None or len(X) != seen.num_rows or not 20 <= seen.z.size <= ROWS:  # rows of outputs are not looked at
            continue
        points = X[seen.rows] / np.maximum(X.std(axis=0), 1e-300)
        squares = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=-1)
        np.fill_diagonal(squares, np.inf)
        ranks = np.clip(seen.z, -3, 3)  # no single row makes a correlation
        with np.errstate(invalid="ignore"):  # of equal numbers there is no correlation
            found = float(np.corrcoef(ranks, ranks[squares.argmin(axis=1)])[0, 1])
        if found > (least := max(NEIGHBOURS[0], NEIGHBOURS[1] / np.sqrt(len(ranks)))):
            text = f"Residuals of {name} at neighbouring inputs are correlated, {found:.2f}, so there is more to learn"
            cure = "take more inducing inputs, a shorter lengthscale or a rougher kernel, or train longer"
            yield Finding("residuals follow the inputs", text, found, least, cure)


def _from_uniform(pit: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance, as of `metrics.pit_uniformity`, without a program for each number of data."""
    steps = np.arange(pit.size + 1) / pit.size
    return float(max((steps[1:] - np.sort(pit)).max(), (np.sort(pit) - steps[:-1]).max()))


def _calibration(case: Case) -> Iterator[Finding]:
    for name, seen in case.evidence.sites.items():
        if seen.pit.size < 20:
            continue
        found = max(_from_uniform(own) for own in (seen.pit, np.abs(2 * seen.pit - 1)))
        inside = float(np.mean(np.abs(seen.pit - 0.5) < 0.45))
        if found > (limit := max(DISTANCE[0], DISTANCE[1] / np.sqrt(seen.pit.size))):
            text = f"Data at {name} do not fall where the fit says, and intervals of 90 % hold {100 * inside:.0f} %"
            cure = "try a likelihood with another spread, as NegativeBinomial for counts, or noise that varies with X"
            yield Finding("calibration", text, found, float(limit), cure)


# ------------------------------------------------------------------------------------------------ the posterior


def _function_apart(case: Case) -> float:
    """How far the predicted means of two fits are apart, in standard deviations of new data."""
    assert case.other is not None
    common = [name for name in case.evidence.sites if name in case.other.sites]
    pairs = [(case.evidence.sites[name], case.other.sites[name]) for name in common]
    gaps = [np.sqrt(np.mean(((a.level - b.level) / np.maximum(b.spread, 1e-300)) ** 2)) for a, b in pairs]
    return float(max(gaps, default=np.nan))


def _fits_differ(case: Case) -> Iterator[Finding]:
    if case.other is not None and (apart := _function_apart(case)) > SAME_FUNCTION:
        text = f"The two fits predict means that are {apart:.2f} standard deviations of the data apart"
        cure = "train longer with more inducing inputs, and look whether a chain has found another mode"
        yield Finding("fits differ", text, apart, SAME_FUNCTION, cure)


def _weights_of(case: Case) -> Weights | None:
    """Importance weights of a variational fit, where it has some."""
    if case.weights is not None or case.posterior is None or case.call is None or case.key is None:
        return case.weights
    if case.posterior.guide is None or not case.evidence.is_weighable or not case.posterior.source.is_random:
        return None
    call = case.call.at(case.call.arrays)
    return importance_weights(case.posterior, case.key, *call.args, **call.kwargs)


def _is_conditional(case: Case) -> bool:
    """Whether all beliefs of a fit follow the hyper-parameters already."""
    guide, source = None if case.posterior is None else case.posterior.guide, getattr(case.posterior, "source", None)
    if not isinstance(guide, AutoGP) or source is None:
        return False
    shapes = jax.eval_shape(lambda params: guide.beliefs(params), dict(source.params))
    return bool(shapes) and all(isinstance(belief, Conditional) for belief in shapes.values())


def _pareto(case: Case) -> Iterator[Finding]:
    found = _weights_of(case)
    if found is not None and found.pareto_k > POOR:
        text = f"Pareto k of the importance weights is {found.pareto_k:.2f}, above {POOR}, so the fit has a wrong shape"
        cure = "train longer, by natural steps, or take guides.conditional() for uncertain hyper-parameters, or NUTS"
        if case.cure is not None:
            cure = case.cure
        elif _is_conditional(case):
            cure = "train longer, by natural steps, or sample it by NUTS where ngp.conditioned puts the chains"
        yield Finding("Pareto k", text, found.pareto_k, POOR, cure)


def _parameters_differ(case: Case) -> Iterator[Finding]:
    if case.other is None or not _function_apart(case) <= SAME_FUNCTION:
        return
    worst = ("", 0.0, np.zeros(1), np.zeros(1))
    theirs = dict(entries(case.other.parameters))
    for label, a in entries(case.evidence.parameters):
        if label in theirs and (b := theirs[label]).std() > 0:
            ratio = max(a.std() / b.std(), b.std() / max(a.std(), 1e-300))
            score = max(abs(a.mean() - b.mean()) / b.std() / APART, np.log(ratio) / np.log(WIDER))
            worst = max(worst, (label, float(score), a, b), key=lambda one: one[1])
    label, score, a, b = worst
    if score > 1:
        text = f"{label} is {a.mean():.2f} ± {a.std():.2f} here and {b.mean():.2f} ± {b.std():.2f} in the other fit, "
        text += "and the functions agree"
        cure = "trust the predictions and not this parameter's spread"
        cure += "" if _is_conditional(case) else ", or fit it by guides.conditional()"
        yield Finding("parameters differ", text, score, 1.0, cure)


def _at_prior(case: Case) -> Iterator[Finding]:
    prior = dict(entries(case.evidence.prior))
    scales = [fact.lengthscales for fact in case.evidence.processes.values() if fact.lengthscales is not None]
    for label, draws in entries(case.evidence.parameters):
        is_scale = any(np.isclose(draws[:, None], own, rtol=1e-4).all(axis=0).any() for own in scales)
        if label not in prior or not is_scale or np.ptp(draws) == 0:
            continue
        (low, middle, high), (prior_low, prior_middle, prior_high) = (
            np.quantile(np.log(own), [0.25, 0.5, 0.75]) for own in (draws, prior[label])
        )
        width = (high - low) / (prior_high - prior_low)
        if width > SAME_WIDTH and abs(middle - prior_middle) < SAME_PLACE * (prior_high - prior_low):
            text = f"The posterior of {label} is {100 * width:.0f} % as wide as its prior and in the same place"
            cure = "take its prior from what is known of the data, for they say nothing about it"
            yield Finding("lengthscale at its prior", text, float(width), SAME_WIDTH, cure)


LOOKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _r_hat,
    _divergences,
    _effective_draws,
    _noise,
    _inducing,
    _long_lengthscale,
    _not_normal,
    _follow,
    _calibration,
    _fits_differ,
    _pareto,
    _parameters_differ,
    _at_prior,
)
