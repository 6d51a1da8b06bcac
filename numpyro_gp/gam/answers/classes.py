"""What a fit of several classes says: probabilities of new rows, and each class as a fit of one function.

Labels say nothing of the average of the functions of all classes. So all that is shown of a class is its function less
this average: the logarithm of its probability around that of all classes. Terms, effects and coefficients are those of
such a function, with the covariances between classes that the fit has.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import log_softmax

from numpyro_gp.additive.columns import Column, as_array, is_missing, plain
from numpyro_gp.additive.effects import Effects
from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.criticism.leave_one_out import psis_left_out
from numpyro_gp.gam.answers.coefficients import Coefficients, coefficients_of
from numpyro_gp.gam.answers.draws import Dense, Draws, TermNormal
from numpyro_gp.gam.answers.effects import Row, Shares, TermMoments, effects_of, moments_at
from numpyro_gp.gam.answers.summary import looked_at
from numpyro_gp.gam.model.classes import contrasts, size_of_contrast
from numpyro_gp.gam.model.features import ScaledFeatures
from numpyro_gp.likelihoods.quadrature import quasi_normal
from numpyro_gp.rows.batches import some_rows

# Nodes of the functions of a row at each draw, at least; and draws of probabilities behind an interval.
NODES, SAMPLES = 64, 2000
# Probabilities that are held at once.
PROBABILITIES_AT_ONCE = 500_000


def by_class(half: np.ndarray, classes: int) -> np.ndarray:
    """A root ``(R, K M)`` of a covariance as ``(R, K, M)``; of a point it has no rows."""
    return half.reshape(len(half), classes, half.shape[1] // classes)


class OfClass(Sequence[TermNormal]):
    """The whitened values of one class less the average of all, scaled to a standard normal prior, at each draw."""

    def __init__(self, joint: Sequence[TermNormal], part: np.ndarray) -> None:
        self.joint, self.part = joint, part

    def __len__(self) -> int:
        return len(self.joint)

    def __getitem__(self, number: Any) -> Any:
        own = self.joint[number]
        half = np.einsum("rkm,k->rm", by_class(own.half, len(self.part)), self.part)
        root: Any = np.linalg.qr(half, mode="r") if len(half) else half
        return Dense(self.part @ own.mean.reshape(len(self.part), -1), root)


def each_function(draws: Draws) -> dict[str, Draws]:
    """The functions of a fit by what stands before the names of their terms: ``"setosa: "``; one has nothing there."""
    model = draws.model
    if model.classes is None:
        return {"": draws}
    count, size, result = len(model.classes), size_of_contrast(len(model.classes)), {}
    for at, start in enumerate(model.start_of_classes):
        term_features = copy.copy(draws.term_features)
        term_features.model = dataclasses.replace(model, start=model.start._replace(constant=float(start)))
        own = OfClass(draws.term_posteriors, (np.eye(count)[at] - 1 / count) / size)
        result[f"{model.classes[at]}: "] = draws._replace(
            term_features=term_features, scales=size * draws.scales, term_posteriors=own
        )
    return result


def moments_of_functions(draws: Draws, X: np.ndarray) -> TermMoments:
    """`moments_at` of all functions, with the constants that they start from."""
    names, parts = list[str](), list[TermMoments]()
    for prefix, own in each_function(draws).items():
        parts.append(moments_at(own, X))
        parts[-1].mean[:, -1] += own.model.start.constant
        names += [prefix + name for name in parts[-1].names]
    mean, scale = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("mean", "scale"))
    return TermMoments(tuple(names), mean, scale)


def effects_of_functions(draws: Draws, size: int, rng: np.random.Generator) -> tuple[Effects, float]:
    """`effects_of` of all functions, with the constant of the last."""
    result, constant = Effects(), 0.0
    for prefix, own in each_function(draws).items():
        found, constant = effects_of(own, size, rng)
        result |= {prefix + name: dataclasses.replace(one, name=prefix + name) for name, one in found.items()}
    return result, constant


def coefficients_of_functions(draws: Draws, interval: float, has_levels: bool = True) -> Coefficients:
    """`coefficients_of` of all functions; hyper-parameters, which these share, once."""
    tables = {prefix: coefficients_of(own, interval, has_levels) for prefix, own in each_function(draws).items()}
    first, shared = next(iter(tables.values())), ("sd of ", "lengthscale of ")
    own = [
        row._replace(term=prefix + row.term)
        for prefix, table in tables.items()
        for row in table
        if not row.term.startswith(shared)
    ]
    hyper = [row for row in first if row.term.startswith(shared)]
    return dataclasses.replace(first, rows=(*own, *hyper)) if len(tables) > 1 else first


# --------------------------------------------------------------------------------------
# Probabilities of classes, by NumPy: nothing is compiled.


def contrasts_at(draws: Draws, X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Mean ``(N, K - 1)`` and covariance of the contrasts of functions at encoded rows, draw by draw."""
    start = draws.model.start_of_classes
    H = contrasts(len(start))
    for posterior, (A, prior, _) in draws.at(X):
        assert isinstance(posterior, Dense)
        mean = H.T @ posterior.mean.reshape(len(start), -1) @ A
        half = np.einsum("rkm,kj->rjm", by_class(posterior.half, len(start)), H)
        covariance = np.einsum("n,ij->nij", np.maximum(prior.sum(axis=0) - np.sum(A**2, axis=0), 0), np.eye(len(H.T)))
        for i in range(len(H.T)):
            for j in range(i + 1):
                both = half[:, i].T @ half[:, j]
                covariance[:, i, j] += np.einsum("mn,mn->n", A, 0.5 * (both + both.T) @ A)
                covariance[:, j, i] = covariance[:, i, j]
        yield mean.T + H.T @ start, covariance


