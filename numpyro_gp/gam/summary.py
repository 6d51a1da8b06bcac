"""What a fitted additive model says, in one table: shares of the variance over the data, degrees of freedom, checks."""

import dataclasses
import html
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive import sobol
from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.components import component_marginals, covariance_stacks
from numpyro_gp.gam.model import Model
from numpyro_gp.linalg import matmul
from numpyro_gp.posterior import Posterior
from numpyro_gp.primitives import AdditiveGP

# A term is negligible below this share of the variance over the data.
NEGLIGIBLE = 0.01
# Rows that shares and correlations are taken over: spread evenly over those of the fit. With many terms fewer of them.
MOST_ROWS, MOST_NUMBERS = 5000, 4_000_000


class Row(NamedTuple):
    """One term: share of the variance over the rows with its interval, edf, and what else the table has.

    Attributes
    ----------
    term : str
    share, low, high : float
        Expected share ``Var_n f_c(x_n) / sum_e Var_n f_e(x_n)``, and its central 90 % interval.
    edf : float
        ``tr(I - S_cc)`` of the whitened values: how many numbers the data determined.
    negligible : float
        Probability that the share is below 0.01.
    correlation : float
        Largest posterior correlation, in size, with another term, of covariances averaged over the rows.
    partner : str
        That other term.
    """

    term: str
    share: float
    low: float
    high: float
    edf: float
    negligible: float
    correlation: float
    partner: str


