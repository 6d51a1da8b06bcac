"""The sites of processes on a line: Gaussian data, and a latent process at all rows under any likelihood.

Under a guide the latent process has a pseudo-datum for each row, under a sampler whitened values (mathematics.md
section 17.4). Both are one event of all rows.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.neighbours.blocks import HALF_LOG_2PI
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows, natural_moments
from numpyro_gp.checks import check_nonnegative, fail, when_known
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.functionals import check_slopes
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.kernels.nonstationary import codes
from numpyro_gp.means import Mean
from numpyro_gp.primitives.function_draw import level_at
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.lines import filter as linear
from numpyro_gp.primitives.lines.states import States, states_at
from numpyro_gp.primitives.lines.value import Line, NewTimes
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_sites import RowPrior, SiteMoments, check_gaussian_data, check_one_process
from numpyro_gp.primitives.opening import Plates, check_name, open_site, record, record_call
from numpyro_gp.sites import Belief, Certain


def codes_of(inputs: Array, states: States) -> Array | None:
    """The codes of series of rows, None where all are read alike; of what is none of a series the last."""
    if (count := states.read.shape[1]) == 1:
        return None
    found, is_code = codes(inputs[:, 1:], count - 1)
    return jnp.where(is_code, found, count - 1)


@value_type()
class LineData:
    """Data, pseudo-data or values at the rows of a line, and the process that they are of.

    Attributes
    ----------
    kernel : Kernel
    near : Line
    residual : Array (N,)
        Data of the function less its mean, rows as they were given.
    precision : Array (N,)
        Inverse variances of their noise; 0 where nothing is seen.
    level : Mean or None
        The mean function.
    noise : Array () or (N,), optional
        Noise variance of Gaussian data.
    """

    kernel: Kernel
    near: Line
    residual: Array
    precision: Array
    level: Mean | None
    noise: Array | None = None

    def sorted(self) -> tuple[linear.Rows, Array, Array]:
        """Rows, data and precisions in the order of time."""
        line, dtype = self.near, self.residual.dtype
        states = states_at(self.kernel, line.inputs.shape[1])
        series = codes_of(line.inputs, states)
        series = None if series is None else line.sorted(series)
        rows = linear.Rows(states, line.gaps.astype(dtype), jnp.asarray(line.times, dtype)[0], series)
        return rows, line.sorted(self.residual), line.sorted(self.precision.astype(dtype))

    def log_integral(self) -> Array:
        """``log E exp(-sum_i w_i (r_i - f_i)^2 / 2)``."""
        return linear.log_integral(*self.sorted())

    def without_own_datum(self) -> tuple[Array, Array]:
        """Mean and variance ``(N,)`` of the function less its mean at each row, given the data of all others."""
        rows, residual, precision = self.sorted()
        known = linear.filtered(rows, residual, precision)
        found = linear.values_with(rows.read, *known)
        return self.near.as_given(found[0]), self.near.as_given(found[1])

    def at(self, new: NewTimes) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function, or of its slope in time, at new rows."""
        rows, residual, precision = self.sorted()
        known, dtype = linear.filtered(rows, residual, precision), residual.dtype
        inputs, place, gaps = map(jnp.asarray, (new.inputs, new.index[:, 0], new.gaps))
        read: Any = rows.states.read
        if new.is_slope:
            check_slopes(self.kernel, (0,))
            read = rows.states.of_slope()
        own = linear.read_at(read, codes_of(inputs, rows.states))
        parts = own, residual, precision, inputs[:, 0].astype(dtype), place, gaps.astype(dtype)
        mean, variance = linear.at_new_rows(rows, known, *parts)
        if self.level is None:
            return mean, variance
        if new.is_slope:
            time = jnp.zeros_like(inputs).at[:, 0].set(1)
            return mean + jax.jvp(partial(level_at, self.level), (inputs,), (time,))[1], variance
        return mean + level_at(self.level, inputs), variance

    def drawn(self, key: Array, new: NewTimes, both: Line) -> Array:
        """A function drawn at new rows together ``(B,)``; ``both`` is the line of the rows and, behind them, the new.

        A draw of the prior at all of them, moved by what the data say beyond it (Matheron's rule).
        """
        white, noisy = jax.random.split(key)
        blank = replace(self, near=both, residual=jnp.zeros(both.size, self.residual.dtype), precision=jnp.zeros(()))
        rows, size = blank.sorted()[0], self.near.size
        prior = linear.drawn_from_prior(rows, jax.random.normal(white, (rows.states.size, both.size), rows.gaps.dtype))
        prior = both.as_given(prior)
        is_seen = self.precision > 0
        deviation = jnp.where(is_seen, lax.rsqrt(jnp.where(is_seen, self.precision, 1)), 0)
        noise = deviation * jax.random.normal(noisy, self.residual.shape, self.residual.dtype)
        return replace(self, residual=self.residual - prior[:size] - noise).at(new)[0] + prior[size:]