def in_chunks(draws: Draws, X: np.ndarray, each: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Some rows at a time: contrasts ``(S, N, K - 1)``, their covariances, probabilities ``(K, S, Q, N)``.

    Nodes are mirror images of each other, other ones at each draw. Rows that miss a value are NaN.
    """
    H = contrasts(len(draws.model.start_of_classes))
    every = quasi_normal(len(H.T))[0]
    half = len(every) // 2
    count = min(max(each // 2, 1), half)
    places = (np.arange(draws.size)[:, None] * count + np.arange(count)) % half
    nodes = every[np.concatenate([places, places + half], axis=1)]
    step = max(1, PROBABILITIES_AT_ONCE // (nodes.size + 2 * draws.size * count))
    for rows in draws.cuts(len(X)):
        lost = np.isnan(X[rows]).any(axis=1)
        known = np.where(lost[:, None], draws.model.rows.X[0], X[rows])
        means, covariances = (np.stack(part) for part in zip(*contrasts_at(draws, known), strict=True))
        for low in range(0, len(known), step):
            mean, covariance = means[:, low : low + step], covariances[:, low : low + step]
            values, vectors = np.linalg.eigh(covariance)
            root = H @ vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
            p = nodes @ root.transpose(2, 0, 3, 1)  # the functions at the nodes, then their softmax in place
            p += (H @ mean.transpose(0, 2, 1)).transpose(1, 0, 2)[:, :, None]
            p -= p.max(axis=0)
            np.exp(p, out=p)
            p /= p.sum(axis=0)
            out = lost[low : low + step]
            mean[:, out], covariance[:, out], p[..., out] = np.nan, np.nan, np.nan
            yield mean, covariance, p


@dataclasses.dataclass(frozen=True, eq=False)
class ClassPrediction:
    """What `Fit.predict` returns of several classes: probabilities of new rows, averaged over the posterior.

    Attributes
    ----------
    classes : tuple
        Names, in the order of the columns.
    mean : array (N, K)
        Probabilities; NaN of rows that miss a value.
    function_mean, function_variance : array (N, K)
        Of the function of each class, less their average.
    num_draws : int
        Draws of the hyper-parameters.
    key : PRNG key
        Of `sample`.

    Examples
    --------
    >>> import jax, numpy as np, numpyro_gp as ngp
    >>> p, none = np.array([[0.5, 0.25, 0.25]]), np.zeros((1, 3))
    >>> prediction = ngp.gam.ClassPrediction(("cat", "dog", "fox"), p, none, none, 1, jax.random.key(0))
    >>> prediction.log_density(["cat"]).round(3).tolist()
    [-0.693]
    """

    classes: tuple[Any, ...]
    mean: np.ndarray
    function_mean: np.ndarray
    function_variance: np.ndarray
    num_draws: int
    key: Array

    def __repr__(self) -> str:
        return f"ClassPrediction(rows={len(self.mean)}, classes={list(self.classes)}, draws={self.num_draws})"

    @property
    def probabilities(self) -> np.ndarray:
        """The mean ``(N, K)`` by its other name."""
        return self.mean

    @property
    def variance(self) -> np.ndarray:
        """Of whether a row is of a class ``(N, K)``."""
        return self.mean * (1 - self.mean)

    def log_density(self, y: object) -> np.ndarray:
        """Log probability of the class ``(N,)`` that each row has, by names as the data of the fit have them."""
        labels, known = as_array(y), set(self.classes)
        if labels.shape != (len(self.mean),):
            cure = "Pass the column of the response, one name for each predicted row."
            fail("y", f"of shape ({len(self.mean)},)", f"shape {labels.shape}", cure)
        if (missing := is_missing(labels)).any():
            fail("y", "known", f"{missing.sum()} of {len(labels)} missing", "Leave rows without a class out.")
        codes = Column("y", self.classes).encode(labels).astype(int)
        if (bad := codes == len(known)).any():
            cure = "Give classes as the data of the fit had them, by name and not by number."
            fail("y", f"among the classes {list(self.classes)}", repr(plain(labels[bad][0])), cure)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.take_along_axis(self.mean, codes[:, None], axis=1)[:, 0]))

    def sample(self, num_samples: int = 1000, key: Array | None = None) -> np.ndarray:
        """Classes of new data ``(num_samples, N)`` by name, each row by itself; None where a row misses a value.

        Without a key they are the same at every call.
        """
        words = jax.random.key_data(self.key if key is None else check_key("key", key))
        shape = check_count("num_samples", num_samples), len(self.mean), 1
        uniform = np.random.default_rng(np.ravel(words).tolist()).uniform(size=shape)
        until = np.cumsum(np.nan_to_num(self.mean), axis=1)[:, :-1]
        names = np.empty(len(self.classes) + 1, object)
        names[:-1] = self.classes
        is_lost = np.isnan(self.mean).any(axis=1)
        found: np.ndarray = names[np.where(is_lost, len(self.classes), (uniform > until).sum(axis=2))]
        return found


def predicted_classes(draws: Draws, X: np.ndarray, key: Array) -> ClassPrediction:
    """Probabilities of encoded rows, the mixture over all draws."""
    classes, parts = draws.model.classes, []
    H = contrasts(len(classes or ()))
    for mean, covariance, p in in_chunks(draws, X, max(NODES, SAMPLES // draws.size)):
        f, spread = mean @ H.T, np.einsum("ki,snij,kj->snk", H, covariance, H)
        parts.append((p.mean(axis=(1, 2)).T, f.mean(axis=0), spread.mean(axis=0) + f.var(axis=0)))
    mean, function_mean, function_variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ClassPrediction(classes or (), mean, function_mean, function_variance, draws.size, key)


def probability_interval(draws: Draws, X: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends ``(N, K)`` of intervals of the probability of each class at encoded rows."""
    ends, parts = [0.5 - level / 2, 0.5 + level / 2], []
    for _, _, p in in_chunks(draws, X, max(NODES, SAMPLES // draws.size)):
        parts.append(np.quantile(p.reshape(len(p), -1, p.shape[-1]), ends, axis=1).transpose(0, 2, 1))
    low, high = np.concatenate(parts, axis=1)
    return low, high


# --------------------------------------------------------------------------------------
# The summary.


def report_on_classes(
    draws: Draws, level: float, density: bool, rng: np.random.Generator
) -> tuple[tuple[Row, ...], dict[str, object]]:
    """The rows of the table, by class and term, and what concerns the whole fit."""
    model, rows, logs = draws.model, draws.model.rows, list[np.ndarray]()
    most, each = looked_at(draws)
    places = np.arange(len(rows.y))[some_rows(len(rows.y), most)]
    X, y, mass = rows.X[places], rows.y[places].astype(int), rows.mass[places]
    start, size = model.start_of_classes, size_of_contrast(len(model.start_of_classes))
    functions, H = each_function(draws), contrasts(len(start))
    tables = {prefix: Shares(own.term_features, mass) for prefix, own in functions.items()}
    for number, (posterior, (A, prior, factor)) in enumerate(draws.at(X)):
        left = prior - np.add.reduceat(A**2, draws.term_features.blocks.first, axis=0)
        scaled = ScaledFeatures(size * A, size**2 * prior, size * factor)
        for prefix, own in functions.items():
            of_class = own.term_posteriors[number]
            tables[prefix].add(of_class, scaled, size**2 * left, of_class.sample(rng, each))
        if density:  # of the class of each row, at draws of the functions
            values = posterior.sample(rng, each).reshape(len(start), -1, each)
            g = np.einsum("kj,kme,mn->enj", H, values, A, optimize=True)
            g += np.sqrt(np.maximum(left.sum(axis=0), 0))[:, None] * rng.standard_normal(g.shape)
            logs.append(log_softmax(start + g @ H.T, axis=-1)[:, np.arange(len(y)), y])
    counts = np.bincount(rows.y.astype(int), rows.mass)
    p = np.concatenate([p.mean(axis=(1, 2)).T for _, _, p in in_chunks(draws, X, NODES)])
    fitted, null = np.log(p[np.arange(len(y)), y]), np.log(counts / counts.sum())[y]
    facts: dict[str, object] = {
        "family": model.family.name,
        "classes": ", ".join(f"{name} {count:.6g}" for name, count in zip(model.classes or (), counts, strict=True)),
        "deviance explained": float(1 - mass @ fitted / (mass @ null)),
    }
    if density:
        left_out = psis_left_out(np.concatenate(logs))
        bad = int(left_out.is_bad.sum())
        unsure = f" (unreliable for {bad} row{'s' * (bad > 1)})" * bool(bad)
        facts["log density, left out"] = f"{np.average(left_out.pointwise, weights=mass):.4f} per row{unsure}"
    whole = [row._replace(term=prefix + row.term) for prefix, table in tables.items() for row in table.rows(level)]
    return tuple(whole), facts