@dataclasses.dataclass(frozen=True)
class Summary:
    """The table of a fit, as text, as HTML in a notebook, and as values.

    Attributes
    ----------
    title : str
    rows : tuple of Row
        One for each term.
    facts : dict
        What concerns the whole fit: deviance explained, leave-one-out density, parameters of the likelihood, rows.
    notes : tuple of str
        What to look at.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> row = ngp.gam.summary.Row("s(age)", 1.0, 0.9, 1.0, 3.2, 0.0, -0.1, "s(dose)")
    >>> for line in ngp.gam.Summary("y ~ s(age)", (row,), {"rows": 9}, ()).cells():
    ...     print(line)
    ['term', 'share of variance', 'edf', 'P(negligible)', 'correlation']
    ['s(age)', '1.00 (0.90 to 1.00)', '3.2', '0.00', '-0.10 s(dose)']
    """

    title: str
    rows: tuple[Row, ...]
    facts: dict[str, Any]
    notes: tuple[str, ...]

    def cells(self) -> list[list[str]]:
        """The table, its head first."""
        head = ["term", "share of variance", "edf", "P(negligible)", "correlation"]
        return [
            head,
            *(
                [
                    row.term,
                    f"{row.share:.2f} ({row.low:.2f} to {row.high:.2f})",
                    f"{row.edf:.1f}",
                    f"{row.negligible:.2f}",
                    f"{row.correlation:.2f} {row.partner}" if row.partner else "-",
                ]
                for row in self.rows
            ),
        ]

    def __str__(self) -> str:
        lines = [self.title, "", *_aligned(self.cells()), ""] if self.rows else [self.title, ""]
        lines += _aligned([[name, _text(value)] for name, value in self.facts.items()])
        return "\n".join(lines + [""] * bool(self.notes) + [f"note: {note}" for note in self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def table(rows: list[list[str]], first: str) -> str:
            body = [
                "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
                for row, tag in ((row, first if not at else "td") for at, row in enumerate(rows))
            ]
            return f"<table>{''.join(body)}</table>"

        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        facts = table([[name, _text(value)] for name, value in self.facts.items()], "td")
        return f"<p><code>{html.escape(self.title)}</code></p>{table(self.cells(), 'th')}{facts}{notes}"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def some_rows(model: Model, most_numbers: int, most_rows: int | None = MOST_ROWS) -> np.ndarray:
    """Rows spread evenly over those of the fit: at most these, and so many numbers in their features."""
    rows = len(model.rows.y)
    count = min(rows, most_numbers // model.size, rows if most_rows is None else most_rows)
    return np.linspace(0, rows - 1, max(1, count)).astype(int)


def variances_over(f: AdditiveGP, rows: Array, mean: Array, drawn: Array) -> tuple[Array, Array, Array]:
    """Variances of each component over rows: expected ``(C,)`` and of draws ``(C, S)``; and ``tr S_cc``.

    As `sobol.expected` and `sobol.draws`, of all components at once.
    """
    stacks, process = f.basis.stacks, f.process
    blocks = stacks.apart(f.basis.features(rows))
    middle = [jnp.mean(block, axis=-1, keepdims=True) for block in blocks]
    away = [block - own for block, own in zip(blocks, middle, strict=True)]
    gram = [matmul(one, jnp.swapaxes(one, -1, -2)) / rows.shape[0] for one in away]
    prior = jnp.mean(f.basis.diagonals(rows), axis=1) - stacks.squares(middle)[:, 0]
    left = prior - stacks.in_order([jnp.trace(one, axis1=-2, axis2=-1) for one in gram])

    def squares(values: Array) -> Array:
        """``v_c^T G_c v_c`` of values ``(M, S)``: ``(C, S)``."""
        pairs = zip(gram, stacks.apart(values), strict=True)
        found: Array = stacks.in_order([jnp.sum(one * matmul(G, one), axis=1) for G, one in pairs])
        return found

    if isinstance(process, AbstractBelief):
        covariances = covariance_stacks(process, f.basis)
        spread = stacks.in_order([jnp.sum(S * G, axis=(1, 2)) for S, G in zip(covariances, gram, strict=True)])
        known = stacks.in_order([jnp.trace(S, axis1=-2, axis2=-1) for S in covariances])
    else:
        spread = known = jnp.zeros_like(left)
    return squares(mean[:, None])[:, 0] + left + spread, squares(drawn.T) + jnp.maximum(left, 0)[:, None], known


def term_rows(posterior: Posterior, key: Array, model: Model, num_draws: int | None, level: float) -> tuple[Row, ...]:
    """The rows of the table, from one pass over the draws of the posterior."""
    count = 1 + len(model.layout.parts)
    X, few = (model.rows.X[some_rows(model, most)] for most in (MOST_NUMBERS, MOST_NUMBERS * model.size // count**2))
    rows, fewer = (jnp.asarray(values, jnp.result_type(float)) for values in (X, few))
    each_size = -(-1000 // posterior.spread(num_draws, posterior.source.is_random).size)

    def each(f: AdditiveGP, key: Array) -> Any:
        process = f.process
        within = jnp.mean(f.component_covariance(fewer), axis=0)
        means = component_marginals(process, f.basis, fewer).mean.T
        mean = process.whitened_mean if isinstance(process, AbstractBelief) else process.v
        drawn = process.draw_whitened(key, (each_size,), f.basis) if isinstance(process, AbstractBelief) else mean[None]
        hoped, variances, known = variances_over(f, rows, mean, drawn)
        return variances[:-1] / jnp.sum(variances[:-1], axis=0, keepdims=True), hoped, within, means, mean, known

    found, hoped, within, means, whitened, known = sobol.each_draw(posterior, key, each, rows[:1], num_draws=num_draws)
    means = np.asarray(means)
    away = means - means.mean(0)
    covariance = np.asarray(within).mean(0) + np.einsum("snc,sne->ce", away, away) / (len(means) * means.shape[1])
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    correlation = covariance / scale[:, None] / scale[None, :]
    names = [part.name for part in model.layout.parts]
    sizes = [len(model.ground.inducing[name]) for name in names]
    ends = np.cumsum(sizes)
    variances = np.asarray(hoped).mean(0)[:-1]
    total = float(variances.sum())
    # Where draws are points the spread of the whitened values is that between them.
    spread = np.asarray(whitened).var(0) if not np.asarray(known).any() else np.zeros(np.shape(whitened)[1])
    result = []
    for at, name in enumerate(names):
        shares = np.nan_to_num(np.asarray(found)[:, at].ravel())
        low, high = np.quantile(shares, [0.5 - level / 2, 0.5 + level / 2])
        edf = sizes[at] - float(np.mean(np.asarray(known)[:, at])) - spread[ends[at] - sizes[at] : ends[at]].sum()
        # The constant goes with every level of a random effect: it is no other term.
        own = np.where(np.arange(len(names)) == at, 0, correlation[at, :-1])
        other = np.abs(own).argmax()
        share = float(variances[at]) / total if total > 0 else 0.0
        result.append(
            Row(
                name,
                share,
                float(low),
                float(high),
                float(edf),
                float(np.mean(shares < NEGLIGIBLE)),
                float(own[other]),
                names[other] if len(names) > 1 else "",
            )
        )
    return tuple(result)


def deviance_explained(model: Model, fitted: np.ndarray, r: float, some: Any = slice(None)) -> float:
    """``1 - D(y, fitted) / D(y, constant)`` of some rows; NaN for likelihoods whose deviance is not here."""
    y, offset = model.rows.y[some], model.rows.X[some][:, list(model.layout.offsets)].sum(axis=1)
    weights = np.ones(len(y)) if model.rows.weights is None else model.rows.weights[some]
    null = np.full(len(y), np.average(y, weights=weights))
    if model.family.link == "log":
        null = np.exp(offset) * np.average(y, weights=weights) / np.average(np.exp(offset), weights=weights)
    first, second = (float(np.sum(weights * unit_deviance(model.family.name, y, mean, r))) for mean in (fitted, null))
    return 1 - first / second if second > 0 else math.nan


def unit_deviance(family: str, y: np.ndarray, mean: np.ndarray, r: float = math.nan) -> np.ndarray:
    """Twice the log density that the mean of each datum loses against the datum itself, without its scale."""
    from scipy.special import rel_entr, xlogy

    kind = family.lower().replace("_", "")
    found: np.ndarray = np.full(len(y), math.nan)
    if kind in ("gaussian", "studentt"):
        found = (y - mean) ** 2
    elif kind == "poisson":
        found = 2 * (rel_entr(y, mean) - y + mean)
    elif kind == "negativebinomial":
        found = 2 * (xlogy(y, y / mean) - (y + r) * np.log((y + r) / (mean + r)))
    elif kind == "bernoulli":
        found = -2 * (xlogy(y, mean) + xlogy(1 - y, 1 - mean))
    elif kind in ("gamma", "exponential"):
        found = 2 * ((y - mean) / mean - np.log(y / mean))
    return found
