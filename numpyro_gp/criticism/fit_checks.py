"""Looks at chains, noise, functions and data: each yields what is wrong there, with the next thing to try."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from numpyro_gp.arrays import Array
from numpyro_gp.criticism.evidence import FitEvidence
from numpyro_gp.criticism.leave_one_out import ROWS
from numpyro_gp.neighbours.search import nearest
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import Call

# Particles whose spread is a smaller part of the posterior's are told. A few under one distance have not all of it in
# more than some ten coordinates, and their predictions are still those of a mean.
NARROW_SPREAD = 0.3
WIDER = "take ngp.stein.auto, whose kernels keep the spread in its coordinates, or NUTS"

# --------------------------------------------------------------------------------------
# What is wrong with a fit, as a value, and what a look at a fit may see.


class Finding(NamedTuple):
    """One thing that is wrong with a fit, as `verdict` finds it.

    Attributes
    ----------
    fault : str
        Its name: "R-hat", "divergences", "stranded particles", "narrow particles", "no numbers", "effective draws",
        "noise", "inducing inputs", "jitter", "neighbours", "repeated rows", "long lengthscale", "residuals not
        normal", "residuals follow the inputs", "calibration", "fits differ", "Pareto k", "importance weights",
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
    """All that findings are made of: evidence, and what else is known of a fit."""

    evidence: FitEvidence
    posterior: Posterior | None = None
    call: Call | None = None
    key: Array | None = None
    other: FitEvidence | None = None


