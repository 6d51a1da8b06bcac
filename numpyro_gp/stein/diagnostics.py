"""How good a set of particles is, and how it got there: kernelised Stein discrepancy, particle paths, figures."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.contrib.einstein.steinvi import SteinVIState

from numpyro_gp.arrays import Array, ArrayLike, split_arrays
from numpyro_gp.checks import check_count, fail
from numpyro_gp.linalg import matmul
from numpyro_gp.plots.style import COLOURS, Axes, axes_or_new, bar, finish
from numpyro_gp.stein.direction import Particles, bandwidth, by_distance, particle_distances, split_blocks
from numpyro_gp.stein.kernels import IMQ, Moments, ParticleKernel, Radial
from numpyro_gp.stein.svgd import SVGD


def ksd(particles: Particles, scores: Particles, kernel: ParticleKernel = IMQ(bandwidth=1.0)) -> Array:  # noqa: B008
    """How far particles are from the target: the kernelised Stein discrepancy (Gorham & Mackey 2017).

    ``KSD^2 = (1/n^2) sum_ij u(x_i, x_j)``, with ``r = x_i - x_j`` and ``k = g(||r||^2)``:
    ``u = g s_i.s_j + 2 g' (s_j - s_i).r - 2 d g' - 4 g'' ||r||^2``, summed over the kernel's distances.
    With one distance over all sites it vanishes for the target alone; a kernel divided by sites or coordinates
    does not see wrong correlations between its parts, so diagnose with one distance whatever the run used.
    Compare sets on the same target with the same, fixed bandwidth. It sees the target through the score at the
    particles alone, and so does not see a mode that no particle is near. Scores of a minibatch add their noise.

    Parameters
    ----------
    particles, scores, kernel
        As in `svgd_direction`; ``svgd.unconstrained(state)`` and ``svgd.scores(state, *args)`` give the first two.

    Returns
    -------
    Array ()
        The discrepancy (not squared).

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> x = jnp.linspace(-2.0, 2.0, 21)[:, None]
    >>> print(bool(ngp.stein.ksd(x, -x) < ngp.stein.ksd(x + 1.0, -(x + 1.0))))
    True
    """
    if isinstance(kernel, Moments):
        fail("kernel", "one of distances alone", f"{kernel!r:.60}", "Pass the kernel that it contains, such as RBF().")
    total: Any = 0
    for x, score, radial in split_blocks(particles, scores, kernel)[0]:

        def squared_discrepancy(x: Array, score: Array, radial: Radial = radial) -> Array:
            """Mean of ``u`` over all pairs, for one distance."""
            centred = x - jnp.mean(x, axis=0, keepdims=True)
            squared = particle_distances(centred)
            value, slope, curvature = radial.profile(squared, bandwidth(radial, squared))
            inner = matmul(score, score.T)
            cross = matmul(centred, score.T)  # x_i . s_j
            same = jnp.diagonal(cross)  # x_i . s_i
            difference = cross - same[None, :] - same[:, None] + cross.T  # (s_j - s_i) . (x_i - x_j)
            terms = value * inner + 2 * slope * difference - 2 * x.shape[1] * slope - 4 * curvature * squared
            return jnp.mean(terms)

        total += jnp.sum(jax.vmap(squared_discrepancy)(by_distance(radial, x), by_distance(radial, score)))
    return jnp.sqrt(jnp.maximum(total, 0.0))


class Paths(NamedTuple):
    """Positions of the particles on their way: what `particle_paths` records and `plot_paths` draws.

    Attributes
    ----------
    steps : Array (T,)
        Number of steps taken at each record; 0 is the start.
    particles : dict
        Site to constrained values ``(T, n, ...)``.
    forces : Array (steps,)
        Norm of the Stein force at each step.
    state
        State of the engine at the end, from which a run can continue.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.01), num_stein_particles=3)
    >>> paths = ngp.stein.particle_paths(jax.random.key(0), svgd, 4, every=2)
    >>> paths.steps.tolist(), paths.particles["noise"].shape
    ([0, 2, 4], (3, 3))
    """

    steps: Array
    particles: dict[str, Array]
    forces: Array
    state: SteinVIState


def particle_paths(
    key: Array,
    svgd: SVGD,
    num_steps: int,
    *args: object,
    every: int = 1,
    init_state: SteinVIState | None = None,
    **kwargs: object,
) -> Paths:
    """Watch the particles: run ``num_steps`` steps of `SVGD` and record them every ``every`` steps (and the start).

    The steps are those of ``svgd.run`` with the same key.

    Parameters
    ----------
    key : PRNG key
    svgd : SVGD
    num_steps : int
    *args, **kwargs
        Arguments of the model.
    every : int
        Steps from one record to the next, a divisor of ``num_steps``.
    init_state : SteinVIState, optional
        State of an earlier run, from which to continue.

    Returns
    -------
    Paths
        ``num_steps / every + 1`` records.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.01), num_stein_particles=3)
    >>> ngp.stein.particle_paths(jax.random.key(0), svgd, 4).forces.shape
    (4,)
    """
    num_steps, every = check_count("num_steps", num_steps), check_count("every", every)
    if num_steps % every:
        cure = "Pass every=1, or a number that divides num_steps: the last record is the end of the run."
        fail("every", f"a divisor of the {num_steps} steps", every, cure)
    state = svgd.starting_state(key, init_state, args, kwargs)
    start, (arguments, merge) = svgd.particles(state), split_arrays((args, kwargs))

    @jax.jit
    def travel(state: SteinVIState, arguments: list[Array]) -> tuple[SteinVIState, tuple[dict[str, Array], Array]]:
        args, kwargs = merge(arguments)

        def stretch(state: SteinVIState, _: None) -> tuple[SteinVIState, tuple[dict[str, Array], Array]]:
            state, force = jax.lax.scan(lambda s, _: svgd.update(s, *args, **kwargs), state, None, length=every)
            return state, (svgd.particles(state), force)

        end, recorded = jax.lax.scan(stretch, state, None, length=num_steps // every)
        return end, recorded

    state, (values, force) = travel(jax.tree.map(jnp.asarray, state), arguments)
    joined = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, values)
    return Paths(jnp.arange(0, num_steps + 1, every), joined, force.reshape(-1), state)


def plot_paths(paths: Paths, site: str, ax: "Axes | None" = None) -> "Axes":
    """Draw whether particles have settled: a scalar site over the steps, one line for each particle.

    Parameters
    ----------
    paths : Paths
        Of `particle_paths`.
    site : str
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> paths = ngp.stein.Paths(jnp.arange(3), {"noise": jnp.ones((3, 5))}, jnp.ones(2), None)
    >>> len(ngp.stein.plot_paths(paths, "noise").lines)
    5
    """
    values = np.asarray(_site(paths.particles, site, 2))
    ax = axes_or_new(ax)
    ax.plot(np.asarray(paths.steps), values, color=COLOURS[0], alpha=0.5, linewidth=1)
    return finish(ax, f"Paths of {values.shape[1]} particles", "step", site)


def plot_spread(
    particles: Mapping[str, ArrayLike],
    site: str,
    references: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether particles are as wide as the posterior: marks of a scalar site, over rows of reference draws.

    Each reference row shows its median, its middle 50% (thick) and its middle 90% (thin).

    Parameters
    ----------
    particles : dict
        Site names to values ``(n, ...)``.
    site : str
    references : dict, optional
        A label, such as "NUTS", to a dictionary of draws with the draws first.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> draws = np.random.default_rng(0).normal(size=100)
    >>> ax = ngp.stein.plot_spread({"noise": draws[:8]}, "noise", {"NUTS": {"noise": draws}})
    >>> type(ax).__name__
    'Axes'
    """
    values = np.asarray(_site(particles, site, 1))
    ax, rows = axes_or_new(ax), [f"{len(values)} particles"]
    ax.plot(values, np.zeros_like(values), "|", color=COLOURS[0], markersize=18, markeredgewidth=1.5)
    for row, (label, draws) in enumerate((references or {}).items(), start=1):
        reference, colour = np.asarray(_site(draws, site, 1)), COLOURS[row % len(COLOURS)]
        for inside, width in ((90, 1.5), (50, 5)):
            bar(ax, reference, inside, row, color=colour, linewidth=width)
        ax.plot(np.median(reference), row, "o", color="white", markeredgecolor=colour)
        rows.append(label)
    ax.set(yticks=range(len(rows)), yticklabels=rows, ylim=(-0.6, len(rows) - 0.4))
    return finish(ax, f"Spread of {site}", site, "")


def _site(values: Mapping[str, ArrayLike], site: str, axes: int) -> ArrayLike:
    if np.ndim(values[site]) != axes:
        cure = "Pass one coordinate: {site: values[site][..., 0]}."
        fail("site", "a scalar site", f"values of shape {np.shape(values[site])}", cure)
    return values[site]
