"""The default fit of few terms: steps in the hyper-parameters alone, each with the posterior of the terms at hand.

The bound is that of variational inference with the belief of `Conditional`. Data say about ``f`` at each row a normal
density ``exp(shift f - weight f^2 / 2)``: exactly, where noise is Gaussian; else by the derivatives of the expected log
density at the marginals of the moment, which are natural steps of length one. Given these sites the belief over all
inducing values is known in closed form at every value of the hyper-parameters (mathematics.md section 14.6), so that a
quasi-Newton method finds their mode, and its curvature their covariance.
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.gam.model.censoring import censored_row, with_sides
from numpyro_gp.gam.model.classes import contrasts, expected_log_softmax
from numpyro_gp.gam.model.families import Start
from numpyro_gp.gam.model.family import trials_at
from numpyro_gp.gam.model.features import CHUNK, RowFeatures, row_chunks
from numpyro_gp.gam.model.model import (
    ClosedFormPriors,
    CompiledPriors,
    Model,
    evaluate,
    offset_at,
    vector_layout_of,
)
from numpyro_gp.gam.search import bound_formulas as bounds
from numpyro_gp.gam.table.layout import as_labels
from numpyro_gp.programs.compiled import prepared

# What is told the loss of each evaluation, as a bar is.
WATCH: ContextVar[Callable[[float], object]] = ContextVar("WATCH", default=lambda _: None)
# Quasi-Newton steps between two site steps, where data are not Gaussian.
STEPS_OF_A_ROUND = 8
# Steps whose curvature is remembered: an evaluation costs more than the algebra of a few numbers, and SciPy's ten steps
# are fewer than the hyper-parameters of some terms.
REMEMBERED = 50
# Variances of the first site steps, which start from the prior: an expected rate under it may be anything.
FIRST_VARIANCE, FIRST_STEPS = 0.1, 3
# Most site steps at hyper-parameters that stay, how often one is halved, and the gain in nats below which they end.
MOST_STEPS, MOST_HALVINGS, ENOUGH = 20, 12, 1.0
# The round is the last one where the bound rose by less.
FLAT = 0.01
# Nats by which a bound may fall at a site step that moves hardly anything, by rounding.
HARDLY = 1e-4
# The loss, above the last one, where a step was so long that matrices of the bound have no Cholesky factor, and how far
# from where a round began the logarithm of a hyper-parameter may go: a flat direction leads to where exp overflows.
WALL, FAR = 1e6, 30.0
# Gaussian noise has a part of at least so many sizes of f: of data on a line no other noise is the likeliest.
LEAST_NOISE_OF_BOUND = 1e-6
# No hyper-parameter is less certain than this many units of its logarithm, where the bound is flat.
WIDEST = 2.0
# Standard deviations of f by which it may follow one of a parameter of the likelihood.
MOST_MOVED = 2.0


class Data(NamedTuple):
    """Rows of a fit: inputs ``(N, D)``, response, weights and the offset of ``f`` ``(N,)``.

    Successes among trials are labels here, whose log densities add up to that of the rows but for a ``constant``. Where
    responses are censored there are ``sides (N,)``.
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    offset: np.ndarray
    constant: float = 0.0
    sides: np.ndarray | None = None

    @classmethod
    def of(cls, model: Model) -> "Data":
        """The rows of a model, in double precision: single precision would lose what is small beside a large mean."""
        rows, constant = model.rows, 0.0
        X, y, mass = (np.asarray(one, float) for one in (rows.X, *as_labels(model.layout, rows)))
        if (n := trials_at(model.layout, X)) is not None:  # sum_n w_n log C(n, y): in how many orders labels may stand
            from scipy.special import gammaln  # not at import: only newer versions of NumPyro bring it

            constant = float(mass / n @ (gammaln(n + 1) - gammaln(rows.y + 1) - gammaln(n - rows.y + 1)))
        place = model.layout.censored
        sides = None if place is None else X[:, place]
        return cls(X, y, mass, np.broadcast_to(offset_at(model, X), y.shape), constant, sides)

    def part(self, rows: np.ndarray) -> "Data":
        """Some rows, which stand for all."""
        X, y, weights, offset = (value[rows] for value in self[:4])
        sides = None if self.sides is None else self.sides[rows]
        return Data(X, y, weights * (self.weights.sum() / weights.sum()), offset, self.constant, sides)


