"""What a composed model of one process, or of a sum, comes to by NumPy and SciPy alone, with every matrix written out.

Kernels are of one column each, expectations by those of 200 points of Gauss and Hermite that have weight, beliefs as
mathematics.md sections 3, 4 and 14 have them. Slopes are differences.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special, stats
from scipy.linalg import block_diag

from tests.contracts.compositions import CATEGORY, JITTER, Composition

STEP = 1e-3  # of slopes, twice to each side: an error of its square
# ``exp(-f)`` of slopes, whose standard deviation may be 7, has its mass around -7; Student's t is narrow beside that.
NODES = np.linspace(-14, 14, 4001)
WEIGHTS = stats.norm.pdf(NODES) / stats.norm.pdf(NODES).sum()
CORRELATED = np.outer([0.5, -0.4, 0.8], [0.5, -0.4, 0.8]) + np.diag([0.5, 0.4, 0.3])


def part(name: str, x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    a, b = x[:, None], y[None]
    t = (a - b) / scale
    r = np.abs(t)
    sine = np.sin(np.pi * (a - b) / 2.0)
    if name == "Gibbs":
        la, lb = (np.exp(0.3 * np.tanh(side) - 0.1) for side in (a, b))
        total = la**2 + lb**2
        return np.sqrt(2 * la * lb / total) * np.exp(-((a - b) ** 2) / total)
    if name == "ArcCosine":
        na, nb = (np.sqrt(side**2 + 1) for side in (a, b))
        angle = np.arccos(np.clip((a * b + 1) / (na * nb), -1, 1))
        return 0.5 / np.pi * na * nb * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    return {
        "RBF": lambda: np.exp(-0.5 * t**2),
        "Matern12": lambda: np.exp(-r),
        "Matern32": lambda: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "Matern52": lambda: (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r),
        "RationalQuadratic": lambda: (1 + t**2 / 3.0) ** -1.5,
        "Periodic": lambda: np.exp(-2 * sine**2 / scale**2),
        "Cosine": lambda: np.cos(2 * np.pi * t),
        "Linear": lambda: 0.3 * a * b,
        "Polynomial": lambda: (0.2 * a * b + 0.5) ** 2,
        "Constant": lambda: np.ones((len(x), len(y))),
        "SpectralMixture": lambda: np.exp(-2 * np.pi**2 * (a - b) ** 2 * 0.04) * np.cos(2 * np.pi * (a - b) * 0.3),
        "Modulated": lambda: (1 + 0.3 * np.sin(a)) * np.exp(-0.5 * t**2) * (1 + 0.3 * np.sin(b)),
        "CategoryDelta": lambda: (a == b) * 1.0,
        "Coregion": lambda: CORRELATED[a.astype(int), b.astype(int)],
    }[name]()


def kernel(c: Composition, X: np.ndarray, Y: np.ndarray, variance: float, scale: float) -> np.ndarray:
    """The sum of products at all pairs of rows."""
    squares = ((X[:, None, :CATEGORY] - Y[None, :, :CATEGORY]) ** 2).sum(-1)
    total = 0.5 * np.exp(-0.5 * squares / 0.25)
    for product in c.kernel:
        made = variance * np.ones_like(total)
        for name, column in product:
            made = made * part(name, X[:, column], Y[:, column], scale)
        total = total + made
    return total


def readings(c: Composition, X: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Weights and places of what a row is of the function."""
    away = np.eye(X.shape[-1])[0]
    if c.reads == "slopes":
        half = 4 / 3 / (2 * STEP), -1 / 3 / (4 * STEP)  # of fourth order
        return [(sign * w, X + sign * k * STEP * away) for k, w in zip((1, 2), half, strict=True) for sign in (1, -1)]
    return [(0.3, X), (0.7, X + 0.5 * away)] if c.reads == "averages" else [(1.0, X)]


def mean(c: Composition, X: np.ndarray) -> np.ndarray:
    return {"none": 0.0, "number": 0.4, "slope": 0.3 * X[..., 0]}[c.mean] * np.ones(X.shape[:-1])