@value_type()
class LineEnd:
    """A process behind its rows: the state at the last of them, given all data.

    Attributes
    ----------
    kernel : Kernel
    level : Mean or None
    noise : Array () or (N,)
        Of the data so far.
    jitter : Array ()
        What is added to the noise of data.
    state : (Array (S,), Array (S, S))
        Its mean and covariance.
    """

    kernel: Kernel
    level: Mean | None
    noise: Array
    jitter: Array
    state: tuple[Array, Array]

    @classmethod
    def of(cls, data: LineData) -> "LineEnd":
        """The end of a line of Gaussian data."""
        assert data.noise is not None
        jitter = jnp.mean(1 / data.precision - data.noise)
        return cls(data.kernel, data.level, data.noise, jitter, linear.at_the_end(*data.sorted()))

    def _readers(self, rows: Array) -> tuple[States, Array, Array]:
        """States, what reads them at rows ``(B, 1 or 2)``, and the mean function there."""
        states = states_at(self.kernel, rows.shape[1])
        level = jnp.zeros(len(rows), rows.dtype) if self.level is None else level_at(self.level, rows)
        return states, linear.read_at(states.read, codes_of(rows, states)), level

    def told(self, rows: Array, gaps: Array, y: Array, variance: Array) -> "LineEnd":
        """The end after more data of these noise variances; ``gaps (B,)`` are from the row before each."""
        states, read, level = self._readers(rows)
        return replace(self, state=linear.told(states, self.state, gaps, y - level, 1 / (variance + self.jitter), read))

    def at(self, rows: Array, gaps: Array) -> tuple[Array, Array]:
        """Mean and variance ``(B,)`` of the function at rows that are ``gaps`` behind the last."""
        states, read, level = self._readers(rows)
        mean, variance = linear.behind(states, self.state, gaps, read)
        return mean + level, variance


