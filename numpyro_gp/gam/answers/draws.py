"""Normal distributions of the whitened values of all terms, in NumPy: dense, or of blocks and a low rank.

The terms at rows are ``f_c = A_c^T v_c``, of features ``A (M, N)``, and what inducing inputs leave open. Each class
says what ``cov v = S`` adds, in the methods of `Dense`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs import BlockLowRank, Conditional
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.checks import check_count
from numpyro_gp.gam.answers.exact_rows import NEW_ROWS_TOGETHER, ExactRows
from numpyro_gp.gam.model.censoring import sides_at, with_sides
from numpyro_gp.gam.model.families import Start
from numpyro_gp.gam.model.family import at_places, has_numbers, trials_at, with_trials
from numpyro_gp.gam.model.features import ScaledFeatures, TermFeatures, factored
from numpyro_gp.gam.model.model import ClosedFormPriors, Model, ModelValues, evaluate, vector_layout_of
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.likelihoods import Gaussian, Likelihood
from numpyro_gp.posterior import Posterior
from numpyro_gp.posterior.tracing import Draw, at_each_draw, check_source, draws_of, trace_at
from numpyro_gp.programs.compiled import run, run_quickly
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import look


class Dense(NamedTuple):
    """``N(m, H^T H)`` with a square ``H (M, M)``; of a point, a draw of a chain or a particle, ``H`` is ``(0, M)``."""

    mean: np.ndarray
    half: np.ndarray

    @classmethod
    def point(cls, mean: np.ndarray) -> "Dense":
        """Values that are known."""
        return cls(mean, np.zeros((0, len(mean))))

    @property
    def is_point(self) -> bool:
        """Whether all values are known."""
        return not len(self.half)

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        """``a^T S a`` of each row ``(N,)``."""
        seen = self.half @ A
        return np.einsum("mn,mn->n", seen, seen)

    def block_covariances(self, blocks: Stacks) -> list[np.ndarray]:
        """``S_cc`` of each component in stacks."""
        halves = [self.half[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [half.transpose(0, 2, 1) @ half for half in halves]

    def component_covariances(self, A: np.ndarray, blocks: Stacks) -> np.ndarray:
        """``a_c^T S_ce a_e`` averaged over rows ``(C, C)``."""
        products = (self.half.T @ self.half) * (A @ A.T) / A.shape[1]
        return np.add.reduceat(np.add.reduceat(products, blocks.first, axis=0), blocks.first, axis=1)

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws ``(M, count)``."""
        return self.mean[:, None] + self.half.T @ rng.normal(size=(len(self.half), count))

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Of values ``(M, K)``: ``(K,)``; zero of a point."""
        if self.is_point:
            return np.zeros(values.shape[1])
        factors, pivots, _ = dgetrf(self.half)  # of what is solved and of the determinant
        away, _ = dgetrs(factors, pivots, values - self.mean[:, None], trans=1)
        half_log = np.log(np.abs(np.diagonal(factors))).sum()
        return -0.5 * np.sum(away**2, axis=0) - half_log - 0.5 * len(self.mean) * np.log(2 * np.pi)


class BlocksAndLowRank:
    """``N(m, (blockdiag(P_c P_c^T) + W W^T)^-1)``, that is ``S_ce = d_ce D_c - V_c^T V_e``: what `BlockLowRank` holds.

    Attributes
    ----------
    mean : array (M,)
    factors, covariances : list of array (C_s, M_s, M_s)
        ``P_c``, and ``D_c = (P_c P_c^T)^-1``, in stacks.
    W, shared : array (M, r), (r, M)
    half_log : float
        Half of the logarithm of the determinant of the precision.
    blocks : Stacks
    """

    def __init__(self, mean: np.ndarray, factors: list[np.ndarray], W: np.ndarray, blocks: Stacks) -> None:
        self.mean, self.factors, self.W, self.blocks = mean, factors, W, blocks
        inverses = [np.linalg.inv(P) for P in factors]
        self.covariances = [one.transpose(0, 2, 1) @ one for one in inverses]
        projected = self._times(self.covariances, W)
        root = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ projected)
        logs = [np.log(np.diagonal(P, axis1=1, axis2=2)).sum() for P in factors]
        self.half_log = float(sum(logs) + np.log(np.diagonal(root)).sum())
        self.shared = np.linalg.solve(root, projected.T)

    def _times(self, stacks: list[np.ndarray], values: np.ndarray) -> np.ndarray:
        pairs = zip(stacks, self.blocks.apart(values), strict=True)
        return self.blocks.together([one @ own for one, own in pairs])

    def row_variances(self, A: np.ndarray) -> np.ndarray:
        own = np.sum(A * self._times(self.covariances, A), axis=0)
        return own - np.sum((self.shared @ A) ** 2, axis=0)

    def block_covariances(self, blocks: Stacks) -> list[np.ndarray]:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        return [D - V.transpose(0, 2, 1) @ V for D, V in zip(self.covariances, parts, strict=True)]

    def component_covariances(self, A: np.ndarray, blocks: Stacks) -> np.ndarray:
        parts = [self.shared[:, own].transpose(1, 0, 2) for own in blocks.places]
        seen = blocks.in_order([V @ own for V, own in zip(parts, blocks.apart(A), strict=True)])
        flat = seen.reshape(len(seen), -1)
        pairs = zip(self.covariances, blocks.apart(A), strict=True)
        diagonal = blocks.in_order([np.sum(own * (D @ own), axis=(1, 2)) for D, own in pairs])
        return (np.diag(diagonal) - flat @ flat.T) / A.shape[1]

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        # x = P e_1 + W e_2 has the precision as its covariance, and so S x has covariance S.
        own = self._times(self.factors, rng.normal(size=(len(self.mean), count)))
        x = own + self.W @ rng.normal(size=(self.W.shape[1], count))
        moved = self._times(self.covariances, x) - self.shared.T @ (self.shared @ x)
        return self.mean[:, None] + moved

    def log_density(self, values: np.ndarray) -> np.ndarray:
        away = values - self.mean[:, None]
        transposed = [P.transpose(0, 2, 1) for P in self.factors]
        squares = np.sum(self._times(transposed, away) ** 2, axis=0) + np.sum((self.W.T @ away) ** 2, axis=0)
        return -0.5 * squares + self.half_log - 0.5 * len(away) * np.log(2 * np.pi)


TermNormal = Dense | BlocksAndLowRank


# --------------------------------------------------------------------------------------
# Draws of the posterior of an additive model as numbers: hyper-parameters, and the normal distribution of the terms.
#
# A fit by ``ngp.gam`` is a normal distribution of the unconstrained hyper-parameters, and beside each of them one of
# the whitened values. Its draws come from NumPy's generator, seeded by the words of the key: nothing compiles.


# Draws of hyper-parameters where nobody says how many.
HYPERPARAMETER_DRAWS = 100


class OfPseudoData(Sequence[TermNormal]):
    """What pseudo-data say of the whitened values at each draw of the hyper-parameters (mathematics.md section 14.1).

    Each is found once: from the factor ``L (M, M)`` that features at rows come with or, asked for before these, from
    its own. Pseudo-data of several functions stand behind each other, and have one factor.
    """

    def __init__(
        self, term_features: TermFeatures, found: ModelValues[np.ndarray], shift: np.ndarray, precision: np.ndarray
    ) -> None:
        self.term_features, self.shift, self.precision = term_features, shift, precision
        self.scales, self.lengths = np.asarray(found.scales, float), np.asarray(found.lengths, float)
        self._found: list[TermNormal | None] = [None] * len(self.scales)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: Any) -> Any:
        return self.at(number)

    def at(self, number: int, factor: np.ndarray | None = None) -> TermNormal:
        """That at a draw, whose factor may be known."""
        if (own := self._found[number]) is not None:
            return own
        if factor is None:
            factor = self.term_features.roots(self.scales[number], self.lengths[number])[0]
        if len(self.shift) > len(factor):
            factor = np.kron(np.eye(len(self.shift) // len(factor)), factor)
        inner = factor.T @ self.precision @ factor
        inner = 0.5 * (inner + inner.T)
        try:
            _, half = factored(np.eye(len(inner)) + inner)
        except np.linalg.LinAlgError:  # of narrow noise rounding alone is more than what the prior knows
            known, directions = np.linalg.eigh(inner)
            half = (directions / np.sqrt(1 + np.maximum(known, 0))).T
        own = self._found[number] = Dense(half.T @ (half @ (factor.T @ self.shift)), half)
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
    term_posteriors : sequence of TermNormal
        Of the whitened values, at each draw.
    log_ratio : array (S,), optional
        Log density of the hyper-parameters under their prior, less that under the fit; None where the fit has none.
    """

    term_features: TermFeatures
    scales: np.ndarray
    lengths: np.ndarray
    likelihood: Likelihood
    values: dict[str, np.ndarray]
    term_posteriors: Sequence[TermNormal]
    log_ratio: np.ndarray | None

    @property
    def model(self) -> Model:
        """The model that they belong to."""
        return self.term_features.model

    @property
    def size(self) -> int:
        """Number S of draws."""
        return len(self.scales)

    @property
    def exact(self) -> ExactRows | None:
        """What says more of the terms than pseudo-data: the rows themselves, of a series of few with Gaussian noise."""
        if not isinstance(self.term_posteriors, OfPseudoData) or not ExactRows.serve(self.model):
            return None
        assert isinstance(self.likelihood, Gaussian)
        return ExactRows(self.model, self.scales, self.lengths, np.asarray(self.likelihood.scale))

    def cuts(self, count: int) -> list[slice]:
        """New rows that are looked at together."""
        step = self.term_features.step if self.exact is None else NEW_ROWS_TOGETHER
        return [slice(low, min(low + step, count)) for low in range(0, count, step)]

    def likelihood_at(self, X: np.ndarray, places: np.ndarray) -> Likelihood:
        """The likelihood at encoded rows ``X (K, D)`` with these numbers ``(K,)`` among the rows of the fit."""
        layout, found = self.model.layout, at_places(self.likelihood, places, len(self.model.rows.y))
        shape = self.size, len(places)
        if (trials := trials_at(layout, X)) is not None:
            found = with_trials(found, np.broadcast_to(trials, shape).astype(self.term_features.dtype))
        sides = sides_at(layout, X)
        if sides is None or not np.nan_to_num(sides).any():
            return found
        return with_sides(found, np.broadcast_to(sides, shape))

    def at(self, X: np.ndarray) -> Iterator[tuple[TermNormal, ScaledFeatures]]:
        """The distribution of the whitened values of each draw, and the features that they have at encoded rows."""
        features_at, known = self.term_features.at(X), self.term_posteriors
        for number, (scales, lengths) in enumerate(zip(self.scales, self.lengths, strict=True)):
            scaled = features_at(scales, lengths)
            yield known.at(number, scaled.factor) if isinstance(known, OfPseudoData) else known[number], scaled


