"""The site of Gaussian data given their nearest earlier neighbours, one term a row (mathematics.md section 16.2)."""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.neighbours.blocks import least_noise
from numpyro_gp.checks import check_array, check_finite, check_nonnegative, check_points, check_positive, fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.functionals import Functional, OfFunctionals
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import AnyNeighbours, NeighbourRows, Neighbours
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData
from numpyro_gp.primitives.opening import check_name, record, record_call
from numpyro_gp.programs.private import active_handlers

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

    def given(self, value: Array) -> RowData:
        """The data where this is the value: all of them, of whatever handler, or those behind a minibatch."""
        if self.data.near.rows is not None or value.shape[-1] != self.data.near.size:
            return self.data
        # Of rows that were drawn twice others are missing, and still are neighbours.
        return self.data.of(jnp.asarray(self.data.y, value.dtype).at[self.rows].set(value))

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
    inducing: Functional | ArrayLike | None = None,
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
    check_one_process(name, kernel, whole, is_whole or obs is None)
    if isinstance(inducing, Functional):
        cure = "Pass points, or leave near out: X of rows in its place."
        fail("inducing", "points, where rows have neighbours", f"a {type(inducing).__name__}", cure, TypeError)
    is_given = shared is not None
    if inducing is not None:
        shared = GlobalPart.prior(Basis.build(kernel, check_points("inducing", inducing, whole.inputs.shape[-1])))
    noise = check_noise(noise_variance, whole.size)
    relative = least_noise(whole.inputs.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    y = jnp.zeros(whole.size, whole.inputs.dtype) if obs is None else check_all_data(name, obs, whole.size)
    rows = near.rows if isinstance(near, NeighbourRows) else jnp.arange(whole.size)
    data = RowData(kernel, whole, y, noise, level, relative, None, shared, is_given)
    fn = GivenNeighbours(data, rows, jnp.asarray(near.index), is_whole)
    if obs is None and len(rows) != whole.size:
        cure = "Pass None for the argument that sets the minibatch, as batch=None."
        fail(f"the rows of site {name!r}", "all of them where there are no data", f"{len(rows)} of {whole.size}", cure)
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


def check_noise(noise_variance: ArrayLike, size: int) -> Array:
    """A noise variance of all data, or one for each."""
    noise = check_positive("noise_variance", noise_variance)
    if noise.shape not in ((), (size,)):
        cure = "Pass one variance, or one for each row of all the data: of neighbours too the noise counts."
        fail("noise_variance", f"a number or of shape {(size,)}", f"shape {noise.shape}", cure)
    return noise


def check_one_process(name: str, kernel: Kernel, near: Neighbours, is_whole: bool = True) -> None:
    """Refuse a batch of kernels, and neighbours of some rows where all of them stand."""
    if lead := batch_shape(kernel):
        cure = "Open a site for each member, with neighbours of its own rows."
        fail(f"the kernel of site {name!r}", "one kernel, where rows have neighbours", f"a batch of {lead}", cure)
    if is_whole and near.rows is not None:
        cure = "Search for all of them, ngp.neighbours(X, K), or take minibatches: near[idx] in a plate of near.size."
        got = f"those of {near.rows.shape[0]} of {near.size} rows"
        fail("near", "neighbours of all rows where these stand whole, or are drawn", got, cure)


def check_all_data(name: str, obs: ArrayLike, size: int) -> Array:
    """All data, one for each row that has neighbours."""
    data = check_array(f"obs of site {name!r}", obs)
    if data.shape != (size,):
        cure = "Pass all data, y and not y[idx]: near[idx] says which rows they are, and neighbours count too."
        fail(f"obs of site {name!r}", f"of shape {(size,)}, one for each row of near", f"shape {data.shape}", cure)
    check_finite(f"obs of site {name!r}", data)
    return data


def check_plate_of_rows(name: str, inputs: Array, obs: ArrayLike | None) -> None:
    """Refuse the rows of a plate, and one datum for each, where a process stands in it: it is one for each member.

    A model that is written for neighbours gives them where it is called with ``X``.
    """
    plates = [one for one in active_handlers() if isinstance(one, numpyro.plate) and one.dim == -1]
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
    plates = [one for one in active_handlers() if isinstance(one, numpyro.plate)]
    got = ", ".join(f"{one.name!r} of {one.size}" for one in plates) or "no plate"
    if isinstance(near, Neighbours):
        if plates:
            cure = "Pass the rows of the plate, near[idx], or call gp_regression outside of plates."
            fail(f"the plates around site {name!r}", "none, where near stands whole", got, cure)
        return
    size, held = near.near.size, [(one.size, one.subsample_size, one.dim) for one in plates]
    if held != [(size, len(near), -1)]:
        cure = "Write `with numpyro.plate('data', near.size, subsample_size=batch) as idx:` around it, and near[idx]."
        required = f"one of the {size} rows of near, {len(near)} of which it holds"
        fail(f"the plates around site {name!r}", required, got, cure)
