"""Draws of the posterior of an additive model as numbers: hyper-parameters, and the normal distribution of the terms.

A fit by ``ngp.gam`` is a normal distribution of the unconstrained hyper-parameters, and beside each of them one of the
whitened values. Its draws come from NumPy's generator, seeded by the words of the key: nothing compiles.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs import BlockLowRank, Conditional
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.checks import check_count
from numpyro_gp.gam.hyperparameters import ClosedFormPriors, ModelValues, evaluate, vector_layout_of
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.per_row import has_numbers
from numpyro_gp.gam.term_features import ScaledFeatures, TermFeatures
from numpyro_gp.gam.term_posteriors import Dense, LowRank, Normal, Point, conditional
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.likelihoods import Likelihood
from numpyro_gp.posterior import Posterior
from numpyro_gp.posterior.sources import Source
from numpyro_gp.posterior.tracing import Draw, check_source, draws_of, trace_at
from numpyro_gp.programs.keep import run, run_quickly
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.look import look

# Draws of hyper-parameters where nobody says how many.
DRAWS = 100


class OfPseudoData(Sequence[Normal]):
    """What pseudo-data say of the whitened values at each draw of the hyper-parameters.

    Each is found once: from the factor that features at rows come with or, asked for before these, from its own.
    """

    def __init__(
        self, term_features: TermFeatures, found: ModelValues[np.ndarray], shift: np.ndarray, precision: np.ndarray
    ) -> None:
        self.term_features, self.shift, self.precision = term_features, shift, precision
        self.scales, self.lengths = np.asarray(found.scales, float), np.asarray(found.lengths, float)
        self._found: list[Normal | None] = [None] * len(self.scales)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: Any) -> Any:
        own = self._found[number]
        if own is None:
            own = self.at(number, self.term_features.factor(self.scales[number], self.lengths[number]))
        return own

    def at(self, number: int, factor: np.ndarray) -> Normal:
        """That at a draw whose factor is known."""
        own = self._found[number]
        if own is None:
            own = self._found[number] = conditional(self.shift, self.precision, factor)
        return own


class Draws(NamedTuple):
    """``S`` draws of the hyper-parameters of ``C`` components, the constant as the last, with what follows from them.

    Attributes
    ----------
    term_features : TermFeatures
        Of the model that they belong to.
    scales, lengths : array (S, C), (S, L)
    likelihood : Likelihood
        Its leaves have the draws on their first axis.
    values : dict of array (S, ...)
        Hyper-parameters by name.
    term_posteriors : sequence of Normal
        Of the whitened values, at each draw.
    log_ratio : array (S,), optional
        Log density of the hyper-parameters under their prior, less that under the fit; None where the fit has none.
    """

    term_features: TermFeatures
    scales: np.ndarray
    lengths: np.ndarray
    likelihood: Likelihood
    values: dict[str, np.ndarray]
    term_posteriors: Sequence[Normal]
    log_ratio: np.ndarray | None

    @property
    def model(self) -> Model:
        """The model that they belong to."""
        return self.term_features.model

    @property
    def size(self) -> int:
        """Number S of draws."""
        return len(self.scales)

    def each(self) -> Iterator[tuple[np.ndarray, np.ndarray, Normal]]:
        """Scales, lengthscales and the distribution of the whitened values of each draw."""
        return zip(self.scales, self.lengths, self.term_posteriors, strict=True)

    def at(self, X: np.ndarray) -> Iterator[tuple[Normal, ScaledFeatures]]:
        """The distribution of the whitened values of each draw, and the features that they have at encoded rows."""
        features_at, known = self.term_features.at(X), self.term_posteriors
        for number, (scales, lengths) in enumerate(zip(self.scales, self.lengths, strict=True)):
            scaled = features_at(scales, lengths)
            yield known.at(number, scaled.factor) if isinstance(known, OfPseudoData) else known[number], scaled


class GuideNormal(NamedTuple):
    """A normal distribution of the unconstrained hyper-parameters, in the order of their names.

    Attributes
    ----------
    loc, root : array (d,), (d, d)
    """

    loc: np.ndarray
    root: np.ndarray


def guide_normal_of(model: Model, params: Mapping[str, object]) -> GuideNormal | None:
    """The distribution that parameters of ``ngp.gam``'s own guides are; None of other ones."""
    shapes = vector_layout_of(model).shapes
    if {"auto_loc", "auto_scale_tril"} <= set(params):
        return GuideNormal(np.asarray(params["auto_loc"]), np.asarray(params["auto_scale_tril"]))
    names = [(f"{name}_auto_loc", f"{name}_auto_scale") for name in shapes]
    if not names or not {name for pair in names for name in pair} <= set(params):
        return None
    loc, scale = (np.concatenate([np.asarray(params[pair[at]]).ravel() for pair in names]) for at in (0, 1))
    return GuideNormal(loc, np.diag(scale))


def guide_draws(model: Model, key: Array, free: GuideNormal, count: int) -> ModelValues[np.ndarray]:
    """The `ModelValues` of draws of a fit by ``ngp.gam``, whose density is that of the prior over that of the fit.

    In NumPy where the model has the priors that it has by itself: nothing compiles.
    """
    layout = vector_layout_of(model)
    dtype = layout.dtype
    noise = np.random.default_rng(np.ravel(jax.random.key_data(key))).standard_normal((count, len(free.loc)))
    rows = free.loc + noise @ np.asarray(free.root, float).T
    own_density = -0.5 * (noise**2 + np.log(2 * np.pi)).sum(axis=1) - np.log(np.diag(free.root)).sum()
    if layout.priors is None:
        every = jax.vmap(lambda row: evaluate(model, layout.by_name(row)))
        found: ModelValues[np.ndarray] = jax.tree.map(np.asarray, run_quickly(every, rows.astype(dtype)))
        return found._replace(log_density=found.log_density - own_density, start={})
    priors = ClosedFormPriors(model, layout)
    each = [priors(row).values for row in rows]
    values = {
        name: np.exp(rows[:, at]).reshape(count, *layout.shapes[name]).astype(dtype)
        for name, at in layout.places.items()
    }
    lengths = values.get("f_lengthscale", np.zeros((count, 0), dtype))
    density = np.array([one.log_density for one in each]) - own_density
    scales = np.array([one.scales for one in each])
    return ModelValues(scales, lengths, model.family.stacked(values, count, dtype), values, density, {})