def guide_draws(model: Model, key: Array, loc: np.ndarray, root: np.ndarray, count: int) -> ModelValues[np.ndarray]:
    """The `ModelValues` of draws of a fit by ``ngp.gam``, whose density is that of the prior over that of the fit.

    The fit is a normal distribution of the unconstrained hyper-parameters in the order of their names, of mean
    ``(d,)`` and the root ``(d, d)`` of a covariance.

    In NumPy where the model has the priors that it has by itself: nothing compiles.
    """
    layout = vector_layout_of(model)
    dtype, row = layout.dtype, model.family.named
    noise = np.random.default_rng(np.ravel(jax.random.key_data(key))).standard_normal((count, len(loc)))
    rows = loc + noise @ np.asarray(root, float).T
    own_density = -0.5 * (noise**2 + np.log(2 * np.pi)).sum(axis=1) - np.log(np.diag(root)).sum()
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
    assert row is not None
    likelihood = model.family.at([values[name] for name in row.priors(Start())])
    likelihood = jax.tree.map(lambda leaf: np.array(np.broadcast_to(np.asarray(leaf, dtype), (count,))), likelihood)
    return ModelValues(np.array([one.scales for one in each]), lengths, likelihood, values, density, {})


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
    model, known = term_features.model, params or {}
    term_posteriors: Sequence[TermNormal]
    # The normal distribution that parameters of ``ngp.gam``'s own guides are.
    loc = root = None
    shapes = vector_layout_of(model).shapes if known else {}
    names = [(f"{name}_auto_loc", f"{name}_auto_scale") for name in shapes]
    if {"auto_loc", "auto_scale_tril"} <= set(known):
        loc, root = np.asarray(known["auto_loc"]), np.asarray(known["auto_scale_tril"])
    elif names and {name for pair in names for name in pair} <= set(known):
        loc, scale = (np.concatenate([np.asarray(known[pair[at]]).ravel() for pair in names]) for at in (0, 1))
        root = np.diag(scale)
    if loc is None or root is None:
        # The library's own posterior: chains, particles, and guides of any kind.
        belief, read = _process_reader(posterior(), model, key, num_draws)
        (result, whitened), log_ratio = read(), None
        if whitened is None:
            term_posteriors = _of_belief(term_features, result, belief)
        elif isinstance(whitened, tuple):
            pairs = zip(*whitened, strict=True)
            term_posteriors = [Dense(np.asarray(m, float), np.asarray(root, float).T) for m, root in pairs]
        else:
            term_posteriors = [Dense.point(np.asarray(values, float)) for values in whitened]
    else:
        count = (HYPERPARAMETER_DRAWS if len(loc) else 1) if num_draws is None else check_count("num_draws", num_draws)
        result = guide_draws(model, key, loc, root, count)
        log_ratio = np.asarray(result.log_density)
        said = [f"f{NATURAL_MARK}{name}" for name in ("shift", "precision")]
        if set(said) <= set(known):
            term_posteriors = OfPseudoData(term_features, result, *(np.asarray(known[name], float) for name in said))
        else:
            term_posteriors = _of_belief(term_features, result, _process_reader(posterior(), model, key, 1)[0])
    scales, lengths = np.asarray(result.scales, float), np.asarray(result.lengths, float)
    values = {name: np.asarray(value) for name, value in result.values.items()}
    return Draws(term_features, scales, lengths, result.likelihood, values, term_posteriors, log_ratio)


