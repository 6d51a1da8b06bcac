"""Several classes: a function for each under softmax, and a bound of what labels are expected to say.

Each class has its own copy of the terms, with hyper-parameters that all share: the model is the same whatever classes
are called. Labels say nothing of the average of the functions. So a search sees contrasts of them, one function fewer,
which are independent and have the same prior.
"""

import math

import numpy as np
import scipy

from numpyro_gp.gam.model.families import ExpectedDensities

# Newton's steps to the tightest bound, and how often one is halved.
MOST_STEPS, MOST_HALVINGS = 30, 20
# The largest change of a probability at which they end.
SETTLED = 1e-10


def contrasts(classes: int) -> np.ndarray:
    """Orthonormal contrasts ``H (K, K - 1)``: functions of classes, less their average, are ``H g``."""
    return np.asarray(scipy.linalg.helmert(classes).T)


def size_of_contrast(classes: int) -> float:
    """The standard deviation of a function less the average of all, which are independent, beside its own."""
    return math.sqrt(1 - 1 / classes)


def expected_log_softmax(y: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> ExpectedDensities:
    """A lower bound of ``E log softmax(f)_y`` of labels ``(N,)`` under ``f ~ N(mean, covariance)``, with its slopes.

    Means are ``(N, K)``, covariances ``(N, K, K)``. The bound is that of Knowles and Minka (2011), with covariances: as
    ``sum_k a_k = 1``, by Jensen's inequality

        ``E log sum_k e^f_k = a^T m + E log sum_k e^(f_k - a^T f)
        <= log sum_k e^(m_k + C_kk / 2 - (C a)_k) + a^T C a / 2``.

    The right side is convex in ``a``, and least where ``a`` are the shares of its sum. An average that all functions
    have in common cancels.
    """
    rows, half = np.arange(len(y)), mean + 0.5 * np.diagonal(covariance, axis1=1, axis2=2)

    def bound(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bound ``(N,)`` and the shares of its sum ``(N, K)``."""
        spread = np.einsum("nkj,nj->nk", covariance, a)
        logs = half - spread
        most = logs.max(axis=1, keepdims=True)
        each = np.exp(logs - most)
        total = each.sum(axis=1, keepdims=True)
        value = most[:, 0] + np.log(total[:, 0]) + 0.5 * np.einsum("nk,nk->n", a, spread)
        return value, each / total

    a = scipy.special.softmax(mean / np.sqrt(1 + 0.5 * covariance.max(axis=(1, 2)))[:, None], axis=1)
    value, p = bound(a)
    for _ in range(MOST_STEPS):
        curved = np.eye(mean.shape[1]) + p[:, :, None] * (covariance - np.einsum("nk,nkj->nj", p, covariance)[:, None])
        step = np.linalg.solve(curved, (p - a)[..., None])[..., 0]
        if np.abs(step).max(initial=0) < SETTLED:
            break
        part = np.ones(len(y))
        for _ in range(MOST_HALVINGS):
            following, shares = bound(a + part[:, None] * step)
            is_worse = following > value + 1e-12 * np.abs(value)
            if not is_worse.any():
                break
            part[is_worse] *= 0.5
        a, value, p = a + part[:, None] * step, following, shares
    of_mean = -p
    of_mean[rows, y.astype(int)] += 1
    crossed = p[:, :, None] * a[:, None]
    of_covariance = a[:, :, None] * a[:, None] - crossed - crossed.transpose(0, 2, 1)
    of_covariance[:, range(mean.shape[1]), range(mean.shape[1])] += p
    return ExpectedDensities(mean[rows, y.astype(int)] - value, of_mean, -0.5 * of_covariance)
