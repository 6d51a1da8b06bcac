"""What is wrong with a fit, as a value, and what a look at a fit may see."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_floating, fail, known
from numpyro_gp.criticism.evidence import FitEvidence
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import Call


class Finding(NamedTuple):
    """One thing that is wrong with a fit, as `verdict` finds it.

    Attributes
    ----------
    fault : str
        Its name: "R-hat", "divergences", "stranded particles", "no numbers", "effective draws", "noise",
        "inducing inputs", "jitter", "neighbours", "repeated rows", "long lengthscale", "residuals not normal",
        "residuals follow the inputs", "calibration", "fits differ", "Pareto k", "parameters differ" or
        "lengthscale at its prior".
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

    evidence: FitEvidence
    posterior: Posterior | None = None
    call: Call | None = None
    key: Array | None = None
    other: FitEvidence | None = None
    weights: Weights | None = None
    cure: str | None = None


def entries(arrays: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of some hyper-parameters, by a label: ``lengthscale[0]``; draws on the first axis."""
    for name, given in arrays.items():
        draws = np.asarray(given)
        for at in np.ndindex(draws.shape[1:]):
            yield f"{name}{list(at) or ''}", draws[(slice(None), *at)]


# --------------------------------------------------------------------------------------
# What scores ask of their arrays: equal shapes, since nothing is broadcast, and numbers that can be what they say.


def numbers(argument: str, value: ArrayLike) -> Array:
    """``value`` as floats; counts and other whole numbers are data as well."""
    array = check_array(argument, value)
    if jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool:
        array = array.astype(jnp.result_type(float))
    return check_floating(argument, array)


def check_entries(argument: str, array: Array) -> None:
    """Refuse scalars and empty arrays."""
    if array.ndim == 0 or array.size == 0:
        fail(argument, "a non-empty array with one entry per datum", f"shape {array.shape}", "Pass held-out data.")


def check_same_shape(first: str, a: Array, second: str, b: Array) -> None:
    """Refuse shapes that differ, even where they would broadcast."""
    if a.shape != b.shape:
        cure = f"Give both the same shape, for instance {first}[:, 0] or {second}[:, 0]; nothing is broadcast."
        fail(first, f"of the shape of {second}, {b.shape}", f"shape {a.shape}", cure)


def check_pair(first: str, a: ArrayLike, second: str, b: ArrayLike) -> tuple[Array, Array]:
    """Two arrays of equal shapes; the second (the data) takes the type of the first where it held integers."""
    is_whole = not jnp.issubdtype(check_array(second, b).dtype, jnp.floating)
    a, b = numbers(first, a), numbers(second, b)
    check_entries(second, b)
    check_same_shape(first, a, second, b)
    return a, b.astype(a.dtype) if is_whole else b


def check_samples(samples: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Draws ``(S, ...)`` and data ``(...)``."""
    samples, y = numbers("samples", samples), numbers("y", y)
    check_entries("y", y)
    if samples.shape[1:] != y.shape or samples.ndim == 0 or samples.shape[0] == 0:
        cure = "Put the S draws on the first axis and give the rest the shape of y."
        fail("samples", f"of shape (S, {str(y.shape)[1:]}", f"shape {samples.shape}", cure)
    return samples, y


def check_probabilities(argument: str, value: ArrayLike) -> Array:
    """Floats between 0 and 1."""
    array = numbers(argument, value)
    check_entries(argument, array)
    concrete = known(array)
    if concrete is not None and (concrete.min() < 0 or concrete.max() > 1):
        got = f"values from {concrete.min():.6g} to {concrete.max():.6g}"
        fail(argument, "between 0 and 1", got, "Pass probabilities: jax.nn.sigmoid of logits, percentages / 100.")
    return array


def check_classes(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    """Probabilities ``(N,)`` of class 1 or ``(N, C)`` of all classes, and whole labels ``(N,)``."""
    probabilities, labels = check_probabilities("probabilities", probabilities), check_array("labels", labels)
    if probabilities.ndim > 2 or (probabilities.ndim == 2 and probabilities.shape[1] < 2):
        cure = "For two classes pass the probabilities of class 1 with shape (N,)."
        fail("probabilities", "of shape (N,) or (N, C) with C > 1", f"shape {probabilities.shape}", cure)
    if not (jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == bool):
        fail("labels", "whole numbers", f"dtype {labels.dtype}", "Convert them: labels.astype(int).", TypeError)
    if labels.shape != probabilities.shape[:1]:
        cure = "Pass the class numbers themselves, not their one-hot form."
        fail("labels", f"of shape {probabilities.shape[:1]}", f"shape {labels.shape}", cure)
    labels = labels.astype(int)
    classes = 2 if probabilities.ndim == 1 else probabilities.shape[1]
    concrete, rows = known(labels), known(probabilities.sum(-1)) if probabilities.ndim == 2 else None
    if concrete is not None and (concrete.min() < 0 or concrete.max() >= classes):
        got = f"labels from {concrete.min()} to {concrete.max()}"
        cure = "Number the classes 0, 1, ...: np.unique(labels, return_inverse=True)[1]."
        fail("labels", f"between 0 and {classes - 1}", got, cure)
    if rows is not None and abs(rows - 1).max() > 1e-3:
        got = f"a row that sums to {rows[abs(rows - 1).argmax()]:.6g}"
        fail("probabilities", "rows that sum to 1", got, "Pass probabilities: jax.nn.softmax(logits).")
    return probabilities, labels


def check_censored(censored: ArrayLike, y: Array) -> Array:
    """Which of data ``(N,)`` are censored."""
    hidden = check_array("censored", censored)
    if hidden.dtype != bool:
        fail("censored", "boolean", f"dtype {hidden.dtype}", "Pass event == 0, or censored.astype(bool).", TypeError)
    if y.ndim != 1 or hidden.shape != y.shape:
        cure = "Pass one for each time."
        fail("censored", f"of shape ({y.size},), one for each datum", f"shape {hidden.shape}", cure)
    return hidden
