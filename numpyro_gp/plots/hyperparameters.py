"""Posteriors of one hyper-parameter under several engines, side by side."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.plots.style import DRAWS, INK, MARKERS, Axes, axes_or_new, band, bar, finish, line_look, named, vector
from numpyro_gp.posterior.posterior import Posterior

# Percent of the draws inside each bar, and its width: that of the thin one first.
INTERVALS = ((90, 1.2), (50, 3.6))


def hyperparameters(
    posteriors: Mapping[str, Posterior | ArrayLike],
    site: str,
    *,
    truth: float | None = None,
    prior: dist.Distribution | None = None,
    key: Array | None = None,
    title: str = "",
    xlabel: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the posterior of one hyper-parameter under several engines, side by side.

    Each engine has a row: its density, the 90% interval as a thin and the 50% interval as a thick bar, the mean
    as a marker. Densities are scaled to their rows: compare the bars. Fewer than 200 draws (particles)
    are shown as ticks, without a smoothed density they cannot support.
    A point estimate has a marker alone.

    Parameters
    ----------
    posteriors : dict by engine
        `Posterior` values, or arrays ``(S,)`` of draws.
    site : str
        Name of the site, which also labels the axis. A vector is refused: pass its entries as arrays.
    truth : float, optional
        Value the data were simulated with: a dashed line.
    prior : numpyro distribution, optional
        Its density is drawn in grey as the last row.
    key : PRNG key, optional
        Needed where a variational `Posterior` draws its values.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ax = ngp.plots.hyperparameters({"NUTS": np.random.default_rng(0).gamma(4.0, size=300)}, "lengthscale")
    >>> type(ax).__name__
    'Axes'
    """
    several: dict[str, Posterior | ArrayLike] = named(posteriors, "posteriors")
    rows = {name: _site_draws(name, posterior, site, key) for name, posterior in several.items()}
    ax = axes_or_new(ax)
    span = _axis_ends(list(rows.values()), truth)
    grid = np.linspace(*span, 300)
    labels = list(rows)
    for number, draws in enumerate(rows.values()):
        _row(ax, draws, -1.25 * number, grid, line_look(number)["color"], MARKERS[number % len(MARKERS)])
    if prior is not None:
        inside = np.asarray(prior.support(jnp.asarray(grid)))
        density = np.zeros_like(grid)
        density[inside] = np.exp(np.asarray(prior.log_prob(jnp.asarray(grid[inside]))))
        base = -1.25 * len(rows)
        band(ax, grid, [np.full_like(grid, base), base + density / (density.max() or 1.0)], "0.8")
        labels.append("prior")
    if truth is not None:
        ax.axvline(truth, color=INK, ls="--", lw=1.2, label="truth", zorder=1)
    ax.set_yticks([-1.25 * number + 0.3 for number in range(len(labels))], labels)
    ax.tick_params(axis="y", length=0)
    words = ", ".join(f"{word} {inside}%" for word, (inside, _) in zip(("thin", "thick"), INTERVALS, strict=True))
    ax.text(1.0, 1.0, f"{words}, mark: mean", ha="right", va="bottom", fontsize=6, color="0.4", transform=ax.transAxes)
    ax.set(xlim=span, ylim=(-1.25 * len(labels) + 0.85, 1.15))
    return finish(ax, title, xlabel or site, "")


def _site_draws(name: str, posterior: Posterior | ArrayLike, site: str, key: Array | None) -> np.ndarray:
    """Return draws of one scalar site, all of them finite: an axis ends somewhere."""
    if not isinstance(posterior, Posterior):
        argument, chosen = f"posteriors[{name!r}]", posterior
    else:
        argument, values = f"site {site!r} of posteriors[{name!r}]", posterior.samples
        if values is None:
            if key is None:
                fail("key", "one JAX random key", "None", f"Pass key=jax.random.key(0) to draw {name!r}.", TypeError)
            values = jax.jit(jax.vmap(lambda k: posterior.values(k, jnp.asarray(0))))(jax.random.split(key, DRAWS))
        if site not in values:
            fail("site", f"one of {sorted(values)}", repr(site), "Check the spelling.")
        chosen = values[site]
    draws = vector(argument, chosen, "of shape (S,), one number for each draw")
    if wrong := int(np.sum(~np.isfinite(draws))):
        cure = "Fit again in float64 or with a smaller step, or leave these draws out."
        fail(argument, "finite", f"{wrong} NaN or infinite draws of {draws.size}", cure)
    return draws


def _axis_ends(rows: list[np.ndarray], truth: float | None) -> tuple[float, float]:
    """Ends of the axis: the draws but for 1/200 in either tail, and the truth."""
    low = min(np.quantile(draws, 0.005) for draws in rows)
    high = max(np.quantile(draws, 0.995) for draws in rows)
    if truth is not None:
        low, high = min(low, truth), max(high, truth)
    margin = 0.08 * (high - low) or 0.5 * abs(low) or 1.0
    return (max(low - margin, 0.0) if low > 0 else low - margin), high + margin


def _kernel_density(draws: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Gaussian kernel density estimate with Silverman's bandwidth."""
    iqr = np.subtract(*np.percentile(draws, [75, 25])) / 1.349
    bandwidth = 0.9 * min(draws.std(), iqr or draws.std()) * draws.size**-0.2
    kernel = np.exp(-0.5 * ((grid[:, None] - draws[None]) / bandwidth) ** 2)
    return kernel.mean(1) / (bandwidth * math.sqrt(2 * math.pi))


def _row(ax: "Axes", draws: np.ndarray, base: float, grid: np.ndarray, color: str, marker: str) -> None:
    """One engine: density or ticks, two intervals and the mean."""
    different = np.unique(draws)  # particles of different weights stand several times among the draws
    if draws.size >= 200 and 2 * different.size > draws.size and draws.std() > 1e-9 * (1 + abs(draws.mean())):
        density = _kernel_density(draws, grid)
        top = base + density / density.max()
        ax.fill_between(grid, base, top, color=color, alpha=0.3, lw=0)
        ax.plot(grid, top, color=color, lw=1.4)
    elif draws.std() > 0:
        ax.plot(different, np.full(different.size, base + 0.13), "|", ms=11, color=color, mew=1.1)
    for inside, width in INTERVALS:
        bar(ax, draws, inside, base - 0.08, color=color, lw=width)
    ax.plot(draws.mean(), base - 0.08, marker, ms=6, mfc="white", mec=color, mew=1.5)