class Evaluation(NamedTuple):
    """The loss at pseudo-data and hyper-parameters ``free (d,)``, its slopes, and the belief behind it.

    ``inverse (M, M)`` whitens inducing values. Of responses that are not Gaussian there are the ``marginals`` of ``f``
    at rows, and ``next_pseudo_data`` one natural step further.
    """

    pseudo_data: bounds.RowPseudoData
    free: np.ndarray
    loss: float
    slopes: np.ndarray
    found: bounds.BoundValue | None = None
    inverse: np.ndarray | None = None
    marginals: tuple[np.ndarray, np.ndarray] | None = None
    next_pseudo_data: bounds.RowPseudoData | None = None


class BoundParts:
    """A model in the parts that a bound is made of."""

    def __init__(self, model: Model) -> None:
        self.model, self.vector_layout, self.sizes = model, vector_layout_of(model), np.array(model.sizes)
        has_own = self.vector_layout.priors is None
        self.evaluator = (CompiledPriors if has_own else ClosedFormPriors)(model, self.vector_layout)
        self._programs: dict[int, Callable[..., Any]] = {}  # by how many rows there are
        # Of softmax its contrasts, and what functions are around; of a named likelihood where its parameters are.
        row, classes, self.own = model.family.named, model.family.classes, list[int]()
        self.contrasts = None if classes is None else (contrasts(classes), model.start_of_classes)
        if classes is None and row is not None and row.expected is not None:
            self.own = [int(at) for name in row.priors(Start()) for at in self.vector_layout.places[name]]

    def density(self, free: np.ndarray, data: Data, mean: np.ndarray, variance: np.ndarray) -> bounds.ExpectedTotal:
        """The expected log density of a likelihood; parameters of a named one are not of the terms.

        Of softmax means ``(N, K - 1)`` and covariances are those of contrasts.
        """
        row, own, of_free = self.model.family.named, self.own, np.zeros(len(free))
        if self.contrasts is not None:
            H, start = self.contrasts
            each = expected_log_softmax(data.y, start + mean @ H.T, H @ variance @ H.T)
            each = each._replace(of_mean=each.of_mean @ H, of_variance=H.T @ each.of_variance @ H)
        elif row is None or row.expected is None:
            return self.compiled_density(free, data, mean, variance)
        else:
            row = row if data.sides is None else censored_row(row, data.sides)
            assert row.expected is not None
            each = row.expected(data.y, mean, variance, *(float(np.exp(free[at])) for at in own))
            if each.of_parameter is not None:
                of_free[own] = np.exp(free[own]) * (each.of_parameter @ data.weights)
        of_mean, of_variance = ((data.weights * one.T).T for one in (each.of_mean, each.of_variance))
        return bounds.ExpectedTotal(float(data.weights @ each.value), of_free, of_mean, of_variance)

    def compiled_density(
        self, free: np.ndarray, data: Data, mean: np.ndarray, variance: np.ndarray
    ) -> bounds.ExpectedTotal:
        """Of any likelihood."""

        def total(free: Array, mean: Array, variance: Array, y: Array, weights: Array, sides: Array | None) -> Array:
            likelihood = evaluate(self.model, self.vector_layout.by_name(free)).likelihood
            likelihood = likelihood if sides is None else with_sides(likelihood, sides)
            return jnp.sum(weights * likelihood.expected_log_prob(y, mean, variance))

        given = free, mean, variance, data.y, data.weights, data.sides
        arguments = [None if one is None else one.astype(self.vector_layout.dtype) for one in given]
        if len(data.y) not in self._programs:
            self._programs[len(data.y)] = prepared(jax.value_and_grad(total, (0, 1, 2)), *arguments)
        value, slopes = self._programs[len(data.y)](*arguments)
        return bounds.ExpectedTotal(float(value), *(np.asarray(one, float) for one in slopes))


