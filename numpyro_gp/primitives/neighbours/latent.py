"""A latent process of rows with neighbours: ``gp("f", kernel, near[idx])`` in the plate of the data.

mathematics.md section 16.4 has the terms: pseudo-data under a guide, whitened values under a sampler.
"""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_gp.arrays import Array, ArrayLike, Shape, current_trace
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.neighbours.blocks import HALF_LOG_2PI
from numpyro_gp.beliefs.neighbours.pseudo_rows import Cavity, PseudoRows, natural_moments, without_own_datum
from numpyro_gp.checks import check_floating, check_nonnegative, fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import level_at
from numpyro_gp.primitives.inducing import parts_of_neighbours, report
from numpyro_gp.primitives.neighbours.gaussian_data import check_handlers, check_one_process, global_part_of
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData
from numpyro_gp.primitives.opening import check_name, open_site, record, record_call
from numpyro_gp.sites import Belief, Certain


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
    def dtype(self) -> np.dtype:
        """Floating point type of the whitened values; where a set-up has kept their shapes alone too."""
        found: np.dtype = jax.dtypes.canonicalize_dtype(self.rows.near.inputs.dtype)
        return found

    @property
    def inputs(self) -> Array:
        """All rows of the data, ``(N, D)``."""
        return jnp.asarray(self.rows.near.inputs)

    @property
    def mean(self) -> Array:
        return jnp.zeros(self.batch_shape, self.dtype)

    @property
    def variance(self) -> Array:
        return jnp.ones(self.batch_shape, self.dtype)

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
        return jax.random.normal(key, sample_shape + self.batch_shape, self.dtype)

    rsample = sample

    def log_prob(self, value: AbstractBelief | ArrayLike, intermediates: object = None) -> Array:  # noqa: ARG002
        if isinstance(value, AbstractBelief):
            belief = lax.stop_gradient(self.checked(value))
            moments, _ = self.moments(value)
            rows, data = self.rows, self.data(belief)
            own = data.y[rows.rows]
            # Terms of log int p(f) prod_i exp(h_i f_i - w_i f_i^2 / 2) df; with `shared` their expectation over it.
            terms = data.terms(rows.rows, jnp.asarray(rows.index), own) + 0.5 * jnp.square(own) + HALF_LOG_2PI
            return terms - belief.expected_log(rows.rows, *moments)
        self.check_whole()
        return -0.5 * jnp.square(jnp.asarray(value)) - HALF_LOG_2PI

    def data(self, belief: PseudoRows, level: Mean | None = None) -> RowData:
        """Pseudo-data as data ``w^(1/2) f + xi`` of the function less its mean."""
        noise, near = jnp.ones((), belief.dtype), self.rows.near
        scale = jnp.sqrt(belief.precision)
        return RowData(self.kernel, near, belief.residual, noise, level, self.jitter, scale, self.shared, True)

    def check_whole(self) -> None:
        """Refuse whitened values of a minibatch: a row follows from those before it."""
        size, held = self.rows.near.size, len(self.rows)
        if held != size:
            required = "all of them where the process is a point, as under samplers and NumPyro's own guides"
            cure = "Pass None for what sets the minibatch, batch=None, or fit with the guide ngp.AutoGP(model)."
            fail(f"the rows of site {self.name!r}", required, f"{held} of {size}", cure)

    def checked(self, value: AbstractBelief) -> PseudoRows:
        size = self.rows.near.size
        if not isinstance(value, PseudoRows) or value.shift.shape[-1:] != (size,):
            got = f"a {type(value).__name__} of shape {tuple(value.shape)}"
            cure = "Leave the site to AutoGP, or give it ngp.guides.pseudo_data()."
            fail(f"the belief at site {self.name!r}", f"pseudo-data of all {size} rows", got, cure)
        return value

    def moments(self, value: AbstractBelief) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Mean and variance of ``q(f_i)``, without the mean function, and of the cavity: of all others' pseudo-data."""
        if self._known is None or self._known[0] is not value or self._known[1] != current_trace():
            belief, rows = self.checked(value), self.rows
            own, still = self.inputs[rows.rows], lax.stop_gradient(belief)
            data = lax.stop_gradient(self.data(belief))
            cavity: Cavity = lax.stop_gradient(data.given(own, jnp.asarray(rows.others)))
            prior = lax.stop_gradient(self.kernel.diagonal(own))
            counted = rows.near.size / len(rows)
            found = natural_moments(belief.shift, belief.precision, rows.rows, cavity, (prior, counted))
            outside = without_own_datum(still.shift, still.precision, rows.rows, cavity)
            self._known = value, current_trace(), (found, outside)
        return self._known[2]


