"""The sites of rows with neighbours: Gaussian data, one term a row, and a latent process in the plate of the data.

mathematics.md sections 16.2 and 16.4: pseudo-data under a guide, whitened values under a sampler.
"""

from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_gp.arrays import Array, ArrayLike, Shape, current_trace
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.neighbours.blocks import HALF_LOG_2PI, least_noise
from numpyro_gp.beliefs.neighbours.pseudo_rows import Cavity, PseudoRows, natural_moments, without_own_datum
from numpyro_gp.checks import (
    check_array,
    check_finite,
    check_floating,
    check_nonnegative,
    check_points,
    check_positive,
    fail,
)
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.functionals import OfFunctionals
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import AnyNeighbours, NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import level_at
from numpyro_gp.primitives.inducing import parts_of_neighbours, report
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData, check_all_rows
from numpyro_gp.primitives.opening import check_name, open_site, record, record_call
from numpyro_gp.programs.private import active_handlers
from numpyro_gp.sites import Belief, Certain

# Mean and variance at rows.
SiteMoments = tuple[Array, Array]
ONE_SITE_EACH = "Open a site for each member, with neighbours of its own rows."
# A weight of a term would leave what neighbours say of others as it was, and predictions.
WEIGHED = "Pass the noise variance of each row of all the data, noise**2 / weights: neighbours count by it as well."


