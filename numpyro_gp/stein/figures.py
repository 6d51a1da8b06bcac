"""Figures of particles: their paths, and their spread beside a reference such as NUTS."""

from collections.abc import Mapping

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.plots.style import COLOURS, Axes, axes_or_new, bar, finish
from numpyro_gp.stein.diagnostics import Paths


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
    if site not in values:
        fail("site", f"one of {sorted(values)}", repr(site), "Pass the name of a latent site: 'noise'.")
    if np.ndim(values[site]) != axes:
        cure = "Pass one coordinate: {site: values[site][..., 0]}."
        fail("site", "a scalar site", f"values of shape {np.shape(values[site])}", cure)
    return values[site]
