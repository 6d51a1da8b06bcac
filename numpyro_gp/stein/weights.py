"""What particles weigh: the mass of the target around each, by importance sampling (mathematics.md section 9.4)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln, logsumexp

from numpyro_gp.arrays import Array, split_arrays
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.linalg import matmul
from numpyro_gp.programs.compiled import run
from numpyro_gp.stein.direction import of_row, to_rows
from numpyro_gp.stein.metric import inverse_root_of, root_of_absolute
from numpyro_gp.stein.svgd import SVGD

DEGREES = 5.0  # of freedom: the tails of the proposal are heavier than those of a posterior
# Points between two particles at which a valley of the density is looked for, and nats that make one.
BETWEEN, VALLEY = 7, 0.1
FEWEST_EFFECTIVE = 100  # draws that count: the masses of two modes are then right to 0.05


class Weights(NamedTuple):
    """Weights of particles, what they rest on, and a number that comes with them.

    Attributes
    ----------
    weights : Array (n,)
        They add up to 1.
    effective_sample_size : Array ()
        Number of draws that count: ``(sum w)^2 / sum w^2``.
    log_evidence : Array ()
        Log of the integral of the target over everything that the particles have found.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.stein.Weights(jnp.array([0.2, 0.8]), jnp.array(900.0), jnp.array(-3.0)).weights.shape
    (2,)
    """

    weights: Array
    effective_sample_size: Array
    log_evidence: Array


def weights(
    key: Array, svgd: SVGD, params_or_state: object, *args: object, num_draws: int = 2000, **kwargs: object
) -> Weights:
    """Find how much of the posterior each particle stands for, for `Posterior.from_stein` with ``weights=``.

    Particles move within the modes in which they start: how many are in each says nothing about its mass, and the
    scores that they follow do not know it. So draws from a mixture of Student's t around all particles, as wide as the
    curvature there, are weighed by the target. Half of them are drawn around the heaviest of the others, where the
    particles are too few, as in a long tail. A mode gets the weights of the draws that belong to its particles, which
    share them evenly: between two of them the density falls nowhere below both, as it does between modes. A particle
    far below the others is a mode by itself.
    A few coordinates are what this can do, such as the hyper-parameters of `gp_regression`: where fewer than 100 draws
    count, it is refused. Modes that no particle has found have no weight.

    Parameters
    ----------
    key : PRNG key
    svgd : SVGD
    params_or_state
        ``result.params`` or ``result.state``.
    *args, **kwargs
        Arguments of the model in the fit, data included and whole.
    num_draws : int

    Returns
    -------
    Weights

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():  # 0.2 of the mass at -3, the rest at 3
    ...     a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    ...     numpyro.factor("modes", jnp.logaddexp(jnp.log(0.2) - 2 * (a + 3) ** 2, jnp.log(0.8) - 2 * (a - 3) ** 2))
    >>> start = {"a": jnp.array([-3.2, -2.9, -2.8, 3.1])}
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.01), num_stein_particles=4, init_particles=start)
    >>> state = svgd.init(jax.random.key(0))
    >>> print(f"{ngp.stein.weights(jax.random.key(1), svgd, state).weights[:3].sum():.1f}")
    0.2
    """
    check_key("key", key)
    count, judgement = check_count("num_draws", num_draws), svgd.judge(params_or_state, *args, **kwargs)
    if judgement is None:
        fail("args", "whole data", "a minibatch, or shared particles", "Weigh them on all rows: batch=None.")
    judgement.check()
    target = svgd.density_at(args, kwargs)
    free, shared = svgd.free_and_shared(params_or_state)
    arrays, _ = split_arrays((args, kwargs))
    if count // 2 < (size := len(next(iter(free.values())))):
        cure = f"Pass num_draws={10 * size}, or fewer particles."
        fail("num_draws", f"at least two for each of the {size} particles", count, cure)

    def weigh(
        key: Array, free: dict[str, Array], shared: dict[str, Array], arrays: list[Array]
    ) -> tuple[Weights, tuple[Array, Array]]:
        density = lambda row: target(of_row(free)(row), shared, arrays)  # noqa: E731
        first, second = jax.random.split(key)
        around, numbers = Centres.at(density, to_rows(free)), (count - count // 2, count // 2)
        draws = around.draw(first, numbers[0])
        reached = lax.map(density, draws)
        share = jax.nn.softmax(_log_weights(reached, around.log_densities(draws), _draws_of_each(size, numbers[:1])))
        evenly = (jnp.arange(size) + 0.5) / size  # draws that stand for equal masses: where the particles are too few
        heavy = Centres.at(density, draws[jnp.searchsorted(jnp.cumsum(share), evenly)])
        more = heavy.draw(second, numbers[1])
        draws, reached = jnp.concatenate([draws, more]), jnp.concatenate([reached, lax.map(density, more)])
        densities = around.log_densities(draws)
        parts = jnp.concatenate([densities, heavy.log_densities(draws)], axis=1)
        log_weight = _log_weights(reached, parts, _draws_of_each(size, numbers))
        share = jax.nn.softmax(log_weight)
        masses = matmul(share, jax.nn.softmax(densities, axis=1))
        links = around.links(density, jnp.asarray(judgement.is_stranded))
        return Weights(masses, 1 / jnp.sum(share**2), logsumexp(log_weight)), links

    result, links = run(weigh, key, free, shared, arrays)
    if not float(result.effective_sample_size) >= FEWEST_EFFECTIVE:
        got = f"{float(result.effective_sample_size):.0f} of {count}, of {judgement.coordinates} coordinates"
        cure = "Take num_draws=20000, run the particles longer, or leave the weights equal."
        fail("the number of draws that count", f"at least {FEWEST_EFFECTIVE}", got, cure)
    # Number of the mode of each particle, by the links of a tree ``(n - 1, 2)``.
    pairs, is_linked = map(np.asarray, links)
    mode = np.arange(size)
    for one, other in pairs[is_linked]:
        mode[mode == mode[one]] = mode[other]
    masses, members = (np.bincount(mode, sums, size) for sums in (np.asarray(result.weights), np.ones(size)))
    return result._replace(weights=jnp.asarray((masses / np.maximum(members, 1))[mode], result.weights.dtype))


class Centres(NamedTuple):
    """A mixture of Student's t: its centres ``(n, d)``, roots of the inverse curvature there, and of the curvature."""

    rows: Array
    roots: Array
    inverse: Array

    @classmethod
    def at(cls, density: Callable[[Array], Array], rows: Array) -> "Centres":
        """Those at the rows, as wide as the density is there."""
        curvature = lax.map(lambda row: jax.jacfwd(jax.grad(density))(row), rows)
        return cls(rows, jax.vmap(inverse_root_of)(curvature), jax.vmap(root_of_absolute)(curvature))

    def draw(self, key: Array, count: int) -> Array:
        """Draws ``(count, d)``, of each centre in turn."""
        size, width = self.rows.shape
        normal, chi = jax.random.split(key)
        noise = jax.random.normal(normal, (count, width), self.rows.dtype)
        scale = jnp.sqrt(0.5 * DEGREES / jax.random.gamma(chi, 0.5 * DEGREES, (count, 1), self.rows.dtype))
        centre = jnp.asarray(np.arange(count) % size)
        return self.rows[centre] + scale * lax.map(lambda pair: matmul(self.roots[pair[0]], pair[1]), (centre, noise))

    def log_densities(self, draws: Array) -> Array:
        """Log densities ``(S, n)`` of the parts of the mixture."""
        width = self.rows.shape[1]
        constant = gammaln(0.5 * (DEGREES + width)) - gammaln(0.5 * DEGREES) - 0.5 * width * jnp.log(DEGREES * jnp.pi)

        def part(row: Array, inverse: Array) -> Array:
            squared = jnp.sum(matmul(draws - row[None], inverse) ** 2, axis=1)
            return constant + jnp.linalg.slogdet(inverse)[1] - 0.5 * (DEGREES + width) * jnp.log1p(squared / DEGREES)

        return lax.map(lambda pair: part(*pair), (self.rows, self.inverse)).T

    def links(self, density: Callable[[Array], Array], is_alone: Array) -> tuple[Array, Array]:
        """The shortest tree over the centres, pairs ``(n - 1, 2)``, and which pairs no valley of the density parts.

        A centre that ``is_alone`` is an end of the tree, and linked to none.
        """
        size = len(self.rows)
        to_each = lambda row, inverse: jnp.linalg.norm(matmul(self.rows - row[None], inverse), axis=1)  # noqa: E731
        distance = lax.map(lambda pair: to_each(*pair), (self.rows, self.inverse))
        distance = jnp.where(is_alone[None] | is_alone[:, None], jnp.inf, distance + distance.T)
        first = jnp.argmin(is_alone)

        def grow(tree: tuple[Array, Array, Array], _: object) -> tuple[tuple[Array, Array, Array], Array]:
            is_in, nearest, parent = tree
            new = jnp.lexsort((nearest, is_in))[0]
            is_nearer = distance[new] < nearest
            grown = is_in.at[new].set(True), jnp.minimum(nearest, distance[new]), jnp.where(is_nearer, new, parent)
            return grown, jnp.stack([new, parent[new]])

        start = jnp.arange(size) == first, distance[first], jnp.full(size, first)
        pairs = lax.scan(grow, start, length=size - 1)[1]
        steps = jnp.arange(1, BETWEEN + 1, dtype=self.rows.dtype) / (BETWEEN + 1)

        def is_linked(pair: Array) -> Array:
            here, there = self.rows[pair[0]], self.rows[pair[1]]
            ends = jnp.minimum(density(here), density(there))
            lowest = jnp.min(lax.map(lambda step: density(here + step * (there - here)), steps))
            return (lowest >= ends - VALLEY) & ~jnp.any(is_alone[pair])

        return pairs, lax.map(is_linked, pairs)


def _draws_of_each(size: int, counts: Sequence[int]) -> np.ndarray:
    """How many draws each of ``size`` centres has of so many, set by set: the first ones may have one more."""
    return np.concatenate([np.bincount(np.arange(count) % size, minlength=size) for count in counts])


def _log_weights(reached: Array, log_parts: Array, drawn: np.ndarray) -> Array:
    """Target over the sum of the parts, each times its draws; nothing outside of the support of the model."""
    log_weight = reached - logsumexp(log_parts + jnp.log(jnp.asarray(drawn, log_parts.dtype))[None], axis=1)
    return jnp.where(jnp.isfinite(log_weight), log_weight, -jnp.inf)
