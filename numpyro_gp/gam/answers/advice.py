"""What a summary says to do about what its checks saw, in the words of a gam: terms, families, `num_inducing`.

`diagnose.verdict` speaks of kernels, guides and inputs, which a formula does not have.
"""

from collections.abc import Sequence

import numpy as np

from numpyro_gp.criticism.fit_checks import Finding
from numpyro_gp.criticism.leave_one_out import smoothed
from numpyro_gp.criticism.weights import POOR, Weights
from numpyro_gp.gam.answers.effects import Row
from numpyro_gp.gam.answers.row_densities import RowDraws
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.model.term_kernels import CURVE, MOST_TOGETHER, SMOOTH

# Standard deviations by which importance weights may move the mean of f, and factors of these themselves, unsaid.
MOVED, WIDER = 0.25, 1.25
# Part of the draws that importance weights rest on, of which they say something.
LEAST_EFFECTIVE = 0.1
# Degrees of freedom in parts of inducing inputs, above which more of these would say more: of surfaces, of a curve.
USED = {"te": 0.5, "ti": 0.5, "s": 0.9}
# Another family for data that do not fall where one says.
OTHER = {
    "poisson": 'take the family "negative_binomial", whose counts spread more',
    "exponential": 'take the family "gamma", whose spread is learnt',
}
DO_FIRST = "do first what the note above says"
# What is wrong with functions, which spoils all that is said after it.
FIRST = ("noise", "inducing inputs", "residuals follow the inputs")
# Cures that depend on nothing but the fault.
CURES = {
    "divergences": 'give the term with that scale a prior of its own, as ngp.gam.s("x", scale=HalfNormal(0.5))',
    "stranded particles": 'compare with engine="nuts", or take engine="svi"',
    "narrow particles": 'take engine="nuts", or engine="svi"',
}


def advice(
    findings: Sequence[Finding],
    model: Model,
    is_open: np.ndarray,
    steps: int,
    is_stochastic: bool,
    inside: float,
) -> tuple[str, ...]:
    """Findings with their cures, the gravest first; after one that spoils the others its cure is the one to try.

    Parameters
    ----------
    is_open : array (C,)
        Prior variance that the inducing inputs of each component leave open, averaged over rows.
    steps : int
        Of the engine, or draws.
    is_stochastic : bool
        Whether steps were those of minibatches or of Adam, of which more may help.
    inside : float
        Share of the data in their intervals of 90 %.
    """
    faults, parts, columns = [one.fault for one in findings], model.layout.read_terms, model.layout.columns
    spoilt = min((faults.index(fault) for fault in FIRST if fault in faults), default=len(faults))
    has_labels, kind, said = bool(two_values(model)), model.family.name, list[str]()
    # More inducing inputs for the curve or surface that has the fewest; no text where there is none.
    sizes, more = {p.name: len(model.kernel_data.inducing[p.name]) for p in parts if p.term.kind in SMOOTH}, ""
    if sizes:
        least = min(sizes, key=sizes.__getitem__)
        more = f"give terms that turn often more, as {least[:-1]}, num_inducing={2 * max(sizes[least], CURVE)})"
    for at, one in enumerate(findings):
        text, cure = one.sentence, CURES.get(one.fault, one.cure)
        if one.fault in ("R-hat", "effective draws"):
            cure = f"draw more, num_steps={2 * steps}"
        elif one.fault == "noise":
            cure = "look for rows that repeat, or for a column that is the response in other units"
            if not kind.islower():  # a likelihood of the user's own
                cure = "look for rows that repeat, or let the prior of the noise go lower"
            if model.rows.weights is not None:  # as if data had no noise, where weights were meant for precisions
                cure = "a weight says how many equal rows a row stands for: leave weights= out where each is one datum"
        elif one.fault == "inducing inputs":
            worst = parts[int(np.argmax(is_open[: len(parts)]))]
            size, levels = len(model.kernel_data.inducing[worst.name]), 1
            if worst.term.kind == "s" and worst.term.by:  # so many for each level
                levels = len(columns[worst.columns[-1]].levels or (0,))
            text = f"The inducing inputs leave {100 * one.number:.2g} % of the prior variance of the terms open, and "
            text += f"{100 * one.threshold:.2g} % is little; {worst.name} leaves most"
            cure = f"write {worst.name[:-1]}, num_inducing={max(2 * -(-size // levels), CURVE)})"
        elif one.fault == "residuals not normal":
            cure = _of_normal_data(model, "are skewed")
        elif one.fault == "residuals follow the inputs":
            lines = [part.term.columns[0] for part in parts if part.term.kind == "linear"]
            cures = [f"take s({lines[0]}) in place of the straight line"] if lines else []
            if sum(not column.is_category for column in columns) > 1:
                cures.append("ask ngp.gam.screen for pairs of columns that deserve te(a, b)")
            cures += [more] if more else []
            cure = ", or ".join([*cures, "look for a column that is missing"][:3])
        elif one.fault == "calibration":
            cure = OTHER.get(kind.lower(), "take a family with another spread, or look for a term that is missing")
            if kind.lower() == "gaussian":
                is_wide = inside > 0.9 and "residuals not normal" not in faults and more
                # What curves leave open counts as noise.
                cure = more if is_wide else _of_normal_data(model, "spread more where their mean is large")
        elif one.fault in ("Pareto k", "normal posterior"):
            cure = 'compare with engine="nuts", which takes it as it is'
            cure += f", or go on, num_steps={2 * steps}" if is_stochastic else ""
        is_spoilt = at > spoilt and one.fault not in FIRST
        said.append(f"{text}: {DO_FIRST if has_labels or is_spoilt else cure}.")
    return tuple(said)