class GivenNeighbours(dist.Distribution):
    """``p(y_i | y_N(i))`` of rows of data, whose product over all rows is a proper density.

    Batch shape ``(B,)``, or all data as one event: then what is global and not known yet is integrated out.
    """

    pytree_data_fields = ("data", "rows", "index")

    def __init__(self, data: RowData, rows: Array, index: Array, is_event: bool) -> None:
        self.data, self.rows, self.index = data, rows, index
        super().__init__(*(((), rows.shape) if is_event else (rows.shape, ())))

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real_vector if self.event_shape else constraints.real

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The terms of the rows, or their sum; of several sets of data on the left, one after the other."""
        if self.rows.ndim > 1:  # what `scan` stacks: one for each of its steps
            return lax.map(lambda step: step[0].log_prob(step[1]), (self, value))
        if value.ndim > 1:
            return lax.map(self.log_prob, value)
        data = self.given(value)
        return data.evidence() if self.event_shape else data.terms(self.rows, self.index, value)

    def left_out(self, value: Array) -> tuple[Array, Array]:
        """Mean and variance of each datum of the rows given all others."""
        mean, variance = self.given(value).left_out()
        return mean[self.rows], variance[self.rows]

    def given(self, value: Array) -> RowData:
        """The data where this is the value: all of them, of whatever handler, or those behind a minibatch."""
        if self.data.near.rows is not None or value.shape[-1] != self.data.near.size:
            return self.data
        # Of rows that were drawn twice others are missing, and still are neighbours.
        return replace(self.data, y=jnp.asarray(self.data.y, value.dtype).at[self.rows].set(value))

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        """All data together."""
        return self.data.draw(key, sample_shape)[..., self.rows]


def regression_by_neighbours(
    name: str,
    kernel: Kernel,
    near: AnyNeighbours,
    noise_variance: ArrayLike,
    level: Mean,
    obs: ArrayLike | None,
    jitter: float | None,
    inducing: Any = None,
    shared: GlobalPart | None = None,
) -> LocalProcess:
    """`gp_regression` of rows with neighbours: whole, one event, or some rows in their plate, one term each.

    What is global is held by points, ``inducing``, whose values are integrated out, or is ``shared`` by their process.
    """
    whole = near.near if isinstance(near, NeighbourRows) else near
    is_whole = near is whole
    if inducing is not None and not is_whole:
        cure = "Open f = ngp.gp('f', kernel, inducing=Z) outside of the plate, and pass f in place of the kernel."
        fail("inducing", "None where rows of a plate have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    check_one_process(name, kernel, None, "have neighbours", ONE_SITE_EACH)
    if is_whole or obs is None:
        cure = "Search for all of them, ngp.neighbours(X, K), or take minibatches: near[idx] in a plate of near.size."
        check_all_rows(whole, " where these stand whole, or are drawn", cure)
    is_given = shared is not None
    size, dtype = whole.size, whole.inputs.dtype
    if inducing is not None:
        basis = Basis.build(kernel, check_points("inducing", inducing, whole.inputs.shape[-1]))
        shared = GlobalPart(basis, jnp.zeros(basis.size, basis.dtype), jnp.eye(basis.size, dtype=basis.dtype))
    relative = least_noise(dtype) if jitter is None else check_nonnegative("jitter", jitter)
    cure = "Pass all data, y and not y[idx]: near[idx] says which rows they are, and neighbours count too."
    noise, seen = check_gaussian_data(name, size, noise_variance, obs, "near", cure)
    y = jnp.zeros(size, dtype) if seen is None else seen
    rows = near.rows if isinstance(near, NeighbourRows) else jnp.arange(size)
    data = RowData(kernel, whole, y, noise, level, relative, None, shared, is_given)
    fn = GivenNeighbours(data, rows, jnp.asarray(near.index), is_whole)
    if obs is None and len(rows) != size:
        cure = "Pass None for the argument that sets the minibatch, as batch=None."
        fail(f"the rows of site {name!r}", "all of them where there are no data", f"{len(rows)} of {size}", cure)
    hidden = "Leave rows without data out before neighbours are found: they would still be neighbours of others."
    check_handlers(name, near, hidden)
    with handlers.trace() as trace:
        value = numpyro.sample(check_name("name", name), fn, obs=None if obs is None else y[rows])
    (site,) = trace.values()
    process = record(LocalProcess(site["name"], fn.given(value), int(whole.inputs.shape[-1])))
    record_call(process, jnp.asarray(near.inputs))
    return process


def global_part_of(process: Any, near: Any, argument: str) -> GlobalPart:
    """What a process of inducing points holds of rows with neighbours; refused where it is several."""
    basis: AbstractBasis = process.basis
    is_one = not process.plates.names and process.outputs is None and process.noise is None
    if not isinstance(basis, Basis) or not is_one or isinstance(basis.kernel, OfFunctionals):
        cure = "Open it by f = ngp.gp('f', kernel, inducing=Z), outside of plates and without outputs."
        required = "one process of inducing points, where rows have neighbours"
        fail(argument, required, f"the process {process.name!r}, of another kind", cure)
    if (columns := int(near.inputs.shape[-1])) != process.columns:
        cure = "Find neighbours in the columns of its inducing points."
        fail(argument, f"of the {columns} columns of near", f"{process.columns}", cure)
    return GlobalPart.of(process.process, basis)


def check_one_process(name: str, kernel: Kernel, outputs: int | None, where: str, cure: str) -> None:
    """Refuse several functions, and a batch of kernels, ``where`` rows have neighbours or are on a line."""
    if outputs is not None:
        pair = "Open a site for each function, and pass a tuple to observe: (f.at_inducing(), g.at_inducing())."
        fail("outputs", f"None where rows {where}", outputs, pair)
    if lead := batch_shape(kernel):
        fail(f"the kernel of site {name!r}", f"one kernel, where rows {where}", f"a batch of {lead}", cure)


def check_gaussian_data(
    name: str, size: int, noise_variance: ArrayLike, obs: ArrayLike | None, rows: str, cure: str
) -> tuple[Array, Array | None]:
    """Noise variances, and data of all ``rows``: those of near, or of a line."""
    noise = check_positive("noise_variance", noise_variance)
    if noise.shape not in ((), (size,)):
        each = f"Pass one variance, or one for each of all the rows of {rows}"
        each += ": of neighbours too the noise counts." if rows == "near" else "."
        fail("noise_variance", f"a number or of shape {(size,)}", f"shape {noise.shape}", each)
    if obs is None:
        return noise, None
    y = check_array(f"obs of site {name!r}", obs)
    if y.shape != (size,):
        fail(f"obs of site {name!r}", f"of shape {(size,)}, one for each row of {rows}", f"shape {y.shape}", cure)
    check_finite(f"obs of site {name!r}", y)
    return noise, y


def check_plate_of_rows(name: str, inputs: Array, obs: ArrayLike | None) -> None:
    """Refuse the rows of a plate, and one datum for each, where a process stands in it: it is one for each member.

    A model that is written for neighbours gives them where it is called with ``X``.
    """
    plates = [handler for handler in active_handlers() if isinstance(handler, numpyro.plate) and handler.dim == -1]
    if obs is None or not plates or inputs.ndim != 2 or jnp.ndim(obs) != 1:
        return
    if plates[0].subsample_size == inputs.shape[0]:
        cure = (
            "Where the model takes near, pass near = ngp.neighbours(X, 16) in place of X. Without neighbours call it "
            "outside of plates, and in a plate of groups pass data of each member."
        )
        got = f"an array of {inputs.shape[0]} rows in plate {plates[0].name!r} of as many"
        fail(f"X of site {name!r}", "rows with neighbours, near[idx], where they are those of a plate", got, cure)


def check_handlers(name: str, near: AnyNeighbours, hidden: str, weighed: str = WEIGHED) -> None:
    """Rows stand in their own plate and no other, all of them together in none, and none is masked or weighed.

    ``hidden`` is the cure for a mask, ``weighed`` that for a scale.
    """
    for handler in active_handlers():
        for kind, what, cure in ((handlers.mask, "mask", hidden), (handlers.scale, "scale", weighed)):
            if isinstance(handler, kind) and jnp.ndim(value := getattr(handler, what)):
                got = f"an array of shape {jnp.shape(value)}"
                fail(f"the {what} over site {name!r}", "one number, where rows have neighbours", got, cure)
    plates = [handler for handler in active_handlers() if isinstance(handler, numpyro.plate)]
    got = ", ".join(f"{plate.name!r} of {plate.size}" for plate in plates) or "no plate"
    if isinstance(near, Neighbours):
        if plates:
            cure = "Pass the rows of the plate, near[idx], or call gp_regression outside of plates."
            fail(f"the plates around site {name!r}", "none, where near stands whole", got, cure)
        return
    size, held = near.near.size, [(plate.size, plate.subsample_size, plate.dim) for plate in plates]
    if held != [(size, len(near), -1)]:
        cure = "Write `with numpyro.plate('data', near.size, subsample_size=batch) as idx:` around it, and near[idx]."
        required = f"one of the {size} rows of near, {len(near)} of which it holds"
        fail(f"the plates around site {name!r}", required, got, cure)


class RowPrior(dist.Distribution):
    """Prior of a process by neighbours at rows of a plate, batch shape ``(B,)``.

    Its value is whitened values of all rows, which are independent standard normals, or pseudo-data, which it scores by
    the terms of minus their divergence.
    """

    support = constraints.real
    has_rsample = True
    pytree_data_fields = ("kernel", "rows", "jitter", "shared")
    pytree_aux_fields = ("name",)
    # Pseudo-data with their moments at these rows, and what traced then: they are found once.
    _known: tuple[object, object, Any] | None = None

    def __init__(
        self, name: str, kernel: Kernel, rows: NeighbourRows, jitter: ArrayLike, shared: GlobalPart | None = None
    ) -> None:
        self.name, self.kernel, self.rows, self.jitter, self.shared = name, kernel, rows, jitter, shared
        super().__init__(rows.rows.shape, ())

    @property
    def near(self) -> Any:
        """All rows of the data."""
        return self.rows.near

    @property
    def dtype(self) -> np.dtype:
        """Floating point type of the whitened values; where a set-up has kept their shapes alone too."""
        return np.dtype(jax.dtypes.canonicalize_dtype(self.near.inputs.dtype))

    @property
    def inputs(self) -> Array:
        """All rows of the data, ``(N, D)``."""
        return jnp.asarray(self.near.inputs)

    @property
    def size(self) -> int:
        """Number of all rows of the data."""
        return self.near.size

    def parts(self) -> dict[str, Array]:
        """What tells its rows from others."""
        return parts_of_neighbours(self.near)

    @property
    def mean(self) -> Array:
        return jnp.zeros(self.shape(), self.dtype)

    @property
    def variance(self) -> Array:
        return jnp.ones(self.shape(), self.dtype)

    @property
    def basis(self) -> NoReturn:
        """Refused: there are no inducing inputs that all rows depend on."""
        cure = "Fit it with ngp.guides.pseudo_data(), the default of AutoGP, or sample it with ngp.NUTS."
        got = "one whose rows have neighbours"
        fail(f"the process {self.name!r}", "one with inducing inputs, for this", got, cure, AttributeError)

    def basis_of(self, value: object) -> Any:  # noqa: ARG002
        """Refused, as `basis` is."""
        return self.basis

    def of_one(self, batch: Shape) -> "RowPrior":  # noqa: ARG002
        """What a recipe is told: itself, which knows all rows."""
        return self

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        return jax.random.normal(key, sample_shape + self.shape(), self.dtype)

    rsample = sample

    def log_prob(self, value: AbstractBelief | ArrayLike, intermediates: object = None) -> Array:  # noqa: ARG002
        if isinstance(value, AbstractBelief):
            belief = lax.stop_gradient(self.checked(value))
            moments, _ = self.moments(value)
            rows, data = self.rows, self.data(belief)
            y = data.y[rows.rows]
            # Terms of log int p(f) prod_i exp(h_i f_i - w_i f_i^2 / 2) df; with `shared` their expectation over it.
            terms = data.terms(rows.rows, jnp.asarray(rows.index), y) + 0.5 * jnp.square(y) + HALF_LOG_2PI
            return terms - belief.expected_log(rows.rows, *moments)
        size, held = self.size, len(self.rows)
        if held != size:  # a row follows from those before it
            required = "all of them where the process is a point, as under samplers and NumPyro's own guides"
            cure = "Pass None for what sets the minibatch, batch=None, or fit with the guide ngp.AutoGP(model)."
            fail(f"the rows of site {self.name!r}", required, f"{held} of {size}", cure)
        return -0.5 * jnp.square(jnp.asarray(value)) - HALF_LOG_2PI

    def data(self, belief: PseudoRows, level: Mean | None = None) -> RowData:
        """Pseudo-data as data ``w^(1/2) f + xi`` of the function less its mean."""
        noise, scale = jnp.ones((), belief.dtype), jnp.sqrt(belief.precision)
        return RowData(self.kernel, self.near, belief.residual, noise, level, self.jitter, scale, self.shared, True)

    def checked(self, value: AbstractBelief) -> PseudoRows:
        size = self.size
        if not isinstance(value, PseudoRows) or value.shift.shape[-1:] != (size,):
            got = f"a {type(value).__name__} of shape {tuple(value.shape)}"
            cure = "Leave the site to AutoGP, or give it ngp.guides.pseudo_data()."
            fail(f"the belief at site {self.name!r}", f"pseudo-data of all {size} rows", got, cure)
        return value

    def whitened(self, value: Any) -> Array:
        """A point: whitened values of all rows, others refused."""
        white = check_floating(f"the value of site {self.name!r}", value)
        if white.shape[-1:] != (self.size,):
            got, cure = f"shape {white.shape}", "Use the rows that the value was found with."
            fail(f"the value of site {self.name!r}", f"whitened values of shape {(self.size,)}", got, cure)
        return white

    def moments(self, value: AbstractBelief) -> tuple[SiteMoments, SiteMoments]:
        """Mean and variance of ``q(f_i)``, without the mean function, and of the cavity: of all others' pseudo-data."""
        if self._known is None or self._known[0] is not value or self._known[1] != current_trace():
            self._known = value, current_trace(), self._moments(self.checked(value))
        return self._known[2]

    def _moments(self, belief: PseudoRows) -> tuple[SiteMoments, SiteMoments]:
        rows, still = self.rows, lax.stop_gradient(belief)
        points, data = self.inputs[rows.rows], lax.stop_gradient(self.data(belief))
        cavity: Cavity = lax.stop_gradient(data.given(points, jnp.asarray(rows.others)))
        prior = lax.stop_gradient(self.kernel.diagonal(points))
        counted = self.size / len(rows)
        marginals = natural_moments(belief.shift, belief.precision, rows.rows, cavity, (prior, counted))
        return marginals, without_own_datum(still.shift, still.precision, rows.rows, cavity)