class Bound:
    """The negative bound of some rows and its gradient at hyper-parameters ``(d,)``, less their log density.

    With ``tables`` sums over rows are those of the tables. Responses that are not Gaussian have ``pseudo_data``. The
    ``last`` evaluation is kept, and that of the last ``mode``: a search that tries other points comes back to it.
    """

    def __init__(self, parts: BoundParts, data: Data, tables: bounds.Tables | None = None) -> None:
        self.parts, self.data, self.tables = parts, data, tables
        self.is_exact, self.start = parts.vector_layout.is_exact, parts.evaluator.start
        self.residual = data.weights * (data.y - data.offset)
        self.response = float(data.weights.sum()), float(np.sum(self.residual * (data.y - data.offset)))
        classes = parts.model.family.classes
        shape = (len(data.y),) if classes is None else (len(data.y), classes - 1)
        self.pseudo_data = bounds.RowPseudoData(np.zeros(shape), np.zeros(shape + shape[1:]))  # rows say nothing yet
        self.losses: list[float] = []
        self.last: Evaluation | None = None
        self.mode: Evaluation | None = None
        self._X = data.X if tables is None else tables.grid
        is_held = len(self._X) <= CHUNK or not self.is_exact
        self._row_features = RowFeatures(parts.model, self._X) if is_held else None

    def __call__(self, free: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its slopes."""
        here = self.at(free)
        return here.loss, here.slopes

    def at(self, free: np.ndarray) -> Evaluation:
        """All of a point; what the last one and the last mode said is known."""
        for here in (self.last, self.mode):
            if here is not None and here.pseudo_data is self.pseudo_data and np.array_equal(here.free, free):
                break
        else:
            here = self._evaluated(free.copy())
            self.losses.append(here.loss)
            WATCH.get()(here.loss)
        self.last = here
        return here

    def _evaluated(self, free: np.ndarray) -> Evaluation:
        point, at, following = self.parts.evaluator(free), None, None
        values, of_free = point.values, np.zeros(len(free))
        if self.is_exact:  # Gaussian noise, of which sums over rows are enough
            sums: bounds.Sums | None = None
            held = self._row_features
            for rows, row_features in row_chunks(self.parts.model, self._X) if held is None else [(slice(None), held)]:
                features, inverse = row_features(values.lengths)
                if self.tables is not None:
                    one = bounds.summed_tables(features, self.tables, self.parts.sizes)
                else:
                    one = bounds.summed(features, self.data.weights[rows], self.residual[rows])
                sums = one if sums is None else bounds.Sums(*(a + b for a, b in zip(sums, one, strict=True)))
            assert sums is not None
            noise = float(np.hypot(values.noise, LEAST_NOISE_OF_BOUND * self.parts.model.start.size))
            result = bounds.gaussian_bound(sums, *self.response, values.scales, noise, self.parts.sizes)
            result = result._replace(of_noise=result.of_noise * float(values.noise) / noise)
        else:
            assert self._row_features is not None
            features, inverse = self._row_features(values.lengths)
            expected = functools.partial(self.parts.density, free, self.data)
            given = features, values.scales, self.parts.sizes, self.pseudo_data, self.data.offset
            with np.errstate(over="ignore", invalid="ignore"):  # far from the mode, from where a step comes back
                result, mean, variance, total = bounds.bound_at_pseudo_data(*given, expected)
                of_free, at, following = -total.of_free, (mean, variance), bounds.RowPseudoData.by(total, mean)
        bars = [result.of_scales, result.of_lengths.ravel(), np.array([result.of_noise, -1.0])]
        loss = float(result.loss - values.log_density - self.data.constant)
        slopes = np.concatenate(bars) @ point.slopes + of_free
        inverse = inverse / np.repeat(values.scales, self.parts.sizes)
        return Evaluation(self.pseudo_data, free, loss, slopes, result, inverse, at, following)

    def _loss(self, free: np.ndarray) -> float:
        return self(free)[0]

    def value(self, free: np.ndarray) -> float:
        """The loss alone, infinite where there is none."""
        try:
            loss = self._loss(free)
        except np.linalg.LinAlgError:
            return np.inf
        return loss if np.isfinite(loss) else np.inf

    def fit_pseudo_data(self, free: np.ndarray) -> None:
        """Site steps at fixed hyper-parameters, from the prior, until they gain little; none where sites are exact."""
        for step in range(0 if self.is_exact else MOST_STEPS):
            gain = self.step_pseudo_data(free, FIRST_VARIANCE if step < FIRST_STEPS else np.inf)
            if gain < ENOUGH and step >= FIRST_STEPS:
                break

    def step_pseudo_data(self, free: np.ndarray, cap: float = np.inf, slack: float = 0.0) -> float:
        """A natural step of the sites, halved until the bound rises, or falls by less than ``slack``; by how much.

        A whole step may go far beyond: the curvature that it takes is that at the marginals of now.
        """
        here = self.at(free)
        if self.is_exact:
            return 0.0
        old, new = self.pseudo_data, here.next_pseudo_data
        assert new is not None
        if np.isfinite(cap):
            assert here.marginals is not None
            mean, variance = here.marginals
            largest = variance if mean.ndim == 1 else np.trace(variance, axis1=1, axis2=2)[:, None, None]
            narrow = self.parts.density(
                free, self.data, mean, variance * np.minimum(1.0, cap / np.maximum(largest, cap))
            )
            new = bounds.RowPseudoData.by(narrow, mean)
        for part in 0.5 ** np.arange(MOST_HALVINGS):
            self.pseudo_data = bounds.RowPseudoData(*((1 - part) * a + part * b for a, b in zip(old, new, strict=True)))
            try:
                loss = self(free)[0]
            except np.linalg.LinAlgError:
                continue
            if loss < here.loss + slack + HARDLY or not np.isfinite(here.loss):
                return here.loss - loss
        self.pseudo_data = old
        self(free)
        return 0.0

    def with_settled_pseudo_data(self, free: np.ndarray, tolerance: float = 0.1 * FLAT) -> tuple[float, np.ndarray]:
        """At sites that follow the hyper-parameters, until neither the bound nor a slope moves by more."""
        loss, gradient = self(free)
        for _ in range(0 if self.is_exact else MOST_STEPS):
            before, slopes = loss, gradient
            self.step_pseudo_data(free, slack=tolerance)
            loss, gradient = self(free)
            if max(abs(loss - before), np.abs(gradient - slopes).max(initial=0)) < tolerance:
                break
        return loss, gradient

    def find_mode(self, free: np.ndarray, most_steps: int, root: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """The mode, by rounds of quasi-Newton steps and a site step; and whether the bound rises no more.

        Steps are in the coordinates that the lower ``root (d, d)`` of a covariance whitens. Its curvature need not be
        that of these rows: a step that overshoots is cut by the line search.
        """
        if not len(free):  # nothing but sites: the constant alone, of counts or labels
            self.with_settled_pseudo_data(free)
            return free, True
        is_whole = self.is_exact
        scale, before = np.eye(len(free)) if root is None else root, np.inf
        whitened = np.sqrt(2 * FLAT / len(free))  # the slope in whitened values at which a rise of FLAT is left
        slope = 1e-2 if root is None else whitened
        while (left := most_steps - len(self.losses)) > 0:
            # Of a fall relative to the loss: what a unit of the response adds to all losses must not end the search.
            size = max(abs(self(free)[0]), len(self.data.y))
            most = left if is_whole else STEPS_OF_A_ROUND
            result = self.descended(free, scale, maxiter=most, maxfun=left, gtol=slope, ftol=0.1 * FLAT / size)
            free = free + scale @ result.x
            if (is_whole and result.success) or before - result.fun < FLAT:
                if self.pseudo_data.has_doubt:  # rows that pull at each other: one step has not settled them
                    self.with_settled_pseudo_data(free)
                self.mode = self.at(free)
                return free, True
            before = result.fun
            self.step_pseudo_data(free)
            scale = scale @ np.linalg.cholesky(result.hess_inv.todense())  # the next round goes on with its curvature
            slope = whitened
        return free, False

    def descended(self, origin: np.ndarray, root: np.ndarray, **options: float) -> Any:
        """What quasi-Newton steps in ``z`` of ``origin + root z`` end at, as SciPy says it.

        A steep wall, from which a line search comes back, is where a step is far too long: above the least loss so far.
        """
        from scipy.optimize import minimize

        least = np.inf

        def white(z: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal least
            away = root @ z
            if np.abs(away).max(initial=0) < FAR:
                try:
                    loss, gradient = self(origin + away)
                    least = min(least, loss)
                    if np.isfinite(loss) and np.isfinite(gradient).all():
                        return loss, root.T @ gradient
                except np.linalg.LinAlgError:
                    pass
            return least + WALL, WALL * z / max(float(z @ z), np.finfo(float).tiny)

        options["maxcor"] = REMEMBERED
        return minimize(white, np.zeros(len(origin)), jac=True, method="L-BFGS-B", options=options)

    def covariance_root(self, free: np.ndarray) -> np.ndarray:
        """Lower root of the inverse curvature, by differences of gradients.

        Pseudo-data stay where a term moves, by which the curvature changes by less than a percent; where a parameter of
        the likelihood moves they follow, as the level of ``f`` may follow it: with the shape of a gamma it does.
        """
        if not len(free):
            return np.zeros((0, 0))
        layout = self.parts.vector_layout
        is_double = layout.priors is not None or layout.dtype == np.float64  # a compiled part may not be
        step = 1e-4 if is_double else 3e-2
        here = self(free)[1] if is_double else None  # a difference to one side is wrong by 1e-4, relative
        curvature = np.empty((len(free), len(free)))
        for place, move in enumerate(step * np.eye(len(free))):
            other, width = (here, step) if here is not None else (self(free - move)[1], 2 * step)
            curvature[place] = (self(free + move)[1] - other) / width
        curvature = 0.5 * (curvature + curvature.T)
        there = self.pseudo_data
        of_terms = [at for name, at in layout.places.items() if name.split(" ")[0] in ("f_scale", "f_lengthscale")]
        for place in [] if self.is_exact else np.setdiff1d(np.arange(len(free)), np.concatenate([*of_terms, []])):
            moved = [free + move * np.eye(len(free))[place] for move in (3e-2, -3e-2)]
            sides = []
            for one in moved:
                self.with_settled_pseudo_data(one)
                sides.append(self.at(one))
                self.pseudo_data = there
            more, less = sides
            assert more.marginals is not None
            assert less.marginals is not None
            row, mean = (more.slopes - less.slopes) / 6e-2, (more.marginals[0] - less.marginals[0]) / 6e-2
            # Draws of a parameter have the f of the mode: one that moves f by some of its sd, as cutpoints do, may not.
            if np.mean(mean**2) < MOST_MOVED**2 * np.mean(more.marginals[1]) * row[place]:
                curvature[place] = curvature[:, place] = row
        values, vectors = np.linalg.eigh(curvature)
        # The factor of the inverse, L = R^T for (V diag(1/t)^(1/2))^T = Q R: rounding cannot make it indefinite.
        root: np.ndarray = np.linalg.qr((vectors / np.sqrt(np.maximum(values, WIDEST**-2))).T)[1]
        return root.T * np.sign(np.diagonal(root))