def two_values(model: Model) -> str:
    """What to do about a response of two values in a family of measurements; nothing to do is no text."""
    values, row = np.unique(model.rows.y), model.family.row
    if len(values) != 2 or row is None or row.is_discrete:
        return ""
    name = model.layout.response_column.name
    own = "" if values.tolist() == [0, 1] else f', of data["{name}"] = data["{name}"] == {values[1]:g}'
    return f'The response {name} has two values, {values[0]:g} and {values[1]:g}: take the family "bernoulli"{own}.'


def _of_normal_data(model: Model, how: str) -> str:
    """Another family than the Gaussian, by what the data are."""
    y, name = model.rows.y, model.layout.response_column.name
    if (y >= 0).all() and (y == np.round(y)).all():
        return 'take the family "negative_binomial" for counts, or "student_t" for outliers'
    if (y > 0).all() and "(" not in name:
        return f'take the family "student_t" for outliers, or "gamma" or log({name}) where data {how}'
    return 'take the family "student_t" for outliers'


def notes_on(model: Model, rows: Sequence[Row]) -> tuple[str, ...]:
    """Notes on a response of labels, and on terms that use so much of their inducing inputs that more say more.

    With few of these lengthscales become long and the noise large, so that inducing inputs leave nothing open.
    """
    notes = [text] if (text := two_values(model)) else []
    for part, row in zip(model.layout.read_terms, rows, strict=False):
        size, places = len(model.kernel_data.inducing[part.name]), model.rows.X[:, part.columns]
        if (part.term.kind == "s" and part.term.by) or row.edf < USED.get(part.term.kind, np.inf) * size:
            continue
        different = len(np.unique(places, axis=0))
        more = min(3 * size, different, size + MOST_TOGETHER - sum(model.sizes))
        if size < different:
            cure = f"write {part.name[:-1]}, num_inducing={more})"
            cure = cure if more > size else "take neighbours, which follow any detail: ngp.neighbours"
            text = (
                f"{part.name} uses {row.edf:.0f} degrees of freedom of {size} inducing inputs, and may have more detail"
            )
            notes.append(f"{text} than they can follow: {cure}.")
    return tuple(notes)


def on_normal_posterior(at: RowDraws, weights: Weights) -> list[Finding]:
    """What importance weights say of taking the hyper-parameters for normal: a finding where it moves what ``f`` is.

    ``k`` of some hundred weights is a noisy number, above 0.7 in 15 % of tables that a fit drew, and in tables whose
    intervals are 1.5 times too wide it is below. So weights of the hyper-parameters, averaged over the terms, say what
    mean and standard deviations of ``f`` would be.
    """
    log_weights = weights.log_weights.reshape(len(at.mean), -1)
    share = np.exp(smoothed(np.logaddexp.reduce(log_weights, axis=1)[:, None]).log_weights[:, 0])
    text = "The scales and lengthscales have no normal posterior, which this engine takes it for, so intervals "
    if np.sum(share**2) * LEAST_EFFECTIVE * len(share) > 1:  # what so few draws say is no number
        text += f"may be too narrow or too wide (Pareto k {weights.pareto_k:.2f}, above {POOR})"
        return [Finding("Pareto k", text, weights.pareto_k, POOR, "")] if weights.pareto_k > POOR else []
    means = at.mean.mean(axis=0), share @ at.mean
    first, second = (
        of_each @ (at.variance + (at.mean - mean) ** 2)
        for of_each, mean in zip((np.full(len(share), 1 / len(share)), share), means, strict=True)
    )
    moved = float(np.sqrt(np.mean((means[1] - means[0]) ** 2 / first)))
    times = float(np.exp(0.5 * np.mean(np.log(first / second))))
    if moved < MOVED and 1 / WIDER < times < WIDER:
        return []
    text += f"of f are some {times:.2f} times as wide as they should be, and its mean is {moved:.2f} standard "
    return [Finding("normal posterior", f"{text}deviations away", max(moved, abs(np.log(times))), MOVED, "")]
