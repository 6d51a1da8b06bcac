"""``conditioned``: a model in coordinates that a fit has made independent of its hyper-parameters, for samplers.

Let a fit say ``N(m, C C^T)`` of the whitened values ``v`` of a process at the hyper-parameters of the moment
(`ngp.beliefs.Conditional`). Sampling ``e`` with ``v = m + C e`` in place of ``v`` changes no posterior:
``log p(e) = log N(v; 0, I) + sum_i log C_ii``, whatever the fit was (mathematics.md section 14.5).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.infer import init_to_value
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, Model, Shape
from numpyro_gp.beliefs.conditional import Conditional
from numpyro_gp.checks import check_finite, fail
from numpyro_gp.guides import AutoGP
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.linalg import einsum, half_log_det, solve_lower
from numpyro_gp.posterior.fitted_pseudo_data import PseudoData, pseudo_data
from numpyro_gp.primitives.neighbours.local_process import LocalProcess, SeenProcesses
from numpyro_gp.primitives.observe import shifted
from numpyro_gp.primitives.opening import Plates, basis_under
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.programs.set_up import in_one_program
from numpyro_gp.sites import Observation, unwrap


class Conditioned(Messenger):
    """A model whose processes are sampled in the coordinates of pseudo-data: made by `conditioned`.

    Attributes
    ----------
    fn : callable
        The model itself.
    past : dict of PseudoData
        By the names of its sites.
    init_strategy : callable
        Starts a chain where the fit is; `ngp.NUTS` and `ngp.HMC` take it by themselves.
    """

    def __init__(self, fn: Model, past: Mapping[str, PseudoData], start: Mapping[str, object] | None = None) -> None:
        super().__init__(fn)
        self.past = dict(past)
        self.init_strategy = init_to_value(values=dict(start or {}))

    @property
    def arrays(self) -> dict[str, dict[str, object]]:
        """What the coordinates are made of, by site and name: draws in them mean nothing without."""
        columns = {site: {} if own.columns is None else {"columns": own.columns} for site, own in self.past.items()}
        return {site: own.arrays | columns[site] for site, own in self.past.items()}

    @classmethod
    def of_arrays(cls, fn: Model, arrays: Mapping[str, Mapping[str, object]]) -> "Conditioned":
        """The model in the coordinates of `arrays`; refuse one that has others already."""
        if isinstance(fn, Conditioned):
            own, theirs = fn.arrays, dict(arrays)
            is_like = jax.tree.structure(own) == jax.tree.structure(theirs)
            if not is_like or not jax.tree.all(jax.tree.map(np.array_equal, own, theirs)):
                cure = "Pass the model as it was written, without ngp.conditioned: the file has its coordinates."
                fail("model", "in the coordinates of the file", "one in those of another fit", cure)
            return fn
        return cls(fn, {site: PseudoData.of_arrays(own, own.get("columns")) for site, own in arrays.items()})

    def process_message(self, msg: dict[str, object]) -> None:
        if msg["type"] != "sample" or msg["infer"].get("numpyro_gp") != "gp" or msg["is_observed"]:
            return
        name, prior = msg["name"], unwrap(msg["fn"])
        if name not in self.past:
            cure = "Fit this model with AutoGP, and pass that guide and its parameters."
            fail("the guide", f"one with a belief at every process, {name!r} too", f"{sorted(self.past)}", cure)
        # Those of every member, at the hyper-parameters of the moment.
        past = self.past[name]
        plates = Plates.of(msg["cond_indep_stack"])
        shape = plates.batch + prior.event_shape
        if past.shift.shape != shape:
            cure = "Fit the model as it is now: its inducing inputs, outputs or plates were others."
            fail(f"the fit at site {name!r}", f"of values of shape {shape}", f"shape {past.shift.shape}", cure)
        belief = Conditional(past.shift.astype(prior.dtype), past.precision.astype(prior.dtype))
        found = belief.at(basis_under(belief, prior, plates))
        own = _Coordinates(found.mean, found.scale_tril, prior.event_dim)
        # By the name that the model gives: a scope around it is met once more.
        noise = numpyro.sample(f"{prior.name}_conditioned", own, infer={"numpyro_gp": "coordinates"})
        value = own.values_at(noise)
        for field in set(msg) - {"name", "cond_indep_stack"}:
            del msg[field]
        msg.update(type="deterministic", value=value)


class _Coordinates(dist.Distribution):
    """The prior of ``e`` where ``mean + root e`` is standard normal."""

    pytree_data_fields = ("mean_of_values", "root")
    pytree_aux_fields = ("own_dim",)

    def __init__(self, mean: Array, root: Array, event_dim: int) -> None:
        self.mean_of_values, self.root, self.own_dim = mean, root, event_dim
        at = mean.ndim - event_dim
        super().__init__(mean.shape[:at], mean.shape[at:], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, self.event_dim)

    def values_at(self, noise: Array) -> Array:
        """Whitened values ``m + C e``."""
        moved = einsum("...ij,...j->...i", self.root, noise)
        return moved + jnp.broadcast_to(self.mean_of_values, moved.shape)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        values = jax.random.normal(key, sample_shape + self.shape(), self.mean_of_values.dtype)
        away = values - jnp.broadcast_to(self.mean_of_values, values.shape)
        root = jnp.broadcast_to(self.root, (*away.shape, away.shape[-1]))
        solved: Array = jax.vmap(solve_lower)(root.reshape(-1, *root.shape[-2:]), away.reshape(-1, away.shape[-1]))
        return solved.reshape(away.shape)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        terms = jnp.sum(-0.5 * (self.values_at(value) ** 2 + np.log(2 * np.pi)), axis=-1)
        terms = terms + jnp.broadcast_to(half_log_det(self.root), terms.shape)
        return jnp.sum(terms, axis=tuple(range(terms.ndim - self.event_dim + 1, terms.ndim)))


def conditioned(
    model: Model, guide: AutoGP, params: Mapping[str, object], *args: object, **kwargs: object
) -> Conditioned:
    """The same model, for samplers, in the coordinates of a fit.

    A process is sampled as ``NAME_conditioned``, ``e``, and its whitened values are recorded as deterministic ``NAME``:
    ``v = m + C e``, with the mean and the root of the covariance that the fit's pseudo-data give at the
    hyper-parameters of the moment. An exact change of variables: a bad fit costs time, and no answer depends on it.
    What ties a process to its hyper-parameters is gone, which is what makes chains of latent processes slow.

    It is a handler and no ``Reparam`` of NumPyro's: ``handlers.reparam`` hands over a distribution without its plates,
    and a mean function may have a level for each of their members. The two compose, one around the other.

    It pays where data say much of the function. Where they say little, as with few rows and inducing inputs at each
    of them, a chain takes half the steps and each costs more: sample the model itself.

    Parameters
    ----------
    model : callable
    guide : AutoGP
        Of any fit of it; beliefs of every kind. `guides.conditional` holds these coordinates as they are.
    params : dict
        ``result.params`` of the fit.
    *args, **kwargs
        Arguments of the model, as in the fit. They may be left out for `guides.conditional` at fixed inducing inputs;
        chains then start where NumPyro's do.

    Returns
    -------
    Conditioned
        A model with the same arguments, for `ngp.NUTS`, NumPyro's ``NUTS`` and ``HMC``, `ngp.stein.SVGD`, ``AutoDelta``
        and NumPyro's other guides, and for `Posterior` after these.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X)
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> guide = ngp.AutoGP(model, {"f": ngp.guides.conditional()})
    >>> svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    >>> fit = ngp.fit(jax.random.key(0), svi, 1, X, X[:, 0], progress=False)
    >>> easy = ngp.conditioned(model, guide, fit.params, X, X[:, 0])
    >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(easy, 0)).get_trace(X, X[:, 0])
    >>> [(name, site["type"]) for name, site in trace.items() if name.startswith("f")]
    [('f_conditioned', 'sample'), ('f', 'deterministic')]
    """
    for name, value in params.items():
        check_finite(f"params[{name!r}]", value)

    def past_and_start() -> tuple[dict[str, PseudoData], dict[str, object]]:
        past = pseudo_data(guide, params, *args, **kwargs)
        if not (args or kwargs):
            return past, {}
        start = {name: value for name, value in guide.median(params, *args, **kwargs).items() if name not in past}
        return past, start | {f"{name}_conditioned": jnp.zeros_like(one.shift) for name, one in past.items()}

    return Conditioned(model, *in_one_program(past_and_start))


# --------------------------------------------------------------------------------------
# Models that hold their data inside, as those of `gp_regression`: what new data are.


def conditioned_observation(
    process: GaussianProcess | LocalProcess | SeenProcesses, X: Any, noise_variance: Array | None, offset: Array | None
) -> Observation:
    """New data of a process that has its data, with its noise variance or the one given, and their offset."""
    if isinstance(process, SeenProcesses):
        if noise_variance is not None:
            cure = "Leave it out: the noise is that of the likelihood."
            fail("noise_variance", "None of data that ngp.observe sees", "a variance", cure, TypeError)
        if (offset is None) != (process.offset is None):
            got, cure = "None", "Pass that of the new data, offset=, one number for each row."
            got, cure = (got, cure) if offset is None else ("numbers", "Leave it out.")
            fail("offset", f"given where the data {process.name!r} have one, and only there", got, cure)
        f = process.at(X)
        f = f if offset is None else shifted("predict_at", f, offset, process.likelihood)
        return Observation(f, process.likelihood)
    if offset is not None:
        cure = "Leave it out: data of gp_regression have none."
        fail("offset", "None of a gp_regression", "numbers", cure, TypeError)
    if process.noise is None:
        got = f"the gp site {process.name!r}"
        fail("gp", "the data site of a gp_regression", got, "Call predict, with new inputs and no data.", TypeError)
    variance = process.noise if noise_variance is None else noise_variance
    if noise_variance is None and jnp.ndim(variance) and (not process.plates.names or variance.shape[-1] != 1):
        got = f"a variance for each of {variance.shape[-1]} training data"
        cure = "Pass predict_at noise_variance=0.1, or one variance for each row."
        fail("noise_variance", "given for the new data", got, cure)
    return Observation(process(X), Gaussian(jnp.sqrt(variance)))