def sample_posterior(
    term_features: TermFeatures,
    params: Mapping[str, object] | None,
    posterior: Callable[[], Posterior],
    key: Array,
    num_draws: int | None,
) -> Draws:
    """Draws of a fit: of ``ngp.gam``'s own guides from their parameters, of all others from the posterior.

    Parameters
    ----------
    params : dict, optional
        Those of a variational fit.
    posterior : callable
        What makes the library's posterior.
    num_draws : int, optional
        All that are stored; of a guide 100, or one where hyper-parameters are known.
    """
    model = term_features.model
    free = None if params is None else guide_normal_of(model, params)
    if params is None or free is None:
        found, term_posteriors = _of_posterior(term_features, posterior(), key, num_draws)
        log_ratio = None
    else:
        count = (DRAWS if len(free.loc) else 1) if num_draws is None else check_count("num_draws", num_draws)
        found = guide_draws(model, key, free, count)
        log_ratio = np.asarray(found.log_density)
        names = [f"f{NATURAL_MARK}{name}" for name in ("shift", "precision")]
        if set(names) <= set(params):
            term_posteriors = OfPseudoData(term_features, found, *(np.asarray(params[name], float) for name in names))
        else:
            term_posteriors = _of_belief(term_features, found, _read(posterior(), model, key, 1)[0])
    scales, lengths = np.asarray(found.scales, float), np.asarray(found.lengths, float)
    values = {name: np.asarray(value) for name, value in found.values.items()}
    return Draws(term_features, scales, lengths, found.likelihood, values, term_posteriors, log_ratio)


def _read(posterior: Posterior, model: Model, key: Array, num_draws: int | None) -> tuple[Any, Callable[[], Any]]:
    """Return the value of the process at the first draw of a posterior, and what reads the values of all its draws."""
    X = model.arguments[0]  # one row is enough, but for a likelihood that has a number for each
    call = call_of(posterior.model, (X if has_numbers(model.family, len(X)) else X[:1],), {})
    is_random = check_source(posterior, call, look(posterior.fitted_model, call).sites, frozenset({"data"}))
    index = posterior.spread(num_draws, is_random)

    def values_at(own: Posterior, draw: Draw, arrays: list[Array]) -> dict[str, Any]:
        found = own.source.values(jax.random.split(draw[0])[0], draw[1], call.at(arrays))
        if "f" not in found:  # particles in the coordinates of a fit: the model says which values they stand for
            found = found | {"f": trace_at(own, draw, call.at(arrays), frozenset({"data"}))["f"]["value"]}
        return found

    first = jax.tree.map(lambda leaf: leaf[0], draws_of(key, index))
    at = lambda source, draw, arrays: values_at(posterior.at(source), draw, arrays)["f"]  # noqa: E731
    belief = run(at, posterior.source, first, call.arrays)
    is_fixed = isinstance(belief, (Conditional, BlockLowRank))  # the same at every draw, as parameters are

    def one(own: Posterior, draw: Draw, arrays: list[Array]) -> tuple[ModelValues[Array], object]:
        values = values_at(own, draw, arrays)
        f = values.pop("f")
        whitened = None if is_fixed else (f.whitened() if isinstance(f, AbstractBelief) else f)
        return evaluate(model, values, is_free=False), whitened

    def every(source: Source, draws: object, arrays: list[Array]) -> Any:
        return jax.lax.map(lambda draw: one(posterior.at(source), draw, arrays), draws)

    return belief, lambda: jax.tree.map(np.asarray, run(every, posterior.source, draws_of(key, index), call.arrays))


def _of_posterior(
    term_features: TermFeatures, posterior: Posterior, key: Array, num_draws: int | None
) -> tuple[ModelValues[np.ndarray], Sequence[Normal]]:
    """Draws of the library's own posterior: chains, particles, and guides of any kind."""
    belief, read = _read(posterior, term_features.model, key, num_draws)
    found, each = read()
    if each is None:
        return found, _of_belief(term_features, found, belief)
    if not isinstance(each, tuple):
        return found, [Point(np.asarray(values, float)) for values in each]
    return found, [Dense(np.asarray(m, float), np.asarray(root, float).T) for m, root in zip(*each, strict=True)]


def _of_belief(term_features: TermFeatures, at: ModelValues[np.ndarray], belief: AbstractBelief) -> Sequence[Normal]:
    """The normal distribution of the whitened values at each draw, by a belief that is the same at all."""
    if isinstance(belief, Conditional):
        return OfPseudoData(term_features, at, *(np.asarray(part, float) for part in belief.said))
    if isinstance(belief, BlockLowRank):
        stacks = Stacks.of(belief.precision_trils)
        factors = [np.asarray(part, float) for part in stacks.stacked(belief.precision_trils)]
        mean, W = np.asarray(belief.mean, float), np.asarray(belief.W, float)
        return [LowRank(mean, factors, W, term_features.blocks)] * len(at.scales)
    m, factor = belief.whitened()
    return [Dense(np.asarray(m, float), np.asarray(factor, float).T)] * len(at.scales)