kl_divergence.add((Belief, RowPrior), lambda belief, prior: -prior.log_prob(belief.value))


def gp_by_neighbours(
    name: str,
    kernel: Kernel,
    rows: NeighbourRows | Neighbours | NewRows,
    level: Mean,
    outputs: int | None = None,
    jitter: float | None = None,
    shared: GlobalPart | None = None,
) -> LocalProcess:
    """Open the site of a latent process at the rows of a plate: of all of it, or of what inducing points leave open."""
    check_one_process(name, kernel, outputs, "have neighbours", ONE_SITE_EACH)
    if isinstance(rows, NewRows):
        cure = "Predict with posterior.predict_at(key, X_new, *arguments_of_the_fit), which finds them."
        fail("inducing", "the rows of the fit, near[idx]", "new rows", cure, TypeError)
    if isinstance(rows, Neighbours):
        cure = "Write `with numpyro.plate('data', near.size, subsample_size=batch) as idx:` around it, and near[idx]."
        fail("inducing", "the rows of a plate", "neighbours of all rows", cure, TypeError)
    whole = rows.near
    cure = "Search for all of them: leave rows= out of ngp.neighbours."
    check_all_rows(whole, ", as each has a pseudo-datum of its own", cure)
    if rows.others is None:
        cure = "Find them once: near = ngp.neighbours(X, 16, others=True)."
        fail("near", "rows with others around them, earlier and later", "earlier ones alone", cure)
    around = "Put handlers.{} around ngp.observe alone."
    check_handlers(name, rows, around.format("mask"), around.format("scale"))
    relative = ample_jitter(whole.inputs.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    prior = RowPrior(check_name("name", name), kernel, rows, relative, shared)
    site, _, value = open_site(name, prior, infer={"numpyro_gp": "gp"})
    report(site, parts_of_neighbours(whole, not isinstance(value, AbstractBelief)), is_given=True)
    inputs = rows.inputs
    if isinstance(value, AbstractBelief):
        data = prior.data(prior.checked(value), level)
        shift = level_at(level, inputs)
        known = tuple(dist.Normal(shift + center, jnp.sqrt(variance)) for center, variance in prior.moments(value))
    else:
        zeros, noise = jnp.zeros(whole.size, prior.dtype), jnp.zeros((), prior.dtype)
        data = RowData(kernel, whole, zeros, noise, level, relative, None, shared, True)
        if len(rows) != whole.size:
            # Models are run on minibatches of points to see what they hold, and never scored: `RowPrior.log_prob`.
            known = Certain(level_at(level, inputs) + jnp.sqrt(kernel.diagonal(inputs)) * value), None
        else:
            white = prior.whitened(value)
            # The function at all rows, one after the other: ``f_i = a_i . f_N(i) + sd_i v_i``, of what is not global.
            ordered = jnp.zeros_like(white).at[..., rows.rows].set(white)
            values = data.drawn(ordered, None if shared is None else shared.mean)
            data, known = replace(data, y=values), (Certain(values[..., rows.rows]), None)
    process = record(LocalProcess(site, data, int(whole.inputs.shape[-1]), *known))
    record_call(process, inputs)
    return process