def _process_reader(
    posterior: Posterior, model: Model, key: Array, num_draws: int | None
) -> tuple[Any, Callable[[], Any]]:
    """Return the value of the process at the first draw of a posterior, and what reads the values of all its draws."""
    X = model.arguments[0]  # one row is enough, but for a likelihood that has a number for each
    call = call_of(posterior.model, (X if has_numbers(model.family, len(X)) else X[:1],), {})
    is_random = check_source(posterior, call, look(posterior.fitted_model, call).sites, frozenset({"data"}))
    draws = draws_of(key, posterior.spread(num_draws, is_random))

    def values_at(own: Posterior, draw: Draw, arrays: list[Array]) -> dict[str, Any]:
        found = own.source.values(jax.random.split(draw[0])[0], draw[1], call.at(arrays))
        if "f" not in found:  # particles in the coordinates of a fit: the model says which values they stand for
            found = found | {"f": trace_at(own, draw, call.at(arrays), frozenset({"data"}))["f"]["value"]}
        return found

    first = jax.tree.map(lambda leaf: leaf[0], draws)
    at = lambda source, draw, arrays: values_at(posterior.at(source), draw, arrays)["f"]  # noqa: E731
    belief = run(at, posterior.source, first, call.arrays)
    is_fixed = isinstance(belief, (Conditional, BlockLowRank))  # the same at every draw, as parameters are

    def one(own: Posterior, draw: Draw, arrays: list[Array]) -> tuple[ModelValues[Array], object]:
        values = values_at(own, draw, arrays)
        f = values.pop("f")
        whitened = None if is_fixed else (f.whitened() if isinstance(f, AbstractBelief) else f)
        return evaluate(model, values, is_free=False), whitened

    return belief, lambda: jax.tree.map(np.asarray, at_each_draw(one, posterior, draws, call.arrays))


def _of_belief(
    term_features: TermFeatures, at: ModelValues[np.ndarray], belief: AbstractBelief
) -> Sequence[TermNormal]:
    """The normal distribution of the whitened values at each draw, by a belief that is the same at all."""
    if isinstance(belief, Conditional):
        return OfPseudoData(term_features, at, *(np.asarray(part, float) for part in belief.said))
    if isinstance(belief, BlockLowRank):
        stacks = Stacks.of(belief.precision_trils)
        factors = [np.asarray(part, float) for part in stacks.stacked(belief.precision_trils)]
        mean, W = np.asarray(belief.mean, float), np.asarray(belief.W, float)
        return [BlocksAndLowRank(mean, factors, W, term_features.blocks)] * len(at.scales)
    m, factor = belief.whitened()
    return [Dense(np.asarray(m, float), np.asarray(factor, float).T)] * len(at.scales)