def entries(arrays: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of some hyper-parameters, by a label: ``lengthscale[0]``; draws on the first axis."""
    for name, given in arrays.items():
        draws = np.asarray(given)
        for at in np.ndindex(draws.shape[1:]):
            yield f"{name}{list(at) or ''}", draws[(slice(None), *at)]


# Where a number becomes a fault. Shares of the prior variance and of the noise variance that inducing inputs may leave,
# nats per datum under which a bound proves that they do, and noise over the spread of the data, or over its lower end.
UNEXPLAINED, OF_NOISE, PROVEN, FLOOR, AT_END = 0.05, 0.5, 0.02, 0.01, 1.1
# Share of the prior variance above which inducing inputs may be what residuals are due to.
OPEN = 0.01
# The same at half the lengthscale, above which they keep it long.
HALF = 0.05
R_HAT, ESS_PER_CHAIN = 1.05, 100.0
# What else helps chains that have not met, by the coordinates that they run in.
BESIDE = {
    "plain": "start where ngp.conditioned puts the chains",
    "conditioned": "condition on a fit of more steps",
    "none": "give the hyper-parameters priors that exclude other modes",
}
# Of normal data: least skewness and excess kurtosis, and how many standard errors they must be away.
SKEWNESS, KURTOSIS, ERRORS = 0.5, 1.0, 6.0
# Correlation of neighbours, distance from uniform, and the same in units of 1 / sqrt(N).
NEIGHBOURS, DISTANCE = (0.2, 5.0), (0.05, 1.95)


# ------------------------------------------------------------------------------------------------ the sampler


def _chains(case: Case) -> dict[str, np.ndarray]:
    """Chains ``(chains, draws)`` of all hyper-parameters that vary, or of whitened values where there are none."""
    if case.posterior is None or case.posterior.kind != "mcmc" or case.posterior.samples is None:
        return {}
    stored, count = case.posterior.samples, case.posterior.num_chains
    own = {name: x for name, x in stored.items() if name in case.evidence.parameters}
    found = {label: x.reshape(count, -1) for label, x in entries(own or stored) if np.ptp(x) > 0}
    return {label: x for label, x in found.items() if x.shape[1] >= 8}


def r_hat(case: Case) -> Iterator[Finding]:
    """Chains that have not reached one distribution."""
    worst = {label: float(split_gelman_rubin(x)) for label, x in _chains(case).items()}
    if worst and (largest := max(worst.values())) > R_HAT:
        where = max(worst, key=worst.__getitem__)
        text = f"R-hat of {where} is {largest:.2f}, above {R_HAT}, so the chains have not reached one distribution"
        yield Finding("R-hat", text, largest, R_HAT, f"warm up longer, or {BESIDE[_chain_coordinates(case)]}")


def _chain_coordinates(case: Case) -> str:
    """Of chains: "plain" where they hold a process as the model has it, "conditioned" on a fit, and "none" without."""
    stored = {} if case.posterior is None or case.posterior.samples is None else case.posterior.samples
    if any(f"{name}_conditioned" in stored for name in case.evidence.processes):
        return "conditioned"
    return "plain" if any(name in stored for name in case.evidence.processes) else "none"


def divergences(case: Case) -> Iterator[Finding]:
    """Draws that diverged, and where."""
    known = {} if case.posterior is None else case.posterior.extra_fields
    diverged = np.asarray(known.get("diverging", ()), bool).ravel()
    if not diverged.any():
        return
    shares = {}
    for label, draws in _chains(case).items():
        if 0 < (count := diverged.sum()) < diverged.size == draws.size:
            away = (draws.ravel().argsort().argsort() / draws.size)[diverged].mean() - 0.5
            shares[label] = away * np.sqrt(12 * count)  # in standard errors of a mean of ranks
    where = max(shares, key=lambda label: abs(shares[label]), default=None)
    text = f"{diverged.sum()} of {diverged.size} draws diverged"
    if where is not None and abs(shares[where]) > 3:
        text += f", most of them where {where} is {'small' if shares[where] < 0 else 'large'}"
    cure = "raise target_accept_prob to 0.95, or give that parameter a prior that excludes such values"
    yield Finding("divergences", text, float(diverged.sum()), 0.0, cure)


def stranded(case: Case) -> Iterator[Finding]:
    """Particles far below the others, as the fit found them."""
    known = {} if case.posterior is None else case.posterior.extra_fields
    far = np.flatnonzero(np.asarray(known.get("stranded", ()), bool))
    if far.size:
        count = np.size(known["stranded"])
        text = f"{far.size} of {count} particles are stranded far below the others: {far.tolist()}"
        cure = "start near the posterior with ngp.stein.auto, or weigh the particles with ngp.stein.weights"
        yield Finding("stranded particles", text, float(far.size), 0.0, cure)


def narrow(case: Case) -> Iterator[Finding]:
    """Particles all of which lie much closer to each other than draws, as the fit found them."""
    known = {} if case.posterior is None else case.posterior.extra_fields
    if np.size(spread := known.get("spread", ())) and (share := float(np.ravel(spread)[0])) < NARROW_SPREAD:
        text = f"The particles lie within {100 * share:.0f} % of the posterior's standard deviations"
        yield Finding("narrow particles", text, share, NARROW_SPREAD, WIDER)


def no_numbers(case: Case) -> Iterator[Finding]:
    """Data that are no number under some of the draws, so that nothing is known of them."""
    for name, seen in case.evidence.sites.items():
        if bad := int(np.isnan(seen.z).sum()):
            text = f"Predictions of {name} without the datum itself are no numbers at {bad} of {seen.z.size} data, so "
            text += "that these are not judged"
            cure = "give noise and lengthscales priors that exclude values with which a covariance has no factor"
            if seen.level.dtype == np.float32:
                cure = "use float64, by jax.config.update('jax_enable_x64', True) before the first array is made"
            yield Finding("no numbers", text, float(bad), 0.0, cure)


def effective_draws(case: Case) -> Iterator[Finding]:
    """Chains with too few independent draws."""
    sizes = {label: float(effective_sample_size(x)) for label, x in _chains(case).items()}
    wanted = 0.0 if case.posterior is None else ESS_PER_CHAIN * case.posterior.num_chains
    if sizes and (least := min(sizes.values())) < wanted:
        where = min(sizes, key=sizes.__getitem__)
        text = f"The chains hold {least:.0f} independent draws of {where}, and {wanted:.0f} are needed"
        other = ", or sample ngp.conditioned(model, ...)" if _chain_coordinates(case) == "plain" else ""
        yield Finding("effective draws", text, least, wanted, f"run them longer{other}")


# -------------------------------------------------------------------------------------------- noise and functions


def noise(case: Case) -> Iterator[Finding]:
    """Noise that is far below the spread of the data, or at the lower end of its prior."""
    for name, seen in case.evidence.sites.items():
        if seen.noise is None or not seen.y.size:
            continue
        middle = np.subtract(*np.quantile(seen.y, [0.75, 0.25])) / 1.349  # outliers do not make noise look small
        ratio = float(seen.noise.mean()) / max(float(middle or seen.y.std()), 1e-300)
        # The lower end of the prior of the hyper-parameter that the noise is, as a standard deviation.
        ends = (
            low**power
            for label, low in case.evidence.lower.items()
            for power in (1.0, 0.5)
            if (draws := case.evidence.parameters[label]).shape == seen.noise.shape
            and np.allclose(np.abs(draws) ** power, seen.noise, rtol=1e-4)
        )
        end = next(ends, 0.0)
        cure = "look for rows that repeat or a lengthscale that is too short, or give the noise a prior"
        if ratio < FLOOR:
            text = f"The noise of {name} is {ratio:.1e} of the spread of the data, and the function passes through all"
            yield Finding("noise", text, ratio, FLOOR, cure)
        elif end and (ratio := float(seen.noise.mean() / end)) < AT_END:
            text = f"The noise of {name} is {ratio:.3f} times {end:.3g}, the least that its prior allows"
            yield Finding("noise", text, ratio, AT_END, "let the prior go lower, and see whether the fit changes")


def inducing(case: Case) -> Iterator[Finding]:
    """Inducing inputs that leave prior variance unexplained."""
    noises = [seen.noise.mean() ** 2 for seen in case.evidence.sites.values() if seen.noise is not None]
    for name, fact in case.evidence.processes.items():
        gap, share = float(fact.gap.mean()), float(fact.left.mean() / fact.prior.mean())
        noise = noises[0] if len(noises) == len(case.evidence.sites) == len(case.evidence.processes) == 1 else np.inf
        threshold = min(UNEXPLAINED, OF_NOISE * float(noise / fact.prior.mean()))
        if share > threshold and not abs(gap) < PROVEN:  # in float32 rounding may put the upper bound below the lower
            text = f"The {fact.size} inducing inputs of {name} leave {100 * share:.2g} % of its prior variance at the "
            text += f"data unexplained, and {100 * threshold:.2g} % is little"
            text += f" (the log evidence may be {gap:.2g} nats per datum higher)" if 0 < gap < np.inf else ""
            if fact.by_jitter.mean() > 0.5 * fact.left.mean():
                # More inducing inputs would not explain it.
                text = f"The jitter that factorises the covariance of {name} leaves {100 * share:.2g} % of its prior "
                text += f"variance unexplained in {fact.left.dtype}, and {100 * threshold:.2g} % is little"
                cure = "use float64, by jax.config.update('jax_enable_x64', True) before the first array is made"
                if fact.left.dtype == np.float64:
                    cure = "pass a smaller jitter, such as jitter=1e-9, where the process is made"
                yield Finding("jitter", text, share, threshold, cure)
                continue
            cure = "take as many as ngp.inducing.enough(kernel, X) says"
            yield Finding("inducing inputs", text, share, threshold, cure)


def long_lengthscale(case: Case) -> Iterator[Finding]:
    """Functions that are nearly flat over the data."""
    for name, fact in case.evidence.processes.items():
        if fact.lengthscales is None or fact.extent is None or np.ptp(fact.extent, axis=0).max() > 0:
            continue
        ratio = float((fact.lengthscales.mean(axis=0) / np.maximum(np.asarray(fact.extent[0], float), 1e-300)).min())
        if ratio > 1.0:
            text = f"The lengthscales of {name} are at least {ratio:.1f} times the data's extent, so it is nearly flat"
            cure = "start from a shorter one, try other columns, or take a linear mean and a prior in the data's units"
            yield Finding("long lengthscale", text, ratio, 1.0, cure)


# ------------------------------------------------------------------------------------------------ the data


def not_normal(case: Case) -> Iterator[Finding]:
    """Residuals that are skewed or have heavy tails."""
    for name, seen in case.evidence.sites.items():
        if not seen.is_normal or (count := seen.z.size) < 20:
            continue
        z = (seen.z - seen.z.mean()) / (seen.z.std() or 1.0)  # of equal data all residuals are one number
        skewness, kurtosis = float((z**3).mean()), float((z**4).mean()) - 3
        limits = max(SKEWNESS, ERRORS * np.sqrt(6 / count)), max(KURTOSIS, ERRORS * np.sqrt(24 / count))
        number, limit = max((abs(skewness), limits[0]), (kurtosis, limits[1]), key=lambda pair: pair[0] / pair[1])
        if number > limit:
            text = f"Residuals of {name} are not normal, with skewness {skewness:.1f} "
            text += f"and excess kurtosis {kurtosis:.1f}"
            cure = "try ngp.likelihoods.StudentT for outliers, or a transformation of skewed data"
            yield Finding("residuals not normal", text, number, float(limit), cure)


def follow(case: Case) -> Iterator[Finding]:
    """Residuals that are alike at neighbouring inputs."""
    for name, seen in case.evidence.sites.items():
        X = case.evidence.inputs
        if X is None or len(X) != seen.num_rows or not 20 <= seen.z.size <= ROWS:  # rows of outputs are not looked at
            continue
        inputs = np.asarray(X, float)  # in float32 a constant column would be 0 / 0
        points = (inputs[seen.rows] - inputs.mean(axis=0)) / np.maximum(inputs.std(axis=0), 1e-300)
        # A row that counts twice, or is there twice, is not beside itself.
        first = np.sort(np.unique(np.column_stack([points, seen.y]), axis=0, return_index=True)[1])
        if len(first) < 20:
            continue
        points, ranks = points[first], np.clip(seen.z[first], -3, 3)  # no single row makes a correlation
        beside = nearest(points, points, 1, np.arange(len(points)))[:, 0]
        with np.errstate(invalid="ignore"):  # of equal numbers there is no correlation
            found = float(np.corrcoef(ranks, ranks[beside])[0, 1])
        if found > (least := max(NEIGHBOURS[0], NEIGHBOURS[1] / np.sqrt(len(ranks)))):
            text = f"Residuals of {name} at neighbouring inputs are correlated, {found:.2f}, so there is more to learn"
            # More inducing inputs only where they leave a part, or keep a lengthscale long, at which nothing is left:
            # `enough` would say that they do.
            facts = list(case.evidence.processes.values())
            halves = [(one, one.at_half) for one in facts if one.at_half is not None]
            few = max((one.size for one, left in halves if left.mean() > HALF * one.prior.mean()), default=0)
            shorter = "start from a shorter lengthscale" + (" with more inducing inputs" if halves else "")
            cure = f"{shorter}, or take a rougher kernel or one that reads more columns"
            if few:
                cure = f"take more inducing inputs, {4 * few}, and start from a shorter lengthscale, which {few} forbid"
            elif any(fact.left.mean() > OPEN * fact.prior.mean() for fact in facts):
                cure = "take more inducing inputs, as many as ngp.inducing.enough(kernel, X) says"
            elif case.posterior is not None and case.posterior.kind == "svi":
                # Of exact processes nothing but hyper-parameters is trained.
                is_solved = bool(facts) and all(fact.is_exact for fact in facts)
                cure = f"{cure}, or train longer" if is_solved else f"train longer, {cure}"
            yield Finding("residuals follow the inputs", text, found, least, cure)


def miscalibrated(case: Case) -> Iterator[Finding]:
    """Data that do not fall where the fit says."""
    for name, seen in case.evidence.sites.items():
        if seen.pit.size < 20:
            continue
        # The distance of `metrics.pit_uniformity`, without a program for each number of data.
        steps, ranked = np.arange(seen.pit.size + 1) / seen.pit.size, np.sort([seen.pit, np.abs(2 * seen.pit - 1)])
        found = float(max((steps[1:] - ranked).max(), (ranked - steps[:-1]).max()))
        inside = float(np.mean(np.abs(seen.pit - 0.5) < 0.45))
        if found > (limit := max(DISTANCE[0], DISTANCE[1] / np.sqrt(seen.pit.size))):
            text = f"Data at {name} do not fall where the fit says, and intervals of 90 % hold {100 * inside:.0f} %"
            is_count = not seen.is_normal and bool(np.all((seen.y >= 0) & (seen.y == np.round(seen.y))))
            cure = "try a likelihood with another spread, or noise that varies with X"
            if is_count and inside < 0.9:
                cure = "try NegativeBinomial, or another likelihood for counts that vary more"
            elif seen.is_normal and inside > 0.9:
                cure = (
                    "see why the noise is too large, such as a function that is not learnt or a prior that keeps it so"
                )
            yield Finding("calibration", text, found, float(limit), cure)
