"""``point_pattern``: events on a line, on a map or in time, whose log intensity is a process, without bins."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_floating, check_key, check_nonnegative, check_points, fail
from numpyro_gp.likelihoods import PointPattern
from numpyro_gp.primitives.observe import observe
from numpyro_gp.primitives.process import GaussianProcess

# Points at which an intensity is evaluated together: one shape, and so one program, whatever their number.
POINTS_TOGETHER = 1024


def point_pattern(
    name: str,
    f: GaussianProcess,
    nodes: ArrayLike,
    weights: ArrayLike,
    events: ArrayLike | None = None,
    *,
    batch: int | None = None,
) -> Array:
    """Observe a point pattern of intensity ``exp(f)``: a log-Gaussian Cox process (mathematics.md section 15.3).

    ``log p(events | f) = sum_i f(s_i) - int exp(f)``, with the integral by nodes of a quadrature rule. Events and nodes
    are the rows of one plate, ``NAME_rows``, and so minibatches, masks and predictions work as for other data. Give the
    process a mean, the log of the usual intensity: ``mean=numpyro.sample("level", ...)``.

    Parameters
    ----------
    name : str
        Name of the site.
    f : GaussianProcess
        The log intensity, outside of every plate.
    nodes : array (Q, D)
        Nodes over the region that was watched, a fraction of a lengthscale apart.
    weights : array (Q,) or ()
        Their weights, zero or positive: they sum to the size of the region. One for all is that of equal cells.
    events : array (E, D), optional
        Where the events were; ``(0, D)`` says that there were none. None predicts the number of events in the cell of
        each node.
    batch : int, optional
        Rows of a minibatch, of events and nodes together.

    Returns
    -------
    Array
        1 for events and 0 for nodes; of a prediction the numbers of events by node.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> nodes = (jnp.arange(20) + 0.5)[:, None] / 20   # twenty cells of [0, 1]
    >>> def model(nodes, weights, events=None):
    ...     f = ngp.gp("f", ngp.kernels.Matern52(1.0, 0.3), nodes[::4], mean=3.0)
    ...     return ngp.point_pattern("events", f, nodes, weights, events)
    >>> numpyro.handlers.seed(model, 0)(nodes, 0.05, jnp.array([[0.1], [0.15], [0.8]])).shape
    (23,)
    """
    points = check_points("nodes", nodes)
    sizes, y = check_nonnegative("weights", weights), None
    if sizes.shape not in ((), points.shape[:1]):
        fail("weights", f"a number or of shape {points.shape[:1]}", f"shape {sizes.shape}", "Pass one for each node.")
    sizes = jnp.broadcast_to(sizes, points.shape[:1])
    if events is not None:
        # A region where none was seen is data as well.
        is_empty = np.shape(events) == (0, points.shape[1])
        seen = check_floating("events", events) if is_empty else check_points("events", events, points.shape[1])
        y = jnp.asarray(np.repeat([1.0, 0.0], (len(seen), len(points))), points.dtype)
        sizes = jnp.concatenate([jnp.zeros(len(seen), sizes.dtype), sizes])
        points = jnp.concatenate([seen, points])
    rows = numpyro.plate(f"{name}_rows", len(points), subsample_size=batch)
    with rows as idx:
        if rows.dim != -1:
            cure = "Call it beside your plates: its rows are a plate of their own."
            fail(f"the site {name!r}", "outside of every plate", "a call inside of one", cure)
        return observe(name, f(points[idx]), PointPattern(sizes[idx]), obs=None if y is None else y[idx])


def thinned(
    key: Array, log_intensity: Callable[[Array], Array], low: ArrayLike, high: ArrayLike, *, bound: float | None = None
) -> np.ndarray:
    """A pattern drawn from a log intensity: candidates at a higher, constant rate, thinned.

    The rate is raised, and candidates are added, where the intensity turns out to be above it. It is exact but for
    peaks so narrow that no candidate falls on them.

    Parameters
    ----------
    key : PRNG key
    log_intensity : callable
        ``(N, D)`` to ``(N,)``: one function of a posterior, ``posterior.functions(key)[0]``.
    low, high : array (D,)
        Corners of the box.
    bound : float, optional
        An intensity that is nowhere exceeded, where it is known; the largest of 1024 random points otherwise.

    Returns
    -------
    array (E, D)
        The events.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> events = ngp.thinned(jax.random.key(0), lambda X: 5.0 + 0.0 * X[:, 0], [0.0], [1.0])   # some 148 events
    >>> 100 < len(events) < 200, events.shape[1]
    (True, 1)
    """
    corners = check_floating("low", low), check_floating("high", high)
    shapes = [corner.shape for corner in corners]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or not np.all(np.asarray(corners[1] > corners[0])):
        got = f"{[np.asarray(corner).tolist() for corner in corners]}"
        cure = "Pass [0.0], [1.0]."
        fail("low and high", "corners of a box, one entry for each column and low below high", got, cure)
    rng = np.random.default_rng(np.asarray(jax.random.randint(check_key("key", key), (4,), 0, 2**31 - 1)))
    start, size = (np.asarray(corner) for corner in (corners[0], corners[1] - corners[0]))

    def uniform(count: int) -> np.ndarray:
        return (start + size * rng.uniform(size=(count, len(size)))).astype(start.dtype)

    def intensity(points: np.ndarray) -> np.ndarray:
        full = np.concatenate([points, np.repeat(points[-1:], -len(points) % POINTS_TOGETHER, axis=0)])
        pieces = [log_intensity(jnp.asarray(piece)) for piece in np.split(full, len(full) // POINTS_TOGETHER)]
        with np.errstate(over="ignore"):
            found: np.ndarray = np.exp(np.concatenate([np.asarray(piece, float) for piece in pieces])[: len(points)])
        if not np.isfinite(found).all():  # candidates at such a rate would be none, or never end
            cure = "Look at the function that was passed, for a posterior at its fit."
            fail("exp(log_intensity(X))", "finite in the box", f"{found[~np.isfinite(found)][0]}", cure)
        return found

    highest = 0.0 if bound is None else float(check_nonnegative("bound", bound))
    rate, done = max(float(intensity(uniform(POINTS_TOGETHER)).max()), highest), 0.0
    points, heights, values = uniform(0), np.zeros(0), np.zeros(0)
    # A Poisson process under the graph of the intensity: points with heights, uniform between the rates before and now.
    while rate > done:
        new = uniform(rng.poisson((rate - done) * np.prod(size)))
        points, heights = np.concatenate([points, new]), np.append(heights, rng.uniform(done, rate, len(new)))
        values = np.append(values, intensity(new) if len(new) else [])
        done, rate = rate, max(rate, values.max(initial=0.0))
    return points[heights < values]