class Process:
    """Matrices of one process at hyper-parameters; those of the components of a sum are stacked."""

    def __init__(self, c: Composition, X: np.ndarray, Z: np.ndarray, hyper: Mapping[str, float]) -> None:
        self.c, self.Z, self.at = c, Z, readings(c, X)
        parts = [lambda A, B: kernel(c, A, B, hyper["variance"], hyper["scale"])]
        if c.process == "additive":
            parts.append(lambda A, B: 0.5 * part("Matern52", A[:, 1], B[:, 1], 0.8))
        grams = [k(Z, Z) for k in parts]
        factors = [np.linalg.cholesky(gram + JITTER * np.mean(np.diag(gram)) * np.eye(len(Z))) for gram in grams]
        self.jitter = JITTER * np.mean(np.diag(grams[0]))
        self.k = lambda A, B: sum(k(A, B) for k in parts)
        self.L = block_diag(*factors)
        self.A = np.linalg.solve(self.L, np.vstack([self.cross(Z, k) for k in parts]))
        self.prior = np.diag(sum(w * v * self.k(P, Q) for w, P in self.at for v, Q in self.at))
        self.level = sum(w * mean(c, P) for w, P in self.at)
        # What pseudo-data are measured from: the mean belongs to no component of a sum.
        self.level_at_inducing = np.zeros(len(self.L)) if c.process == "additive" else mean(c, Z)

    def cross(self, Z: np.ndarray, k: Any = None) -> np.ndarray:
        """Covariance of the function at ``Z`` with what the rows read, ``(M, N)``."""
        return sum(w * (k or self.k)(Z, P) for w, P in self.at)

    def covered(self, m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Marginals at the rows of a belief ``N(m, S)`` over the whitened values."""
        spread = self.prior - (self.A**2).sum(0) + np.einsum("mn,mk,kn->n", self.A, S, self.A)
        return self.A.T @ m + self.level, spread

    def belief(
        self, kind: str, p: Mapping[str, np.ndarray], others: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and variance at the rows, and the divergence."""
        eye = np.eye(len(self.Z))
        if kind == "decoupled":
            B = p["B_tril"] @ p["B_tril"].T
            K, a, Kx = self.k(self.Z, self.Z), p["a"], self.cross(self.Z)
            T = B @ np.linalg.inv(eye + K @ B)
            value = -np.trace(T @ K) - np.linalg.slogdet(eye - T @ K)[1]
            spread = self.prior - np.einsum("mn,mk,kn->n", Kx, T, Kx)
            own = a @ self.k(others, others) @ a
            return self.cross(others).T @ a + self.level, spread, 0.5 * (own + value)
        m, S = whitened(kind, p, self.L, self.level_at_inducing)
        spread = self.covered(0 * self.L[0], S)[1]
        value = 0.5 * (np.trace(S) - len(S) - np.linalg.slogdet(S)[1])
        if kind.startswith("layer"):
            own = self.k(others, others)
            L = np.linalg.cholesky(own + self.jitter * np.eye(len(others)))
            white = np.linalg.solve(L, m) if kind == "layer gp" else m
            a = m if kind == "layer cb" else np.linalg.solve(L.T, white)
            norm = a @ own @ a if kind == "layer cb" else white @ white
            return self.cross(others).T @ a + self.level, spread, value + 0.5 * norm
        if kind in ("hybrid", "orthogonal"):
            K, R = self.k(others, others), np.linalg.solve(self.L, self.k(self.Z, others))
            H = K - R.T @ R
            a = p["a"] if kind == "hybrid" else p["gamma"] / (np.diag(H) + 0.01)
            m = m + R @ a if kind == "hybrid" else m
            F = self.cross(others) - R.T @ self.A
            return self.A.T @ m + F.T @ a + self.level, spread, value + 0.5 * (a @ H @ a + m @ m)
        return self.A.T @ m + self.level, spread, value + 0.5 * m @ m


def whitened(kind: str, p: Mapping[str, np.ndarray], L: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments of the whitened values of a belief, from the parameters of its recipe."""
    if kind == "natural":
        S = np.linalg.inv(p["natural_precision"])
        return S @ p["natural_shift"], S
    if kind == "conditional":
        precision, shift = p["natural_precision"], p["natural_shift"]
        S = np.linalg.inv(np.eye(len(L)) + L.T @ precision @ L)
        return S @ L.T @ (shift - precision @ level), S
    if kind == "mean field":
        return p["mean"], np.diag(p["scale"] ** 2)
    return p["mean"], p["scale_tril"] @ p["scale_tril"].T


def log_between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Logarithm of what a standard normal has between two ends, by its lower tail."""
    is_above = low + high > 0
    low, high = np.where(is_above, -high, low), np.where(is_above, -low, high)
    return stats.norm.logcdf(high) + np.log1p(-np.exp(stats.norm.logcdf(low) - stats.norm.logcdf(high)))


def log_density(name: str, y: Any, f: Any, noise: float, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """``log p(y | f)``; functions on the last axis but that of rows."""
    normal, share = stats.norm(f, noise), special.expit(f)
    if name == "censored":
        return np.where(rows["beyond"], normal.logsf(y), normal.logpdf(y))
    if name == "interval":
        return log_between((rows["lower"] - f) / noise, (rows["lower"] + 0.8 - f) / noise)
    if name == "ordinal":
        edges = np.array([-np.inf, -0.5, 0.6, np.inf])
        return log_between((edges[y] - f) / noise, (edges[y + 1] - f) / noise)
    return {
        "gaussian": lambda: normal.logpdf(y),
        "student": lambda: stats.t(4.0, f, noise).logpdf(y),
        "truncated": lambda: normal.logpdf(y) - normal.logsf(-4.0),
        "poisson": lambda: stats.poisson(np.exp(f)).logpmf(y),
        "bernoulli": lambda: -np.logaddexp(0, -(2 * y - 1) * f),
        "probit": lambda: stats.norm.logcdf((2 * y - 1) * f),
        "gamma": lambda: stats.gamma(1 + noise, scale=np.exp(f)).logpdf(y),
        "exponential": lambda: stats.expon(scale=np.exp(f)).logpdf(y),
        "beta": lambda: stats.beta((1 + noise) * share, (1 + noise) * special.expit(-f)).logpdf(y),
        "negative binomial": lambda: log_negative_binomial(y, f, 1 + noise),
    }[name]()


def log_negative_binomial(y: Any, f: Any, size: float) -> np.ndarray:
    """The log probability of counts of mean ``exp(f)``, which may be beyond all numbers."""
    orders = special.gammaln(y + size) - special.gammaln(size) - special.gammaln(y + 1)
    return orders + size * np.log(size) + y * f - (size + y) * np.logaddexp(np.log(size), f)


def moments(name: str, f: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a datum given the function; of the number of a label."""
    rate, share, size = np.exp(f), special.expit(f), 1 + noise
    if name == "probit":
        share = stats.norm.cdf(f)
    if name == "ordinal":
        above = stats.norm.cdf((f + 0.5) / noise), stats.norm.cdf((f - 0.6) / noise)
        return above[0] + above[1], above[0] + 3 * above[1] - (above[0] + above[1]) ** 2
    return {
        "gaussian": lambda: (f, noise**2 + 0 * f),
        "student": lambda: (f, 2 * noise**2 + 0 * f),
        "poisson": lambda: (rate, rate),
        "bernoulli": lambda: (share, share * (1 - share)),
        "probit": lambda: (share, share * (1 - share)),
        "gamma": lambda: (size * rate, size * rate**2),
        "exponential": lambda: (rate, rate**2),
        "beta": lambda: (share, share * (1 - share) / (1 + size)),
        "negative binomial": lambda: (rate, rate + rate**2 / size),
    }[name]()


def expected(
    c: Composition, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise: float, rows: Mapping[str, np.ndarray]
) -> float:
    """``sum_n E log p(y_n | f_n)`` over the rows that are seen."""
    shift = rows["offset"] if c.has_offset else 0.0
    f = mean + shift + np.sqrt(np.maximum(variance, 0)) * NODES[:, None]
    terms = WEIGHTS @ log_density(c.likelihood, y, f, noise, rows)
    return float((2.5 if c.is_scaled else 1.0) * (terms * (rows["seen"] if c.is_masked else 1.0)).sum())
