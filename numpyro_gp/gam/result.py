"""``ngp.gam``: from a formula and a table to a fit, which predicts, shows its terms, sums up and is saved."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.additive.effects import Effects
from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_choice, check_count, check_key, check_level, fail
from numpyro_gp.gam.answers import classes, predictions
from numpyro_gp.gam.answers.advice import notes_on
from numpyro_gp.gam.answers.coefficients import Coefficients
from numpyro_gp.gam.answers.draws import Draws, sample_posterior
from numpyro_gp.gam.answers.effects import MEASURE_WORDS, TermMoments, labels_of, moments_at
from numpyro_gp.gam.answers.forecast import Forecast, next_rows
from numpyro_gp.gam.answers.saved import read, write
from numpyro_gp.gam.answers.summary import Summary, checked, facts_of, report_on_rows
from numpyro_gp.gam.model.censoring import said_of, sides_at
from numpyro_gp.gam.model.family import is_residual, log_ratio, residuals_at, size_of_counts
from numpyro_gp.gam.model.features import TermFeatures
from numpyro_gp.gam.model.model import Model, model, offset_at
from numpyro_gp.gam.search.engines import JOINT, EngineResult, guide_of, of_values, run_engine, set_up
from numpyro_gp.gam.table.layout import as_labels
from numpyro_gp.plots.style import Figure
from numpyro_gp.plots.terms import Points, draw_terms
from numpyro_gp.posterior import Posterior, Prediction
from numpyro_gp.rows.batches import some_rows
from numpyro_gp.training import FitResult
from numpyro_gp.training.fit import shows_bars

# Draws of the hyper-parameters behind tables and figures of many terms: each computes the features of all of them.
DRAWS_OF_MANY_TERMS = 25


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """What `ngp.gam` returns.

    Attributes
    ----------
    model : Model
        The NumPyro model function, with the rows of the fit in ``model.arguments``.
    posterior : Posterior
    guide : AutoGP or None
        Of a variational fit.
    result : FitResult or None
        Parameters and losses of a variational fit, and particles.
    engine : str
    steps : int
        Of the engine: steps, or draws.
    notes : tuple of str
    key : PRNG key

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, numpyro_gp as ngp
    >>> data = {"x": np.arange(5.0), "y": np.arange(5) ** 2}
    >>> model = ngp.gam.model("y ~ linear(x)", data, "poisson")
    >>> draws = {"f_scale": jnp.ones((3, 1)), "f": jnp.zeros((3, 2))}   # those of a sampler of your own
    >>> posterior = ngp.Posterior.from_mcmc(model, draws)
    >>> fit = ngp.gam.Fit(model, posterior, None, None, "nuts", 3, (), jax.random.key(0))
    >>> fit.predict({"x": [0.5]}).mean.shape
    (1,)
    """

    model: Model
    posterior: Posterior
    guide: object
    result: FitResult | None
    engine: str
    steps: int
    notes: tuple[str, ...]
    key: Array
    # A field, for `dataclasses.replace` copies fields alone.
    _unrounded: Mapping[str, np.ndarray] | None = None

    @classmethod
    def _later(cls, found: EngineResult, model: Model, engine: str, key: Array) -> "Fit":
        """A fit whose posterior and guide are made when they are first asked for, if the engine has left none."""
        late: Any = found.posterior
        fit = cls(model, late, found.guide, found.result, engine, found.steps, found.notes, key, found.in_double)
        if late is None:
            del vars(fit)["posterior"], vars(fit)["guide"]
        return fit

    def __getattr__(self, name: str) -> Any:
        if name in ("posterior", "guide") and vars(self).get("result"):
            guide = set_up(guide_of(self.model), self.model)  # which takes a second to learn the sites of the model
            posterior = Posterior.from_svi(self.model, guide, vars(self)["result"].params)
            vars(self).update(posterior=posterior, guide=guide)
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_term_features", "_drawn")}

    def __repr__(self) -> str:
        return f"Fit({self.model.terms}, family={self.model.family.name}, engine={self.engine}, steps={self.steps})"

    @functools.cached_property
    def _term_features(self) -> TermFeatures:
        """The features of all terms, as the engine saw them."""
        return TermFeatures(self.model, is_of_programs=self._in_double is None)

    @functools.cached_property
    def _in_double(self) -> dict[str, np.ndarray] | None:
        """Parameters of a fit in double precision, before they were rounded; None of other engines, or of others."""
        own, rounded = self._unrounded, None if self.result is None else self.result.params
        if own is None or rounded is None or own.keys() != rounded.keys():
            return None
        is_same = all(np.array_equal(own[name].astype(value.dtype), value) for name, value in rounded.items())
        return dict(own) if is_same else None

    @property
    def _params(self) -> dict[str, Any] | None:
        """Parameters of a variational fit or of particles, before they were rounded where that is known."""
        return None if self.result is None else self._in_double or dict(self.result.params)

    def _draws(self, num_draws: int | None = None) -> Draws:
        """Draws of the posterior as numbers: hyper-parameters, and the normal distribution of the terms beside each.

        All that are stored; of a variational fit 100.
        """
        cached = vars(self).setdefault("_drawn", {})
        if num_draws not in cached:
            params = self._params if self.engine == "svi" else None
            cached[num_draws] = sample_posterior(
                self._term_features, params, lambda: self.posterior, self.key, num_draws
            )
        return cached[num_draws]

    def _some(self, num_draws: int | None) -> Draws:
        """Draws for what is averaged over them: fewer by themselves where terms are many."""
        is_few = num_draws is None and sum(self.model.sizes) > JOINT and self.engine == "svi"
        return self._draws(DRAWS_OF_MANY_TERMS if is_few else num_draws)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([number, *np.ravel(jax.random.key_data(self.key)).tolist()])

    def _refuse_classes(self, what: str, cure: str) -> None:
        """Refuse what several classes do not have."""
        if self.model.classes is not None:
            fail("the family", f"one with {what}", repr(self.model.family.name), cure)

    def predict(self, data: object, *, num_samples: int | None = None) -> Prediction | classes.ClassPrediction:
        """Predict the response for the rows of a table, as `Posterior.predict` does but for its random draws.

        Of several classes the mean has their probabilities ``(N, K)``, in the order of ``classes``.

        Quantiles of a named family are those of `quantiles`, in NumPy, where a posterior compiles what draws them.

        Rows with missing values are predicted as NaN, with one warning that counts them; so they are by `quantiles`,
        `interval` and `terms`. Rows far outside of those of the fit are warned of where a term returns to its mean
        there: `trend` goes on.
        `warnings.filterwarnings("ignore", "Terms return to their mean")` silences the warning.
        """
        return self._predicted(self._rows_of(data), num_samples)

    def _rows_of(self, data: object) -> np.ndarray:
        """Encoded rows of a table that a user's call names, with warnings of what they miss and where they lie."""
        X = self.model.layout.encode(data, has_missing=True)
        predictions.warn_missing(X, stacklevel=4)
        predictions.warn_outside(self.model, X, stacklevel=4)
        return X

    def _predicted(self, X: np.ndarray, num_samples: int | None = None) -> Any:
        """Of encoded rows, wherever they lie."""
        if self.model.classes is not None:
            return classes.predicted_classes(self._draws(num_samples), X, self.key)
        return predictions.predicted(self._draws(num_samples), X, self.key)

    def predictor(self, *, num_samples: int | None = None) -> predictions.TableRowPredictor:
        """What predicts one row again and again, as a service does: ``predictor({"age": 60, "site": "west"})``.

        It is made once, and predicts in NumPy with nothing to compile: the mean, variance, quantiles, and the mean and
        variance of ``f``, as of `predict`, and ``interval(0.9)`` of the mean. Time goes with draws and with the square
        of inducing inputs.

        Parameters
        ----------
        num_samples : int, optional
            Draws of the posterior, as for `predict`.
        """
        return predictions.TableRowPredictor(self._draws(num_samples))

    def quantiles(
        self, data: object, levels: float | Sequence[float] = (0.05, 0.5, 0.95), *, num_samples: int | None = None
    ) -> np.ndarray:
        """Quantiles of the response for the rows of a table, ``(levels, N)``: by themselves the median and 90 %.

        Of each new datum, noise included; ``num_samples`` are draws of the posterior, as for `predict`. Exact where
        noise is normal, else from 2000 draws; of a named family by NumPy, which compiles nothing.
        """
        self._refuse_classes("quantiles", "Take fit.predict(data).mean, the probabilities, or fit.interval(data).")
        X, wanted = self._rows_of(data), predictions.check_levels(levels)
        if self.model.family.named is None:
            return np.asarray(self._predicted(X, num_samples).quantiles(wanted))
        draws, found = self._draws(num_samples), []  # of a family with a name by NumPy, which compiles nothing
        for rows, mean, variance in predictions.in_parts(draws, X):
            likelihood = draws.likelihood_at(X[rows], np.arange(rows.start, rows.stop)).uncensored
            found.append(predictions.new_quantiles(likelihood, mean, variance, wanted))
        return np.concatenate(found, axis=1).astype(float)

    def interval(
        self, data: object, level: float = 0.9, *, num_samples: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends ``(N,), (N,)`` of an interval of the mean of the response for the rows of a table.

        Of a rate, a probability or an average, which more rows make narrower: a new datum, with its noise, is in
        `quantiles`. Of several classes of the probability of each, ``(N, K)``. ``num_samples`` are draws of the
        posterior, as for `predict`.
        """
        ends = predictions.mean_interval if self.model.classes is None else classes.probability_interval
        return ends(self._draws(num_samples), self._rows_of(data), check_level(level))

    def forecast(self, steps: int, data: object = None, *, num_samples: int | None = None) -> Forecast:
        """Predict the next rows of a series, by the step of its rows: after the last one, numbers or dates.

        Parameters
        ----------
        steps : int
            How many rows. Dates of each month, quarter or year go on so, and working days; where steps differ, ask
            `predict` with rows of your own.
        data : table, optional
            Other columns of the formula in the next rows: ``{"price": prices, "shop": "west"}``, a value for each row
            or one for all.
        num_samples : int, optional
            Draws of the posterior, as for `predict`.
        """
        self._refuse_classes("the next value of a series", "Predict rows of your own: fit.predict(data).")
        time, table, past = next_rows(self.model, steps, data)
        X = self.model.layout.encode(table)
        predictions.warn_outside(self.model, X, stacklevel=3)
        response, y = self.model.layout.response_column.name, self.model.rows.y
        return Forecast(time, response, table[time], self._predicted(X, num_samples), (past, y))

    def terms(self, data: object = None, *, num_draws: int | None = None) -> TermMoments:
        """Mean and standard deviation of each term, on the scale of the link, for the rows of a table or of the fit.

        The last, "constant", is the intercept: means of all terms add up to that of ``f``, but for offsets. Of several
        classes they are those of each class, named "setosa: s(x)", less the average of all.
        """
        X = self.model.rows.X if data is None else self.model.layout.encode(data, has_missing=True)
        predictions.warn_missing(X, stacklevel=3)
        return classes.moments_of_functions(self._some(num_draws), X)

    @property
    def intercept(self) -> float:
        """The mean of the constant on the scale of the link: with the means of all terms and offsets it is that of f.

        ``fit.predict(data).function_mean`` is that sum.
        """
        self._refuse_classes("one intercept", 'Take fit.coefficients(), which has that of each: ["setosa: intercept"].')
        found = moments_at(self._some(None), self.model.rows.X[:1])
        return float(found.mean[0, -1] + self.model.start.constant)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one file (NumPy's format, no pickle), which `ngp.gam.load` reads.

        It holds the rows of the fit, too: summary and figure are of them. A likelihood that is no name is left out, and
        is passed to `load` again.
        """
        is_svi, result = self.engine == "svi", self.result
        if is_svi and result is None:
            cure = "Save the posterior: fit.posterior.save(path)."
            fail("a fit to save", "one that ngp.gam made", "one of a guide of your own", cure)
        losses, posterior = None if result is None else np.asarray(result.losses), None if is_svi else self.posterior
        content = {name: getattr(self, name) for name in ("model", "engine", "steps", "notes", "key")}
        found = {"params": self._params, "is_double": self._in_double is not None, "losses": losses}
        write(path, content | found | {"posterior": posterior})

    def residuals(self, *, num_draws: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Working residuals of the rows of the fit on the scale of the link, and their weights ``(N,)``.

        A censored row has none, and weight zero.
        """
        self._refuse_classes("residuals", "Take (y == name) less the probability of the class, of fit.predict(data).")
        return self._residuals(num_draws, is_strict=True)

    def _residuals(self, num_draws: int | None = None, is_strict: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Of a likelihood of the user's own too, if not strict, where ``f`` stands for its mean."""
        own, count, draws = self.model, len(self.model.rows.y), self._some(num_draws)
        offset = offset_at(own, own.rows.X) - own.start.constant
        f = self.terms(num_draws=num_draws).mean.sum(axis=1) + offset + log_ratio(draws.likelihood).mean(axis=0)
        if is_strict and not is_residual(own.family.link, draws.likelihood_at(own.rows.X, np.arange(count)), f):
            cure = "Take y less fit.predict(data).mean, of labels less the probability of a class."
            fail("the likelihood of residuals", "one whose mean is a known function of f", own.family.name, cure)
        r = size_of_counts(draws.likelihood, count)
        link, (y, mass) = own.family.link, as_labels(own.layout, own.rows)
        left, weights = residuals_at(link, f, y), mass * own.family.weights(f, r)
        if (sides := sides_at(own.layout, own.rows.X)) is not None:
            left, weights = np.where(sides == 0, (left, weights), [[np.nan], [0.0]])
        return left, weights

    def effects(self, *, grid: int = 80, num_draws: int | None = None) -> Effects:
        """Each term as a curve, a surface or levels, in the units of the data; ``.to_frame()`` is a table of pandas.

        Of several classes each has its own, named "setosa: s(x)", less the average of all.
        """
        return classes.effects_of_functions(self._some(num_draws), check_count("grid", grid, 2), self._rng(0))[0]

    def coefficients(self, level: float = 0.9, *, num_draws: int | None = None) -> Coefficients:
        """Slopes, levels and the intercept with intervals; the sd of each ``re``, the lengthscale of each curve.

        Slopes are per unit of their column, on the scale of the link. The levels of a ``factor`` are around its
        average, and behind them each stands less the first, "drug - none". The intercept is ``f`` where all terms are
        zero. A lengthscale is in the units of its column, of a cyclic one along the circle. Where the link is a logit
        or a log there are odds or rate ratios, too: ``exp`` of estimate and ends. Printed, it is a table.
        ``fit.coefficients()["linear(dose)"].estimate`` reads a row, and ``.to_frame()`` makes a table of pandas. Of
        several classes each has its own, named "setosa: linear(x)", less the average of all; sds and lengthscales are
        those of all.

        Parameters
        ----------
        level : float
            Of the intervals.
        num_draws : int, optional
            Draws of the hyper-parameters, as for `summary`: the intervals of sds and lengthscales are theirs.
        """
        return classes.coefficients_of_functions(self._some(num_draws), check_level(level))

    def summary(
        self, *, level: float = 0.9, density: bool = True, check: bool | None = None, num_draws: int | None = None
    ) -> Summary:
        """What the fit says, in one table.

        Parameters
        ----------
        level : float
            Of the intervals.
        density : bool
            Whether to find the leave-one-out log density, by Pareto-smoothed importance sampling.
        check : bool, optional
            Whether to note what `diagnose.verdict` has to say of noise, inducing inputs, residuals, calibration, chains
            and importance weights. By itself it leaves the last out where it does not look at all rows: with more than
            5000, or with many terms. True has them, from all rows. Several classes have none of it.
        num_draws : int, optional
            Draws of the hyper-parameters: 100, or 25 above 600 inducing inputs. The terms are drawn 1000 times in all.
        """
        own, rng = self.model, self._rng(1)
        draws = self._some(num_draws)
        if check:
            self._refuse_classes("checks", "Compare fit.predict(held_out).log_density(classes) of several fits.")
        result = report_on_rows(draws, check_level(level), rng) if own.classes is None else None
        if result is None:
            (table, facts), notes = classes.report_on_classes(draws, check_level(level), density, rng), list[str]()
        else:
            (facts, notes), table = facts_of(draws, result, density), result.rows
        reasons = ", ".join(f"{count} {reason}" for reason, count in own.rows.reasons)
        facts["rows"] = f"{len(own.rows.y)} used, {own.rows.left_out} left out" + f" ({reasons})" * bool(reasons)
        if (sides := sides_at(own.layout, own.rows.X)) is not None:
            facts["censored"] = said_of(sides)
        if own.classes is None and (levels := own.layout.response_column.levels):
            facts["response"] = f"1 is {levels[1]!r}, 0 is {levels[0]!r}"
        facts["engine"] = f"{self.engine}, {self.steps} {'draws' if self.engine == 'nuts' else 'steps'}"
        if check is not False and result is not None:
            posterior = None if self.engine == "svi" else self.posterior
            words, said = checked(draws, result, posterior, bool(check), rng, self.steps)
            facts["checks of the fit"], notes = words, [*notes, *notes_on(own, result.rows), *said]
        if result is not None:
            facts["intercept"] = "{:.4g} ± {:.2g}".format(*result.constant)
        if {part.term.kind for part in own.layout.read_terms} & {"linear", "re"}:
            for row in classes.coefficients_of_functions(draws, level, has_levels=False):
                if "linear(" in row.term or row.term.startswith("sd of "):
                    facts[row.term] = f"{row.estimate:.4g} ± {row.sd:.2g} ({row.low:.4g} to {row.high:.4g})"
        facts["terms average to zero"] = MEASURE_WORDS[own.measure]
        facts["intervals"] = f"{100 * level:g} %"
        return Summary(str(own.terms), table, facts, (*self.notes, *notes))

    def plot(
        self,
        *,
        level: float = 0.9,
        scale: str = "link",
        residuals: bool = True,
        simultaneous: bool = True,
        sharey: bool = True,
        grid: int = 80,
        num_draws: int | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> "Figure":
        """Draw every term: curves with bands and partial residuals, surfaces, levels with intervals.

        Parameters
        ----------
        level : float
            Of the bands. The dark one holds for each value, the light one for the whole curve at once.
        scale : {"link", "response"}
            The scale of the link, where terms add; or the mean of the response with all other terms at zero.
        residuals, simultaneous : bool
            Whether to draw partial residuals, and the second band.
        sharey : bool
            Whether curves and levels have one vertical range, so that their sizes can be compared.
        grid, num_draws : int
            Points of a curve, and draws of the posterior.
        path : optional
            File to write the figure to; a ``.pdf`` has lines in place of points.
        """
        check_choice("scale", scale, ("link", "response"))
        if scale == "response" and self.model.family.link in ("none", "softmax"):
            cure = 'Pass scale="link", which draws terms of f, or look at fit.predict.'
            fail("scale", "'link' where the mean is no known function of f", repr(scale), cure)
        draws = self._some(num_draws)
        effects, constant = classes.effects_of_functions(draws, check_count("grid", grid, 2), self._rng(0))
        constant += log_ratio(draws.likelihood).mean()
        figure = draw_terms(
            effects,
            self._points(draws, residuals and scale == "link" and self.model.classes is None),
            level=check_level(level),
            simultaneous=simultaneous,
            sharey=sharey,
            labels=labels_of(self.model, effects, scale),
            link=self.model.family.link if scale == "response" else "identity",
            constant=constant if scale == "response" else 0.0,
        )
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _points(self, draws: Draws, residuals: bool) -> dict[str, Points]:
        """Rows of the fit in the units of each term, at most 500, with their partial residuals; no censored rows."""
        own, rows = self.model, self.model.rows
        sides = sides_at(own.layout, rows.X)
        observed = np.arange(len(rows.y)) if sides is None else np.flatnonzero(sides == 0)
        some = observed[some_rows(len(observed), 500)]
        X, left = rows.X[some], None
        if residuals:
            found, y = moments_at(draws, X), as_labels(own.layout, rows)[0][some]
            ratio = np.broadcast_to(log_ratio(draws.likelihood).mean(axis=0), len(rows.y))[some]
            f = found.mean.sum(axis=1) + offset_at(own, X) + ratio
            if is_residual(own.family.link, draws.likelihood_at(X, some), f):
                left = found.mean[:, :-1] + residuals_at(own.family.link, f, y)[:, None]
        result: dict[str, Points] = {}
        for at, part in enumerate(own.layout.read_terms):
            read = X[:, list(part.columns)]
            if part.term.kind == "season":  # in the last period, where its curve is drawn
                start, end = own.kernel_data.periods[part.name]
                last = rows.X[:, part.columns[0]].max() - (end - start)
                read = last + (read - last) % (end - start)
            pairs = zip(read.T, part.columns, strict=True)
            values = tuple(own.layout.columns[number].decode(one) for one, number in pairs)
            here = Points(values, None if left is None else left[:, at])
            result |= dict.fromkeys(own.of_classes(part.name), here)
        return result


# --------------------------------------------------------------------------------------
# ``ngp.gam``: from a formula and a table to a fit.


def fit(
    terms: object,
    data: object,
    family: object = "gaussian",
    *,
    response: str | None = None,
    weights: object = None,
    trials: str | None = None,
    censored: object = None,
    measure: str = "empirical",
    engine: str = "svi",
    num_steps: int | None = None,
    batch: int | None = None,
    tables: bool = True,
    key: Array | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit an additive model to a table: what ``ngp.gam(...)`` calls.

    Columns are standardised, the constant starts at the link of the mean, and priors have the scale of a quick GLM.

    Parameters
    ----------
    terms, data, family, response, weights, trials, censored, measure
        As of `ngp.gam.model`.
    engine : {"svi", "nuts", "svgd"}
        Variational inference until the bound no longer rises; Markov chains; Stein particles. With up to 600 inducing
        inputs a step is one of a quasi-Newton method in the hyper-parameters, with the terms integrated out; with more,
        with very many rows or with ``batch``, natural steps in the terms and Adam's in all else.
    num_steps : int, optional
        Most steps of variational inference, 2000, or how many stochastic ones; draws of a chain, 500; particles, 20.
    batch : int, optional
        Rows of a stochastic step. By themselves steps are stochastic, of 2048 rows above 10 000 rows, where terms have
        more than 600 inducing inputs, or noise is not Gaussian and features of all rows have over 40 million numbers.
    tables : bool
        Whether more than 10 000 rows with Gaussian noise, where each term reads one column, are counted in tables
        first. Features are then interpolated on the way to the mode, and those of the rows themselves at the end.
    key : PRNG key, optional
        ``jax.random.key(0)``.
    progress : bool, optional
        Show bars. By itself on a terminal and in a notebook, of variational inference after two seconds.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
    >>> fit = ngp.gam("y ~ linear(dose)", data)
    >>> fit.engine, fit.predict({"dose": [0.5]}).mean.round(2).tolist()
    ('svi', [0.5])
    """
    check_choice("engine", engine, ("svi", "nuts", "svgd"))
    if key is not None:
        check_key("key", key)
    for name, value in (("num_steps", num_steps), ("batch", batch)):
        if value is not None:
            check_count(name, value)
    built = model(
        terms,
        data,
        family,
        response=response,
        weights=weights,
        trials=trials,
        censored=censored,
        measure=measure,
    )
    found = run_engine(key, built, engine, num_steps, batch, tables, shows_bars(progress))
    if key is None:  # the words of jax.random.split(jax.random.key(0))[1]: to make it would be all that compiles
        later = jax.random.wrap_key_data(jnp.asarray(np.array([928981903, 3453687069], np.uint32)), impl="threefry2x32")
    else:
        later = jax.random.split(key)[1]
    return Fit._later(found, found.model or built, engine, later)


def load(path: str | os.PathLike[str], family: object = None) -> Fit:
    """Read a fit that `Fit.save` wrote: predictions, terms, summary and figure as before, and nothing is fitted.

    Parameters
    ----------
    path : path
    family : likelihood or function, optional
        That of the fit, where it was none of the names: a file holds no function.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import os, tempfile, numpy as np, numpyro_gp as ngp
    >>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ngp.gam("y ~ linear(dose)", data).save(os.path.join(folder, "fit.npz"))
    ...     again = ngp.gam.load(os.path.join(folder, "fit.npz"))
    >>> again.predict({"dose": [0.5]}).mean.round(2).tolist()
    [0.5]
    """
    saved = read(path, family)
    found = of_values(*(saved[name] for name in ("params", "losses", "steps", "notes", "is_double")))
    return Fit._later(found._replace(posterior=saved["posterior"]), saved["model"], saved["engine"], saved["key"])
