"""Shares of the variance over rows, degrees of freedom and concurvity of terms: sums over draws of a posterior."""

from typing import NamedTuple

import numpy as np

from numpyro_gp.additive.component_kernels import Squares, shares_of
from numpyro_gp.additive.effects import MixtureMoments
from numpyro_gp.gam.answers.draws import Normal
from numpyro_gp.gam.model.features import ScaledFeatures, TermFeatures
from numpyro_gp.rows.batches import some_rows

# A term is negligible below this share of the variance over the data.
NEGLIGIBLE = 0.01
# Rows over which covariances between terms are averaged, and numbers in their sums.
MOST_ROWS, MOST_NUMBERS = 1000, 4_000_000


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


class SpreadOverDraws:
    """Covariances ``(C, C)`` over draws of ``C`` functions, averaged over rows, from values ``(C, N)`` one by one."""

    def __init__(self) -> None:
        self.count, self.first, self.away, self.products = 0, np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, values: np.ndarray) -> None:
        if not self.count:
            self.first, self.away, self.products = values, np.zeros(values.shape), np.zeros((len(values),) * 2)
        away = values - self.first  # so that little is left when the square of the mean is taken off
        self.count += 1
        self.away += away
        self.products += away @ away.T

    @property
    def covariance(self) -> np.ndarray:
        mean = self.away / self.count
        return (self.products / self.count - mean @ mean.T) / mean.shape[1]


class Shares:
    """What the table says of terms, from draws that are added one by one, all at the same rows of mass ``(N,)``.

    A row of weight two is two rows, in every average.
    """

    def __init__(self, term_features: TermFeatures, mass: np.ndarray) -> None:
        self.term_features, self.blocks, count = term_features, term_features.blocks, len(mass)
        self.mass = mass / mass.sum()
        size, parts = len(term_features.repeats), len(term_features.sizes)
        few = min(count, MOST_ROWS, max(1, MOST_NUMBERS // max(parts**2, size)))
        self.few = some_rows(count, few) if few < count else slice(None)
        self.of_few = mass[self.few] / mass[self.few].mean()
        self.expected, self.shares, self.means, self.traces = (list[np.ndarray]() for _ in range(4))
        self.within, self.constant, self.at_few = np.zeros((parts, parts)), MixtureMoments(), SpreadOverDraws()

    def add(self, term_posterior: Normal, scaled: ScaledFeatures, left: np.ndarray, drawn: np.ndarray) -> None:
        """One draw: ``D_c = v_c^T G_c v_c + k_c - tr G_c`` with the covariance ``G_c`` of features over rows.

        ``left (C, N)`` is what inducing inputs leave open, ``drawn (M, K)`` are draws of the whitened values.
        """
        blocks, own = self.blocks, term_posterior.block_covariances(self.blocks)
        pairs = zip(blocks.apart(scaled.A), [scaled.prior[list(own)] for own in blocks.members], strict=True)
        squares = [Squares.over(A, prior, self.mass) for A, prior in pairs]
        of_means = zip(squares, blocks.apart(term_posterior.mean), own, strict=True)
        self.expected.append(blocks.in_order([one.expected(mean, S) for one, mean, S in of_means]))
        of_draws = zip(squares, blocks.apart(drawn), strict=True)
        self.shares.append(shares_of(blocks.in_order([one.drawn(values) for one, values in of_draws])[:-1]))
        self.traces.append(blocks.in_order([np.trace(one, axis1=1, axis2=2) for one in own]))
        self.means.append(term_posterior.mean)
        # The constant has one whitened value, and is the same at every row.
        change = scaled.A[-1, 0] ** 2 * self.traces[-1][-1]
        self.constant.add(term_posterior.mean[-1] * scaled.A[-1, 0], left[-1, 0] + change)
        # Covariances between components averaged over a few rows, and the means there.
        A = scaled.A[:, self.few] * np.sqrt(self.of_few)  # so that an average is one over weights
        stacks = self.blocks.apart(A)
        self.within += np.diag((left[:, self.few] * self.of_few).mean(axis=1))
        self.within += term_posterior.component_covariances(A, self.blocks)
        pairs = zip(self.blocks.apart(term_posterior.mean), stacks, strict=True)
        self.at_few.add(self.blocks.in_order([np.einsum("cm,cmn->cn", m, a) for m, a in pairs]))

    def correlation(self) -> np.ndarray:
        """Posterior correlation ``(C, C)`` of the components, over all draws and the few rows."""
        covariance = self.within / self.at_few.count + self.at_few.covariance
        scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
        return covariance / scale[:, None] / scale

    def rows(self, level: float) -> tuple[Row, ...]:
        """The rows of the table, with intervals that hold so much."""
        names = [part.name for part in self.term_features.model.layout.read_terms]
        if not names:
            return ()
        # The constant goes with every level of a random effect: it is no other term.
        others = self.correlation()[:-1, :-1] * (1 - np.eye(len(names)))
        expected = shares_of(np.mean(self.expected, axis=0)[:-1])
        shares, traces = np.concatenate(self.shares, axis=1), np.mean(self.traces, axis=0)
        # Where draws are points the spread of the whitened values is that between them.
        between = np.zeros(len(self.term_features.repeats)) if traces.any() else np.var(self.means, axis=0)
        edf = np.asarray(self.term_features.sizes) - traces - np.add.reduceat(between, self.blocks.first)
        low, high = np.quantile(shares, [0.5 - level / 2, 0.5 + level / 2], axis=1)
        result = []
        for at, name in enumerate(names):
            other = np.abs(others[at]).argmax()
            share, start, end, freedom, most = (float(one[at]) for one in (expected, low, high, edf, others[:, other]))
            negligible, partner = float(np.mean(shares[at] < NEGLIGIBLE)), names[other] if len(names) > 1 else ""
            result.append(Row(name, share, start, end, freedom, negligible, most, partner))
        return tuple(result)