kl_divergence.add((Belief, RowPrior), lambda belief, prior: -prior.log_prob(belief.value))


def gp_by_neighbours(
    name: str,
    kernel: Kernel,
    near: object,
    level: Mean,
    outputs: int | None = None,
    jitter: float | None = None,
    shared: GlobalPart | None = None,
) -> LocalProcess:
    """Open the site of a latent process at the rows of a plate: of all of it, or of what inducing points leave open."""
    rows = _check(name, kernel, near, outputs)
    around = "Put handlers.{} around ngp.observe alone."
    check_handlers(name, rows, around.format("mask"), around.format("scale"))
    whole = rows.near
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
        data, certain = _of_point(prior, check_floating(f"the value of site {name!r}", value), level)
        known = certain, None
    found = record(LocalProcess(site, data, int(whole.inputs.shape[-1]), *known))
    record_call(found, inputs)
    return found


def rest_of_process(site: str, process: Any, near: object) -> LocalProcess:
    """A process at the rows of a plate: global by its inducing points, and by neighbours for what they leave open."""
    shared = global_part_of(process, near, "the process")
    return gp_by_neighbours(site, shared.basis.kernel, near, process.mean, jitter=process.jitter, shared=shared)


def _of_point(prior: RowPrior, value: Array, level: Mean) -> tuple[RowData, dist.Normal]:
    """The function at all rows, one after the other: ``f_i = a_i . f_N(i) + sd_i v_i``, of what is not global."""
    rows, size, shared = prior.rows, prior.rows.near.size, prior.shared
    zeros, noise = jnp.zeros(size, prior.dtype), jnp.zeros((), prior.dtype)
    blank = RowData(prior.kernel, rows.near, zeros, noise, level, prior.jitter, None, shared, True)
    if len(rows) != size:
        # Models are run on minibatches of points to see what they hold, and never scored: `RowPrior.check_whole`.
        own = rows.inputs
        values = jnp.sqrt(prior.kernel.diagonal(own)) * value
        return blank, Certain(level_at(level, own) + values)
    if value.shape[-1:] != (size,):
        cure = "Use the rows that the value was found with."
        got = f"shape {value.shape}"
        fail(f"the value of site {prior.name!r}", f"whitened values of shape {(size,)}", got, cure)
    ordered = jnp.zeros_like(value).at[..., rows.rows].set(value)
    values = blank.drawn(ordered, None if shared is None else shared.mean)
    return blank.of(values), Certain(values[..., rows.rows])


def _check(name: str, kernel: Kernel, near: Any, outputs: int | None) -> NeighbourRows:
    """The rows of a plate, of one process."""
    if outputs is not None:
        cure = "Open a site for each function, and pass a tuple to observe: (f.at_inducing(), g.at_inducing())."
        fail("outputs", "None where rows have neighbours", outputs, cure)
    if isinstance(near, NewRows):
        cure = "Predict with posterior.predict_at(key, X_new, *arguments_of_the_fit), which finds them."
        fail("inducing", "the rows of the fit, near[idx]", "new rows", cure, TypeError)
    if isinstance(near, Neighbours):
        cure = "Write `with numpyro.plate('data', near.size, subsample_size=batch) as idx:` around it, and near[idx]."
        fail("inducing", "the rows of a plate", "neighbours of all rows", cure, TypeError)
    whole = near.near
    check_one_process(name, kernel, whole, is_whole=False)
    if whole.rows is not None:
        got = f"those of {whole.rows.shape[0]} of {whole.size} rows"
        cure = "Search for all of them: leave rows= out of ngp.neighbours."
        fail("near", "neighbours of all rows, as each has a pseudo-datum of its own", got, cure)
    if near.others is None:
        cure = "Find them once: near = ngp.neighbours(X, 16, others=True)."
        fail("near", "rows with others around them, earlier and later", "earlier ones alone", cure)
    return near
