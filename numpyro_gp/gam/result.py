"""The result of ``ngp.gam``: predictions, terms, a summary and a figure, with all that made them in reach."""

import contextlib
import dataclasses
import io
import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_choice, check_count, check_level
from numpyro_gp.criticism import diagnose
from numpyro_gp.criticism.arviz import loo
from numpyro_gp.gam.effects import Effect, Moments, effects_of, moments_at
from numpyro_gp.gam.engines import JOINT, Fitted
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.summary import Summary, deviance_explained, some_rows, term_rows
from numpyro_gp.plots.terms import Points, draw_terms
from numpyro_gp.posterior import Posterior, Prediction
from numpyro_gp.training import FitResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURE_WORDS = {"empirical": "over the data", "uniform": "over the range", "gaussian": "over a normal"}
LINK_WORDS = {"identity": "effect on {}", "log": "effect on log mean of {}", "logit": "effect on logit of {}"}

# What a fit makes when it is asked for.
LATE = ("posterior", "guide", "key")
# Draws that `diagnose.verdict` looks at: each costs a dense factorisation.
LOOKS = 40
# Draws by which the density of left-out rows is found: each computes the features of all of them.
WEIGHED = 250
# Numbers in the features of the rows at which fitted and left-out values are found.
MOST_LOOKED = 10_000_000


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
    guide: Any
    result: FitResult | None
    engine: str
    steps: int
    notes: tuple[str, ...]
    key: Array

    @classmethod
    def later(cls, found: Fitted, model: Model, engine: str) -> "Fit":
        """A fit whose posterior, guide and key are made when they are first asked for."""
        late: Any = None
        fit = cls(model, late, late, found.result, engine, found.steps, found.notes, late)
        for name in LATE:
            del vars(fit)[name]
        vars(fit)["_found"] = found
        return fit

    def __getattr__(self, name: str) -> Any:
        if name in LATE and "_found" in vars(self):
            vars(self)[name] = getattr(vars(self)["_found"], name)
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Fit({self.model.terms}, family={self.model.family.name}, engine={self.engine}, steps={self.steps})"

    def predict(self, data: Any, *, num_samples: int | None = None) -> Prediction:
        """Predict the response for the rows of a table; see `Posterior.predict`."""
        return self.posterior.predict(self.key, self.model.encode(data), num_samples=num_samples)

    def terms(self, data: Any = None, *, num_draws: int | None = None) -> Moments:
        """Mean and standard deviation of each term, on the scale of the link, for the rows of a table or of the fit."""
        X = self.model.rows.X if data is None else np.asarray(self.model.encode(data))
        return moments_at(self.posterior, self.key, self.model, X, num_draws)

    def residuals(self, *, num_draws: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Working residuals of the rows of the fit on the scale of the link, and their weights ``(N,)``."""
        own = self.model
        found = moments_at(self.posterior, self.key, own, own.rows.X, num_draws)
        f = found.mean.sum(axis=1) + own.level(own.rows.X)
        slope = {"log": np.exp(f), "logit": 1 / (2 + np.exp(f) + np.exp(-f))}.get(own.family.link, np.ones(len(f)))
        mass = np.ones(len(f)) if own.rows.weights is None else own.rows.weights
        return _working_residuals(own.family.link, f, own.rows.y), mass * slope

    def effects(self, *, grid: int = 80, num_draws: int | None = None) -> dict[str, Effect]:
        """Each term as a curve, a surface or levels, in the units of the data."""
        return effects_of(self.posterior, self.key, self.model, check_count("grid", grid, 2), num_draws)[0]

    def summary(
        self, *, level: float = 0.9, density: bool = True, check: bool | None = None, num_draws: int | None = None
    ) -> Summary:
        """What the fit says, in one table.

        Parameters
        ----------
        level : float
            Of the intervals of shares.
        density : bool
            Whether to find the leave-one-out log density, by Pareto-smoothed importance sampling.
        check : bool, optional
            Whether to note what `diagnose.verdict` has to say. By itself it is asked up to 600 inducing inputs, whose
            covariances it holds as a matrix.
        num_draws : int, optional
            Draws of the posterior. By itself 250 for the density of left-out rows.
        """
        keys = jax.random.split(self.key, 4)
        own, arguments = self.model, self.model.arguments
        rows = term_rows(self.posterior, keys[0], own, num_draws, check_level(level)) if own.layout.parts else ()
        drawn = self.posterior.hyperparameters(keys[1], *arguments, num_samples=num_draws)
        others = {name: np.asarray(value) for name, value in drawn.items() if not name.startswith("f_")}
        r = float(others["r"].mean()) if "r" in others else np.nan
        # All rows, or with many terms some: each takes as many numbers as there are inducing inputs.
        some = some_rows(own, MOST_LOOKED, most_rows=None)
        seen = tuple(value[some] for value in arguments[:2])
        fitted = np.asarray(self.posterior.predict(self.key, seen[0], num_samples=num_draws).mean)
        facts: dict[str, Any] = {"family": own.family.name}
        facts["deviance explained"] = float(deviance_explained(own, fitted, r, some)) if fitted.ndim == 1 else np.nan
        notes = list(self.notes)
        of_these = "" if len(some) == len(own.rows.y) else f", of {len(some)} of them"
        if density:
            found = loo(self.posterior.to_arviz(keys[2], *seen, num_samples=num_draws or WEIGHED))
            facts["log density, left out"] = f"{found.elpd / len(some):.4f} per row{of_these}"
            if not found.is_reliable:
                bad = int((~(found.pareto_k <= found.good_k)).sum())
                notes.append(f"the log density left out is unreliable for {bad} rows: predict rows of a test set")
        facts |= {name: f"{value.mean():.4g} ± {value.std():.2g}" for name, value in others.items() if value.ndim == 1}
        facts["rows"] = f"{len(own.rows.y)} used, {own.rows.left_out} left out"
        facts["engine"] = f"{self.engine}, {self.steps} {'draws' if self.engine == 'nuts' else 'steps'}"
        if check is None and own.size > JOINT:
            facts["checks of the fit"] = f"left out for {own.size} inducing inputs: pass check=True"
        elif check is not False:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it returns
                findings = diagnose.verdict(self.posterior, *arguments[:2], key=keys[3], num_samples=num_draws or LOOKS)
            notes += [str(finding) for finding in findings]
        facts["terms average to zero"] = MEASURE_WORDS[own.measure]
        return Summary(str(own.terms), rows, facts, tuple(notes))

    def plot(
        self,
        *,
        level: float = 0.9,
        scale: str = "link",
        residuals: bool = True,
        simultaneous: bool = True,
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
        grid, num_draws : int
            Points of a curve, and draws of the posterior.
        path : optional
            File to write the figure to.
        """
        check_choice("scale", scale, ("link", "response"))
        effects, constant = effects_of(self.posterior, self.key, self.model, check_count("grid", grid, 2), num_draws)
        words = LINK_WORDS.get(self.model.family.link, "effect on f of {}").format(self.model.terms.response)
        words = words if scale == "link" else f"mean of {self.model.terms.response}, others at 0"
        measure = MEASURE_WORDS[self.model.measure]
        labels = {
            name: f"{words}\n({'prior mean 0' if effect.kind == 're' else f'mean 0 {measure}'})"
            for name, effect in effects.items()
        }
        points = self._points(residuals and scale == "link", num_draws)
        figure = draw_terms(
            effects,
            points,
            level=check_level(level),
            simultaneous=simultaneous,
            labels=labels,
            link=self.model.family.link if scale == "response" else "identity",
            constant=constant if scale == "response" else 0.0,
        )
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _points(self, residuals: bool, num_draws: int | None) -> dict[str, Points]:
        """Rows of the fit in the units of each term, at most 500, with their partial residuals."""
        own = self.model
        some = np.linspace(0, len(own.rows.y) - 1, min(len(own.rows.y), 500)).astype(int)
        X = own.rows.X[some]
        left = None
        if residuals:
            found = moments_at(self.posterior, self.key, own, X, num_draws)
            f = found.mean.sum(axis=1) + own.level(X)
            left = found.mean[:, :-1] + _working_residuals(own.family.link, f, own.rows.y[some])[:, None]
        result = {}
        for at, part in enumerate(own.layout.parts):
            columns = [own.layout.columns[one] for one in part.columns]
            values = tuple(
                X[:, one] if column.is_category else column.decode(X[:, one])
                for one, column in zip(part.columns, columns, strict=True)
            )
            result[part.name] = Points(values, None if left is None else left[:, at])
        return result


def _working_residuals(link: str, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(y - mean) / (d mean / d f)``: residuals on the scale of the link."""
    left: np.ndarray = y - f
    if link == "log":
        left = y * np.exp(-f) - 1
    elif link == "logit":
        mean = 1 / (1 + np.exp(-f))
        left = (y - mean) / np.maximum(mean * (1 - mean), 1e-3)
    return left
