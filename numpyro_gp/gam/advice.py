"""What a summary says to do about what its checks saw, in the words of a gam: terms, families, `num_inducing`.

`diagnose.verdict` speaks of kernels, guides and inputs, which a formula does not have.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from numpyro_gp.criticism.finding import Finding
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.term_kernels import CURVE

# Importance weights that are worth this share of as many equal ones say that no prediction suffers.
EVEN = 0.5
# Another family for data that do not fall where one says.
OTHER = {
    "poisson": 'take the family "negative_binomial", whose counts spread more',
    "exponential": 'take the family "gamma", whose spread is learnt',
    "gaussian": 'take the family "student_t" for outliers, or "gamma" or log(y) where the spread grows with the mean',
}


class AdviceContext(NamedTuple):
    """What a cure depends on beside the finding.

    Attributes
    ----------
    model : Model
    open : array (C,)
        Prior variance that the inducing inputs of each component leave open, averaged over rows.
    steps : int
        Of the engine, or draws.
    is_stochastic : bool
        Whether steps were those of minibatches or of Adam, of which more may help.
    inside : float
        Share of the data in their intervals of 90 %.
    """

    model: Model
    open: np.ndarray
    steps: int
    is_stochastic: bool
    inside: float = 0.9


# What is wrong with functions, which spoils all that is said after it.
FIRST = ("inducing inputs", "residuals follow the inputs")


def advice(findings: Sequence[Finding], about: AdviceContext) -> tuple[str, ...]:
    """Findings with their cures, the gravest first; after one that spoils the others its cure is the one to try."""
    faults = [one.fault for one in findings]
    spoilt = min((faults.index(fault) for fault in FIRST if fault in faults), default=len(faults))
    first = "do first what the note above says"
    return tuple(
        f"{text}: {first if at > spoilt and one.fault not in FIRST else cure}."
        for at, one in enumerate(findings)
        for text, cure in [_advice_on(one, about, "residuals not normal" in faults)]
    )


def _advice_on(finding: Finding, about: AdviceContext, has_outliers: bool) -> tuple[str, str]:
    """What one finding says, and its cure."""
    text, cure = finding.sentence, finding.cure
    if finding.fault in ("R-hat", "effective draws"):
        cure = f"draw more, num_steps={2 * about.steps}"
    elif finding.fault == "divergences":
        cure = "give the term with that scale a prior of its own, as s(x, scale=HalfNormal(0.5))"
    elif finding.fault == "noise" and not about.model.family.name.islower():
        cure = "look for rows that repeat, or let the prior of the noise go lower"
    elif finding.fault == "noise":
        cure = "look for rows that repeat, or for a column that is the response in other units"
    elif finding.fault == "inducing inputs":
        text, cure = _inducing(finding, about)
    elif finding.fault == "residuals not normal":
        cure = 'take the family "student_t" for outliers, or explain log(y) where positive data are skewed'
    elif finding.fault == "residuals follow the inputs":
        cure = "ask ngp.gam.screen for pairs of columns that deserve te(a, b), take s(x) in place of a straight line, "
        cure += "or give a curve that turns often more num_inducing"
    elif finding.fault == "calibration":
        kind = about.model.family.name.lower()
        cure = OTHER.get(kind, "take a family with another spread, or look for a term that is missing")
        if kind == "gaussian" and about.inside > 0.9 and not has_outliers:  # what curves leave open counts as noise
            cure = f"give curves that turn often more, as num_inducing={2 * CURVE}"
    elif finding.fault == "Pareto k":
        text = "The scales and lengthscales have no normal posterior, which this engine takes it for, so intervals may "
        text += f"be too narrow or too wide (Pareto k {finding.number:.2f}, above {finding.threshold})"
        cure = 'compare with engine="nuts", which takes it as it is'
        cure += f", or go on, num_steps={2 * about.steps}" if about.is_stochastic else ""
    return text, cure


def _inducing(finding: Finding, about: AdviceContext) -> tuple[str, str]:
    """Of the term that leaves most open."""
    parts = about.model.layout.read_terms
    worst = parts[int(np.argmax(about.open[: len(parts)]))]
    size = len(about.model.kernel_data.inducing[worst.name])
    levels = 1
    if worst.term.kind == "s" and worst.term.by:  # so many for each level
        levels = len(about.model.layout.columns[worst.columns[-1]].levels or (0,))
    more = max(2 * -(-size // levels), CURVE)
    text = f"The inducing inputs leave {100 * finding.number:.2g} % of the prior variance of the terms open, and "
    text += f"{100 * finding.threshold:.2g} % is little; {worst.name} leaves most"
    return text, f"write {worst.name[:-1]}, num_inducing={more})"


def is_even(weights: Weights) -> bool:
    """Whether importance weights are nearly equal: what their tail would be far out is of no consequence."""
    log = weights.log_weights - weights.log_weights.max()
    return bool(np.exp(log).sum() ** 2 / np.exp(2 * log).sum() > EVEN * len(log))