class GivenLine(dist.Distribution):
    """Gaussian data at all rows of a line, with the function integrated out: one event."""

    pytree_data_fields = ("data", "loc")
    support = constraints.real_vector

    def __init__(self, data: LineData, loc: Array) -> None:
        self.data, self.loc = data, loc
        super().__init__((), loc.shape[-1:])

    def given(self, value: Array) -> LineData:
        """The data where this is the value."""
        return replace(self.data, residual=value - self.loc)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Log marginal likelihood, ``O(N)``; of several sets of data on the left, one after the other."""
        if self.loc.ndim > 1:  # what `scan` stacks: one for each of its steps
            return lax.map(lambda step: step[0].log_prob(step[1]), (self, value))
        if value.ndim > 1:
            return lax.map(self.log_prob, value)
        return self.given(value).log_integral() + jnp.sum(0.5 * jnp.log(self.data.precision) - HALF_LOG_2PI)

    def left_out(self, value: Array) -> tuple[Array, Array]:
        """Mean and variance ``(N,)`` of each datum given all others."""
        mean, variance = self.given(value).without_own_datum()
        return self.loc + mean, variance + 1 / self.data.precision

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        rows, _, precision = self.data.sorted()
        white = jax.random.normal(key, (*sample_shape, *self.loc.shape), self.loc.dtype)
        each = lax.map(lambda v: linear.whitened_to_values(rows, 1 / precision, v), white.reshape(-1, white.shape[-1]))
        values = self.data.near.as_given(each.reshape(white.shape))
        return jnp.broadcast_to(self.loc, values.shape) + values

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return self.data.kernel.diagonal(self.data.near.inputs) + 1 / self.data.precision


def regression_on_line(
    name: str,
    kernel: Kernel,
    line: Line,
    noise_variance: ArrayLike,
    level: Mean,
    obs: ArrayLike | None,
    jitter: float | None,
    inducing: object,
) -> LocalProcess:
    """`gp_regression` of rows on a line."""
    if inducing is not None:
        cure = "Leave it out: the process is exact on a line."
        fail("inducing", "None where rows are on a line", f"a {type(inducing).__name__}", cure, TypeError)
    _check_kernel(name, kernel, None, line)
    size, dtype = line.size, line.gaps.dtype
    cure = "Pass all data, in the order of the times that ngp.line was given."
    noise, obs = check_gaussian_data(name, size, noise_variance, obs, "the line", cure)
    relative = 0.0 if jitter is None else check_nonnegative("jitter", jitter)
    added = noise if jitter is None else noise + relative * jnp.mean(kernel.diagonal(line.inputs))
    loc = jnp.broadcast_to(level_at(level, line.inputs), (size,)).astype(dtype)
    precision = jnp.broadcast_to(1 / added, (size,)).astype(dtype)
    fn = GivenLine(LineData(kernel, line, jnp.zeros(size, dtype), precision, level, noise), loc)
    site, plates, value = open_site(name, fn, obs=obs)
    _refuse_plates(site, plates)
    process = record(LocalProcess(site, fn.given(value), 1))
    record_call(process, line.inputs)
    return process


def _check_kernel(name: str, kernel: Kernel, outputs: int | None, line: Line) -> None:
    """Refuse, where the site is opened, kernels without states, late origins, and a first time of few digits."""
    check_one_process(name, kernel, outputs, "are on a line", "Open a line and a site for each member.")
    states, first = states_at(kernel, line.inputs.shape[1]), jnp.asarray(line.times, line.gaps.dtype)[:1]

    def check(first: np.ndarray, gaps: np.ndarray) -> None:
        if 0 < 0.1 * float(np.mean(gaps)) < (lost := float(np.spacing(np.abs(first[0])))):
            got = f"{first[0]:.9g}, which is known to {lost:.3g}"
            cure = "Subtract it, ngp.line(t - t[0]), and from new times and the origin of a walk as well."
            fail("the first time of a kernel that is not stationary", "known to a tenth of a gap", got, cure)

    if not states.is_stationary:  # others read gaps alone
        when_known(check, first, line.gaps)
    states.start(first)
    kernel.diagonal(line.inputs)  # which refuses columns that are not there, and codes of no series


def _refuse_plates(site: str, plates: Plates) -> None:
    if plates.names:
        cure = "Call it outside of plates, and observe its values in that of the rows. Of groups open a site for each."
        fail(f"the plates around site {site!r}", "none, where rows are on a line", f"{plates}", cure)


class LinePrior(RowPrior):
    """Prior of a process at all rows of a line, one event ``(N,)``.

    Its value is whitened values in the order of time, or pseudo-data, which it scores by minus their divergence.
    """

    support = constraints.real_vector
    rows: Line  # type: ignore[assignment]  # all rows, where `RowPrior` has those of a plate

    def __init__(self, name: str, kernel: Kernel, rows: Line, jitter: ArrayLike) -> None:
        self.name, self.kernel, self.rows, self.jitter, self.shared = name, kernel, rows, jitter, None
        dist.Distribution.__init__(self, (), (rows.size,))

    @property
    def near(self) -> Any:
        """All rows, which are its own."""
        return self.rows

    def parts(self) -> dict[str, Array]:
        """What tells its rows from others."""
        return {"": self.rows.inputs}

    def data(self, belief: PseudoRows, level: Mean | None = None) -> LineData:  # type: ignore[override]
        """Pseudo-data ``exp(h f - w f^2 / 2)`` as data of noise variance ``1 / w``."""
        is_seen = belief.precision > 0
        residual = jnp.where(is_seen, belief.shift / jnp.where(is_seen, belief.precision, 1), 0)
        return LineData(self.kernel, self.rows, residual, belief.precision, level)

    def log_prob(self, value: AbstractBelief | ArrayLike, intermediates: object = None) -> Array:  # noqa: ARG002
        if isinstance(value, AbstractBelief):
            belief = lax.stop_gradient(self.checked(value))
            moments, _ = self.moments(value)
            data = self.data(belief)
            evidence = data.log_integral() + 0.5 * jnp.sum(data.precision * jnp.square(data.residual))
            return evidence - jnp.sum(belief.expected_log(jnp.arange(self.size), *moments))
        return jnp.sum(-0.5 * jnp.square(jnp.asarray(value)) - HALF_LOG_2PI, axis=-1)

    def _moments(self, belief: PseudoRows) -> tuple[SiteMoments, SiteMoments]:
        others = lax.stop_gradient(self.data(lax.stop_gradient(belief)).without_own_datum())
        prior = lax.stop_gradient(self.kernel.diagonal(self.inputs))
        cavity = *others, jnp.zeros_like(others[0])
        return natural_moments(belief.shift, belief.precision, jnp.arange(self.size), cavity, (prior, 1.0)), others


kl_divergence.add((Belief, LinePrior), lambda belief, prior: -prior.log_prob(belief.value))


def gp_on_line(
    name: str, kernel: Kernel, line: Line | NewTimes, level: Mean, outputs: int | None, jitter: float | None
) -> LocalProcess:
    """Open the site of a latent process at all rows of a line."""
    if not isinstance(line, Line):
        cure = "Predict with posterior.predict_at(key, t_new, *arguments_of_the_fit), which finds them."
        fail("inducing", "the line of the fit", "new rows", cure, TypeError)
    _check_kernel(name, kernel, outputs, line)
    relative = ample_jitter(line.gaps.dtype) if jitter is None else check_nonnegative("jitter", jitter)
    prior = LinePrior(check_name("name", name), kernel, line, relative)
    site, plates, value = open_site(name, prior, infer={"numpyro_gp": "gp"})
    _refuse_plates(site, plates)
    report(site, prior.parts(), is_given=True)
    shift = level_at(level, line.inputs)
    if isinstance(value, AbstractBelief):
        data = prior.data(prior.checked(value), level)
        known = tuple(dist.Normal(shift + mean, jnp.sqrt(variance)) for mean, variance in prior.moments(value))
    else:
        white = prior.whitened(value)
        # Jitter of the mean: where a process starts at the first row, none of its own would be left.
        noise = jnp.broadcast_to(jnp.asarray(relative) * jnp.mean(kernel.diagonal(line.inputs)), (line.size,))
        data = LineData(kernel, line, jnp.zeros(line.size, prior.dtype), 1 / noise, level)
        rows, sorted_noise = data.sorted()[0], line.sorted(noise)

        def each(white: Array) -> Array:
            return line.as_given(linear.whitened_to_values(rows, sorted_noise, white))

        values = each(white) if white.ndim == 1 else lax.map(each, white.reshape(-1, line.size)).reshape(white.shape)
        data, known = replace(data, residual=values), (Certain(shift + values), None)
    process = record(LocalProcess(site, data, 1, *known))
    record_call(process, line.inputs)
    return process
