"""Figures of particles: their paths, and their spread beside a reference such as NUTS."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.plots.style import COLOURS, axes_of, bar, finish
from numpyro_gp.stein.diagnostics import Paths

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_paths(paths: Paths, site: str, ax: "Axes | None" = None) -> "Axes":
    """Value of a scalar site over the steps, one line for each particle; returns the axes."""
    values = np.asarray(_site(paths.particles, site, 2))
    ax = axes_of(ax)
    ax.plot(np.asarray(paths.steps), values, color=COLOURS[0], alpha=0.5, linewidth=1)
    return finish(ax, f"Paths of {values.shape[1]} particles", "step", site)


def plot_spread(
    particles: Mapping[str, ArrayLike],
    site: str,
    references: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Particles of a scalar site as marks on a row, over rows of reference draws; returns the axes.

    ``references`` maps a label, such as "NUTS", to a dictionary of draws with the draws first. Each
    reference row shows its median, its middle 50% (thick) and its middle 90% (thin).
    """
    values = np.asarray(_site(particles, site, 1))
    ax, rows = axes_of(ax), [f"{len(values)} particles"]
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
        fail("site", f"one of {sorted(values)}", repr(site), "Name a latent site.")
    if np.ndim(values[site]) != axes:
        cure = "Pass one coordinate: {site: values[site][..., 0]}."
        fail("site", "a scalar site", f"values of shape {np.shape(values[site])}", cure)
    return values[site]
