"""How a fit went: losses by step, and where Stein particles stand."""

from collections.abc import Mapping

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.plots.style import COLOURS, INK, Axes, axes_or_new, bar, finish, line_look, named, vector


def convergence(
    losses: Mapping[str, ArrayLike] | ArrayLike,
    *,
    window: int | None = None,
    title: str = "Convergence",
    ylabel: str = "loss (minus the bound) [nats]",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether a fit has converged: the loss of every step (faint) and its running median (strong).

    Parameters
    ----------
    losses : dict by name of (or one) array (steps,)
    window : int, optional
        Steps in the running median; 1/50 of the run by default.

    Returns
    -------
    matplotlib.axes.Axes

    Notes
    -----
    The vertical axis shows the last 95% of each run: the first steps would squash the rest.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ax = ngp.plots.convergence(np.exp(-np.arange(200) / 50.0))
    >>> type(ax).__name__
    'Axes'
    """
    if hasattr(losses, "losses"):
        fail("losses", "one array, or several by name", f"a {type(losses).__name__}", "Pass result.losses.", TypeError)
    ax = axes_or_new(ax)
    late = []
    for number, (name, run) in enumerate(named(losses, "losses").items()):
        loss = np.asarray(run, float)
        if loss.ndim != 1 or loss.size < 2:
            fail(f"losses[{name!r}]", "of shape (steps,), two or more", f"shape {loss.shape}", "Pass result.losses.")
        size = min(window or max(1, loss.size // 50), loss.size)
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(loss, size), axis=1)
        steps, style = np.arange(1, loss.size + 1), line_look(number)
        if size > 1:
            ax.plot(steps, loss, color=style["color"], lw=0.6, alpha=0.3)
        ax.plot(steps[size - 1 :], smooth, lw=1.8, label=name or None, **style)
        late.append(loss[loss.size // 20 :])
    low, high = min(map(np.nanmin, late)), max(map(np.nanmax, late))
    margin = 0.05 * (high - low) or 1.0
    if np.isfinite([low, high]).all():
        ax.set_ylim(low - margin, high + margin)
    if isinstance(losses, Mapping):
        ax.legend(fontsize="small", frameon=False)
    return finish(ax, title, "step", ylabel)


def particles(
    values: Mapping[str, ArrayLike],
    reference: Mapping[str, ArrayLike] | None = None,
    *,
    title: str = "Spread of the particles",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw whether particles have collapsed: one row for each quantity, against draws of a sampler.

    Every row is shifted by the mean of the reference and divided by its standard deviation (without one, by those of
    the particles), so that all quantities share one axis without units. Particles inside much less than
    the grey bars (68% and 95% of the reference) have collapsed.

    Parameters
    ----------
    values : dict by name of arrays (S,)
        Particles.
    reference : dict by name of arrays (S',), optional
        Draws of the same quantities, of NUTS for instance.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> draws = np.random.default_rng(0).normal(size=200)
    >>> ax = ngp.plots.particles({"noise": draws[:10]}, {"noise": draws})
    >>> type(ax).__name__
    'Axes'
    """
    ax, values = axes_or_new(ax), named(values, "values")
    for number, (name, raw) in enumerate(values.items()):
        drawn = vector(f"values[{name!r}]", raw)
        if reference is not None and name not in reference:
            fail("reference", f"a dictionary with {name!r}", f"{sorted(reference)}", "Pass the names in values.")
        other = drawn if reference is None else vector(f"reference[{name!r}]", reference[name])
        center, spread = other.mean(), other.std() or 1.0
        if reference is not None:
            scaled = (other - center) / spread
            for inside, width, shade in ((95, 4, "0.8"), (68, 10, "0.65")):
                label = f"reference, {inside}%" if number == 0 else None
                bar(ax, scaled, inside, -number, lw=width, color=shade, zorder=1, label=label)
        scaled = (drawn - center) / spread
        label = "particle" if number == 0 else None
        ax.plot(scaled, np.full(drawn.size, -number), "o", ms=5, mfc="none", mec=COLOURS[0], mew=1.2, label=label)
    ax.axvline(0, color=INK, lw=0.8, ls=":", zorder=0)
    ax.set_yticks(-np.arange(len(values)), list(values))
    ax.set_ylim(-len(values) + 0.4, 0.6)
    ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    unit = "particles" if reference is None else "reference"
    return finish(ax, title, f"standardised by the {unit}", "")
