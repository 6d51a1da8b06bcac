"""The default fit of few terms: steps in the hyper-parameters alone, each with the posterior of the terms at hand.

The bound is that of variational inference with the belief of `Conditional`. Data say about ``f`` at each row a normal
density ``exp(shift f - weight f^2 / 2)``: exactly, where noise is Gaussian; else by the derivatives of the expected log
density at the marginals of the moment, which are natural steps of length one. Given these sites the belief over all
inducing values is known in closed form at every value of the hyper-parameters (mathematics.md section 14.6), so that a
quasi-Newton method finds their mode, and its curvature their covariance.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from numpyro import handlers
from numpyro.distributions import biject_to

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.gam.model import Model
from numpyro_gp.likelihoods import Gaussian, Likelihood, as_likelihood
from numpyro_gp.programs.keep import kept
from numpyro_gp.programs.trace import as_function, traced

# Quasi-Newton steps between two site steps, where data are not Gaussian.
STEPS_OF_A_ROUND = 8
# Variances of the first site steps, which start from the prior: an expected rate under it may be anything.
FIRST_VARIANCE, FIRST_STEPS = 0.1, 4
# Rows above which the mode is looked for with some of them first.
MANY_ROWS = 10_000
# The round is the last one where the bound rose by less.
FLAT = 0.01
# No hyper-parameter is less certain than this many units of its logarithm, where the bound is flat.
WIDEST = 2.0


class Sites(NamedTuple):
    """What data say about ``f`` at each row ``(N,)``: a normal density by its natural parameters."""

    shift: Array
    weight: Array


class Data(NamedTuple):
    """Rows of a fit: inputs ``(N, D)``, response and weights ``(N,)``."""

    X: Array
    y: Array
    weights: Array

    def part(self, rows: np.ndarray) -> "Data":
        """Some rows, which stand for all."""
        X, y, weights = (value[rows] for value in self)
        return Data(X, y, weights * (jnp.sum(self.weights) / jnp.sum(weights)))


class Seen(NamedTuple):
    """What one evaluation of the bound leaves beside it.

    Attributes
    ----------
    sites : Sites
        Those of the marginals at hand: one natural step further.
    precision : array (M, M)
        ``A W A^T`` of the whitened values, with features ``A`` and weights ``W``.
    pulled : array (M,)
        ``A (shift - W level)``.
    inverse : array (M, M)
        ``L^-1`` of the Gram matrices of all terms.
    start : array (d,)
        Unconstrained prior means of the hyper-parameters.
    """

    sites: Sites
    precision: Array
    pulled: Array
    inverse: Array
    start: Array


class Collapsed(NamedTuple):
    """The mode of the hyper-parameters and what belongs to it.

    Attributes
    ----------
    location, root : array (d,), (d, d)
        Mean and lower root of the covariance of the unconstrained hyper-parameters, by name.
    shift, precision : array (M,), (M, M)
        Pseudo-data of `Conditional`.
    losses : array
        Negative bound at each evaluation, less the log density of the hyper-parameters.
    is_flat : bool
        Whether the bound rose no more at the last step.
    """

    location: np.ndarray
    root: np.ndarray
    shift: np.ndarray
    precision: np.ndarray
    losses: np.ndarray
    is_flat: bool


def sites_of(likelihood: Any, y: Array, mean: Array, variance: Array, weights: Array) -> Sites:
    """The sites at marginals: ``W = -2 d/d variance`` and ``shift = d/d mean + W mean`` of the expected log density."""
    if isinstance(likelihood, Gaussian):  # at all marginals: derivatives go through the noise
        weight = jnp.broadcast_to(weights / likelihood.scale**2, y.shape)
        return Sites(weight * y, weight)

    def expected(mean: Array, variance: Array) -> Array:
        found: Array = jnp.sum(weights * likelihood.expected_log_prob(y, mean, variance))
        return found

    slope, spread = jax.grad(expected, (0, 1))(mean, variance)
    weight = jnp.maximum(-2 * spread, 0)  # of a likelihood that is not log-concave it may be negative
    return Sites(slope + weight * mean, weight)


def loss_of(model: Model, free: Any, given: Sites, data: Data, cap: Array) -> tuple[Array, Seen]:
    """Negative bound with the log density of the hyper-parameters ``free``, by site, and what it leaves."""
    X, y, weights = data
    kernels, likelihood, log_density, start = opened(model, free, X.dtype)
    basis = AdditiveBasis.build(kernels, model.inducing(X.dtype), model.jitter)
    A, level = basis.features(X), jnp.broadcast_to(model.level(X), y.shape)
    own = sites_of(likelihood, y, y, y, weights) if isinstance(likelihood, Gaussian) else given
    precision, pulled = (A * own.weight[None]) @ A.T, A @ (own.shift - own.weight * level)
    root = jnp.linalg.cholesky(precision + jnp.eye(len(A), dtype=A.dtype))
    inverse = solve_triangular(root, jnp.eye(len(A), dtype=A.dtype), lower=True)
    white = inverse @ pulled
    v, spread = inverse.T @ white, inverse @ A
    mean = level + v @ A
    variance = jnp.maximum(basis.diagonal(X) - jnp.sum(A**2, 0), 0) + jnp.sum(spread**2, 0)
    kl = 0.5 * (jnp.sum(inverse**2) + v @ v - len(A)) + jnp.sum(jnp.log(jnp.diagonal(root)))
    expected = jnp.sum(weights * likelihood.expected_log_prob(y, mean, variance))
    held = jax.lax.stop_gradient((likelihood, mean, jnp.minimum(variance, cap)))
    new = sites_of(held[0], y, *held[1:], weights)
    seen = Seen(new, precision, pulled, basis.frame().inverse, ravel_pytree(start)[0])
    return kl - expected - log_density, jax.lax.stop_gradient(seen)


def opened(model: Model, free: Any, dtype: np.dtype) -> tuple[dict[str, Any], Likelihood, Array, dict[str, Array]]:
    """Kernels and likelihood at unconstrained hyper-parameters, their log density, and prior means to start from."""
    slopes, start = [], {}

    def constrained(site: dict[str, Any]) -> Any:
        if site["type"] != "sample" or site["name"] not in free:
            return None
        transform, value = biject_to(site["fn"].support), free[site["name"]]
        found = transform(value)
        slope = transform.log_abs_det_jacobian(value, found)
        slopes.append(jnp.sum(slope))
        start[site["name"]] = _middle(site["fn"], transform, value)
        return found

    at = handlers.substitute(substitute_fn=constrained)
    with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), at:
        kernels, likelihood = model.open(dtype)
    priors = [jnp.sum(site["fn"].log_prob(site["value"])) for site in trace.values() if site["type"] == "sample"]
    return kernels, as_likelihood(likelihood), sum(priors + slopes, jnp.zeros((), dtype)), start


def _middle(prior: Any, transform: Any, like: Array) -> Array:
    """The unconstrained mean of a prior, zero where it has none."""
    base = prior
    while isinstance(base, (dist.ExpandedDistribution, dist.Independent)):
        base = base.base_dist
    if type(base).mean in (dist.Distribution.mean, dist.TransformedDistribution.mean):
        return jnp.zeros_like(like)
    mean: Array = transform._inverse(jnp.broadcast_to(prior.mean, prior.shape()))
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def free_sites(model: Model) -> tuple[dict[str, Array], bool]:
    """Zeros of the unconstrained shape of every hyper-parameter, and whether noise is Gaussian."""
    dtype, kinds = model.arguments[0].dtype, []

    def shapes() -> dict[str, Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            kinds.append(isinstance(model.open(dtype)[1], Gaussian))
        sites = [site for site in trace.values() if site["type"] == "sample"]
        return {s["name"]: jnp.zeros(biject_to(s["fn"].support).inverse_shape(s["fn"].shape()), dtype) for s in sites}

    found = {name: jnp.zeros(one.shape, one.dtype) for name, one in jax.eval_shape(shapes).items()}
    return found, kinds[-1]


class Bound:
    """The compiled bound of some rows: its negative and the gradient at hyper-parameters ``(d,)``, and what it saw."""

    def __init__(self, model: Model, data: Data) -> None:
        sites, self.is_exact = free_sites(model)
        zeros, unravel = ravel_pytree(sites)
        nothing = jnp.zeros_like(data.y)
        self.data, self.sites, self.dtype = data, Sites(nothing, nothing), zeros.dtype
        self.losses: list[float] = []

        def evaluate(free: Array, sites: Sites, data: Data, cap: Array) -> Any:
            found = jax.value_and_grad(lambda one: loss_of(model, unravel(one), sites, data, cap), has_aux=True)
            return found(free)

        program = traced(evaluate, zeros, self.sites, data, jnp.zeros((), zeros.dtype))
        self._constants, self._structure = program.constants, program.structure
        self._run = kept(program.program, "collapsed", lambda: jax.jit(as_function(program.program)))
        self(np.zeros(zeros.shape))
        self.start = np.asarray(self.seen.start, float)

    def __call__(self, free: np.ndarray, cap: float = np.inf) -> tuple[float, np.ndarray]:
        arguments = jnp.asarray(free, self.dtype), self.sites, self.data, jnp.asarray(cap, self.dtype)
        flat = self._run(*self._constants, *jax.tree.leaves(arguments))
        (loss, self.seen), gradient = jax.tree.unflatten(self._structure, flat)
        self.losses.append(float(loss))
        return self.losses[-1], np.asarray(gradient, float)

    def see(self, free: np.ndarray) -> None:
        """Site steps at fixed hyper-parameters, from the prior; none where sites are exact."""
        for step in range(0 if self.is_exact else FIRST_STEPS):
            self(free, FIRST_VARIANCE if step < FIRST_STEPS - 1 else np.inf)
            self.sites = self.seen.sites

    def settle(self, free: np.ndarray, most_steps: int, root: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """The mode, by rounds of quasi-Newton steps and a site step; and whether the bound rises no more.

        Steps are in the coordinates that the lower ``root (d, d)`` of a covariance whitens. Its curvature need not be
        that of these rows: a step that overshoots is cut by the line search.
        """
        from scipy.optimize import minimize

        scale, before = np.eye(len(free)) if root is None else root, np.inf
        slope = 1e-2 if root is None else np.sqrt(2 * FLAT / len(free))  # of whitened values: a rise of FLAT is left
        while (left := most_steps - len(self.losses)) > 0:

            def white(z: np.ndarray, origin: np.ndarray = free) -> tuple[float, np.ndarray]:
                loss, gradient = self(origin + scale @ z)
                return loss, scale.T @ gradient

            size = abs(self.losses[-1]) if np.isfinite(before) else len(self.data.y)
            options = {"maxiter": left if self.is_exact else STEPS_OF_A_ROUND, "maxfun": left, "gtol": slope}
            options["ftol"] = 0.1 * FLAT / size
            found = minimize(white, np.zeros(len(free)), jac=True, method="L-BFGS-B", options=options)
            free = free + scale @ found.x
            if (self.is_exact and found.success) or before - found.fun < FLAT:
                return free, True
            before = found.fun
            self(free)
            self.sites = self.seen.sites
        return free, False

    def spread(self, free: np.ndarray) -> np.ndarray:
        """Lower root of the inverse curvature, by differences of gradients."""
        step = 1e-3 if self.dtype == np.float64 else 3e-2
        moves = step * np.eye(len(free))
        curvature = np.stack([(self(free + move)[1] - self(free - move)[1]) / (2 * step) for move in moves])
        values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        return np.linalg.cholesky((vectors / np.maximum(values, WIDEST**-2)) @ vectors.T)


def collapsed(model: Model, most_steps: int) -> Collapsed:
    """The mode of the hyper-parameters: of many rows first that of some, and from there of all."""
    X, y, *weights = model.arguments
    data = Data(X, y, weights[0] if weights else jnp.ones_like(y))
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:MANY_ROWS])
    bound = Bound(model, data if len(y) <= MANY_ROWS else data.part(some))
    free = bound.start
    bound.see(free)
    free, is_flat = bound.settle(free, most_steps)
    losses, root = bound.losses[:], bound.spread(free)
    if len(y) > MANY_ROWS:
        bound = Bound(model, data)
        bound.see(free)
        free, is_flat = bound.settle(free, most_steps, root)
        losses = bound.losses[:]
    bound(free)
    inverse, inner, pulled = (
        np.asarray(one, float) for one in (bound.seen.inverse, bound.seen.precision, bound.seen.pulled)
    )
    precision = inverse.T @ inner @ inverse
    return Collapsed(free, root, inverse.T @ pulled, 0.5 * (precision + precision.T), np.asarray(losses[1:]), is_flat)
