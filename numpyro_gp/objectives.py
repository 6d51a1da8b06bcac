"""The importance-weighted bound for models with latent inputs (mathematics.md section 10).

Everything local to one datum except the noise of function draws is sampled K times; the noise is
sampled once, by the model itself, in the shape that it has there: ``(N,)`` below a layer of latent
inputs, ``(K, N)`` jointly over K above it. That is what makes the result a bound.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import logsumexp
from jax.sharding import NamedSharding, PartitionSpec
from numpyro import handlers
from numpyro.infer import ELBO
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, set_to
from numpyro_gp.checks import check_count, check_shared, fail
from numpyro_gp.primitives.function_draw import NOISE_IS_FREE
from numpyro_gp.programs.private import Message, mask_of
from numpyro_gp.programs.trace import sources, traced
from numpyro_gp.sites import Observation, Site, Trace, in_plate, is_latent, local_sites, role, unwrap


def importance_weighted_bound(log_weights_kn: Array) -> Array:
    """``log (1/K) sum_k r_nk`` of each datum, shape ``(N,)``, from ``log r`` ``(K, N)`` (equation 11 of the paper)."""
    return logsumexp(log_weights_kn, axis=0) - math.log(log_weights_kn.shape[0])


class WeightedSamples(NamedTuple):
    """K samples of the local sites with their weights, from one draw of everything else.

    Attributes
    ----------
    log_weights : Array (K, N_b), or (N_b,) where nothing in the model has K samples
        ``log r_nk = l_n(w_k, F) + log p(w_k) - log q(w_k)``.
    values : dict
        Values ``(K, N_b, ...)`` of the local latent sites.
    remainder : Array ()
        Minus the KL divergences of beliefs, plus ``log p - log q`` of the other global sites.
    scale : float
        ``N / N_b``.
    """

    log_weights: Array
    values: dict[str, Array]
    remainder: Array
    scale: Any


class ImportanceWeightedELBO(ELBO):
    """The importance-weighted bound, for models with latent inputs: ``sum_n E log (1/K) sum_k r_nk - KL``.

    ``r_nk = exp(E_q(f) log p(y_n | f)) p(w_nk) / q(w_nk)`` (mathematics.md section 10.1), with the last layer
    analytic and one draw of every inner function shared by the K samples of a datum (mathematics.md section 10.2).
    K = 1 is the usual bound (then `numpyro.infer.TraceMeanField_ELBO` has the lower variance); it does not
    decrease with K. A model without latent inputs has the usual bound for every K.

    Noise sites of function draws come from their prior; what a guide says about them is ignored.

    Parameters
    ----------
    num_samples : int
        Number K of samples of the local sites.
    plate : str
        Name of the data plate. It must be the rightmost, and hold every observed and local site.
    num_particles : int
        Independent estimates that are averaged.
    doubly_reparametrised : bool, optional
        Estimate the gradient of the guide's local parameters by the squared weights (Tucker et al. 2019;
        mathematics.md section 10.3). Only the gradient changes, not its mean: it has less noise, the more so the larger
        K, and a step takes 45 to 50 % more operations. By default wherever it is unbiased and K is larger than 1: not
        with a sampled layer above the latent inputs, and not with a guide in which the distribution of one local site
        depends on the value of another. True is refused there.
    vectorize_particles
        As in NumPyro's ``ELBO``.
    sharding : NamedSharding of the first axis, optional
        Devices to share the K samples among, ``NamedSharding(mesh, PartitionSpec("samples"))``: each computes the
        weights of its own, and sends sums of them over its samples and sums of gradients. Rows may lie in pieces over
        another axis of the same mesh. Refused for a model with a sampled layer above the latent inputs, which needs
        the samples of a datum together.

    Examples
    --------
    >>> import jax, numpyro, numpyro_gp as ngp
    >>> from numpyro.infer import SVI
    >>> def model(X, Z, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z)
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> X, Z = jax.numpy.zeros((4, 1)), jax.numpy.eye(2)
    >>> svi = SVI(model, ngp.AutoGP(model), numpyro.optim.Adam(0.01), ngp.ImportanceWeightedELBO(5))
    >>> state = svi.init(jax.random.key(0), X, Z, y=X[:, 0])
    >>> bool(svi.evaluate(state, X, Z, y=X[:, 0]) > 0)
    True
    """

    def __init__(
        self,
        num_samples: int,
        plate: str = "data",
        num_particles: int = 1,
        *,
        doubly_reparametrised: bool | None = None,
        vectorize_particles: object = True,
        sharding: NamedSharding | None = None,
    ) -> None:
        self.num_samples, self.sharding = check_shared("num_samples", num_samples, sharding), sharding
        self.plate, self.doubly_reparametrised = plate, doubly_reparametrised
        super().__init__(check_count("num_particles", num_particles), vectorize_particles)

    def loss_with_mutable_state(
        self,
        rng_key: Array,
        param_map: Mapping[str, object],
        model: Callable[..., object],
        guide: Callable[..., object],
        *args: object,
        **kwargs: object,
    ) -> dict[str, Any]:
        """Minus the bound, estimated with one draw for each particle."""
        options = {"plate": self.plate, "doubly_reparametrised": self.doubly_reparametrised, "sharding": self.sharding}

        def bound(key: Array) -> Array:
            parts = key, param_map, model, guide, args, kwargs
            drawn = weighted_samples(*parts, num_samples=self.num_samples, **options)
            terms = drawn.log_weights
            terms = importance_weighted_bound(terms) if terms.ndim == 2 else terms
            return drawn.scale * jnp.sum(terms) + drawn.remainder

        if self.num_particles == 1:
            return {"loss": -bound(rng_key), "mutable_state": None}
        keys = jax.random.split(rng_key, self.num_particles)
        return {"loss": -jnp.mean(self.vectorize_particles_fn(bound, keys)), "mutable_state": None}


def weighted_samples(
    key: Array,
    params: Mapping[str, object],
    model: Callable[..., object],
    guide: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    num_samples: int,
    plate: str = "data",
    doubly_reparametrised: bool | None = False,
    sharding: NamedSharding | None = None,
) -> WeightedSamples:
    """Run guide and model once, with K samples of the local sites, and weigh them."""
    key_model, key_guide = jax.random.split(key)

    def propose(values: Mapping[str, object]) -> Trace:
        given = handlers.substitute(handlers.seed(guide, key_guide), data=dict(values))
        sampler = handlers.substitute(_Samples(given, plate, num_samples, sharding), data=dict(params))
        return handlers.trace(sampler).get_trace(*args, **kwargs)

    proposal = propose({})
    local = local_sites(proposal, plate)
    for name, site in local.items() if num_samples > 1 else ():
        # Of a point all weights would be equal. One that was computed from samples has their axis.
        if isinstance(unwrap(site["fn"]), dist.Delta) and len(site["fn"].batch_shape) == 1:
            cure = f"Give it a width: ngp.AutoGP(model, {{{name!r}: ngp.guides.free_latent()}}), or rest=AutoNormal."
            required = f"a distribution with a width, as the {num_samples} samples of its weights need"
            fail(f"the guide at the local site {name!r}", required, "a point (Delta)", cure)
    is_asked = doubly_reparametrised is not False and (bool(doubly_reparametrised) or num_samples > 1)
    depends = _dependent_site(propose, proposal, plate) if is_asked else None
    fixed = [n for n, s in local.items() if isinstance(unwrap(s["fn"]), dist.Delta) or not s["fn"].has_rsample]

    def run(proposal: Trace) -> tuple[WeightedSamples, str | None]:
        def from_guide(site: Site) -> Any:  # not noise sites, which the model samples in their own shape
            is_open = is_latent(site) and role(site) != "noise" and site["value"] is None
            is_held = site["name"] in proposal and (site["type"] == "plate" or is_open)
            return proposal[site["name"]]["value"] if is_held else None

        held = handlers.substitute(handlers.seed(model, key_model), substitute_fn=from_guide)
        with set_to(NOISE_IS_FREE, True):
            trace = handlers.trace(handlers.substitute(held, data=dict(params))).get_trace(*args, **kwargs)
        _check_model(trace, proposal, plate)
        # A noise site of a layer above the latent inputs takes all samples of a datum together.
        noise = [name for name, site in sampled_sites(trace).items() if role(site) == "noise"]
        joint = next((name for name in noise if len(trace[name]["fn"].batch_shape) > 1), None)
        if joint is not None and sharding is not None:
            cure = "Share the rows among the devices: ngp.fit(..., sharding=...)."
            _refuse_joint("sharding", "None", "one", joint, cure)
        if doubly_reparametrised:
            _check_separable(proposal, depends, joint, fixed)
        return _weigh(_observed_at_samples(trace, proposal, plate, num_samples), proposal, plate), joint

    drawn, joint = run(proposal)
    if is_asked and depends is None and joint is None and not fixed and drawn.log_weights.ndim == 2:
        # The second run repeats the first one's arithmetic, so that the compiler merges the two.
        weights = lax.stop_gradient(jax.nn.softmax(drawn.log_weights, axis=0))
        return run(_scale_paths(proposal, plate, weights))[0]
    return drawn


# ------------------------------------------------------------------------------ handlers


class _Samples(Messenger):
    """Gives every sample site of a guide inside the data plate K values instead of one."""

    def __init__(self, fn: Callable[..., object], plate: str, num_samples: int, sharding: NamedSharding | None) -> None:
        self.plate, self.num_samples, self.sharding = plate, num_samples, sharding
        super().__init__(fn)

    def process_message(self, message: Message) -> None:
        if not is_latent(message) or not in_plate(message, self.plate):
            return
        batch = tuple(message["fn"].batch_shape)
        # A site computed from other local sites (a Delta of a transformed sample) has its K values already.
        if role(message) == "noise" or len(batch) != 1:
            return
        if message["value"] is None:
            keys = jax.random.split(message["kwargs"]["rng_key"], self.num_samples)
            message["value"] = jax.vmap(message["fn"].sample)(keys)
        else:
            shape = (self.num_samples, *message["fn"].shape())
            message["value"] = jnp.broadcast_to(message["value"], shape)
        if self.sharding is not None:  # samples where their devices are; other axes lie as the compiler finds them
            others = [PartitionSpec.UNCONSTRAINED] * (message["value"].ndim - 1)
            where = NamedSharding(self.sharding.mesh, PartitionSpec(self.sharding.spec[0], *others))
            # Outside of a program too.
            message["value"] = jax.jit(lambda x: lax.with_sharding_constraint(x, where))(message["value"])


# ------------------------------------------------------------------------------- weights


def _weigh(trace: Trace, proposal: Trace, plate: str) -> WeightedSamples:
    """Collect ``log r`` of each datum and the terms that belong to no datum."""
    terms, scales, values = [], {}, {}
    remainder: object = 0.0
    ignored = {name for name, site in sampled_sites(trace).items() if role(site) == "noise"}
    for sign, sites in ((1, sampled_sites(trace)), (-1, sampled_sites(proposal))):
        for name, site in sites.items():
            if name in ignored or (sign < 0 and site["is_observed"]):
                continue
            fn, value, scale = site["fn"], site["value"], 1.0 if site["scale"] is None else site["scale"]
            # Either the value or the distribution has the axis of K samples.
            more = value.ndim - len(fn.shape()) if isinstance(value, jax.Array) else 0
            value = jnp.broadcast_to(value, fn.shape()) if more < 0 else value
            density = jax.vmap(fn.log_prob)(value) if more == 1 else fn.log_prob(value)
            if not in_plate(site, plate):
                remainder = remainder + sign * jnp.sum(scale * density)
                continue
            frames = site["cond_indep_stack"]
            if len(frames) != 1 or frames[0].dim != -1 or density.ndim > 2 or density.shape[-1:] != (frames[0].size,):
                cure = "Make further axes part of the event with .to_event, and let K samples be the only batch axis."
                required = "inside the data plate alone, the plate on the last axis, with one term for each datum"
                got = f"plates {[frame.name for frame in frames]} and terms of shape {density.shape}"
                fail(f"site {name!r}", required, got, cure)
            terms.append(sign * density)
            scales[name] = scale
            if sign > 0 and not site["is_observed"]:
                values[name] = site["value"]
    total = jnp.broadcast_shapes(*[term.shape for term in terms])
    log_weights = sum(jnp.broadcast_to(term, total) for term in terms)
    # ``N / N_b``, which all local sites share: it multiplies the logarithm and not the weights inside it.
    scale, *others = scales.values()
    if not all(other is scale for other in others):
        unknown = [name for name, other in scales.items() if isinstance(other, jax.core.Tracer)]
        if unknown or any(float(other) != float(scale) for other in others):
            got = f"{dict.fromkeys(unknown, 'a traced value') or scales}"
            cure = "Take handlers.scale off single sites (it tempers the weights), subsample guide and model alike."
            fail("the scales of sites in the data plate", "one number that they share, N / N_b", got, cure)
        scale = float(scale)
    return WeightedSamples(log_weights, values, remainder, scale)


def _observed_at_samples(trace: Trace, proposal: Trace, plate: str, count: int) -> dict[str, Any]:
    """The trace with data at all K samples, for likelihoods that depend on a local site where ``f`` does not."""
    local = local_sites(proposal, plate).values()
    changed = dict(trace)
    if not any(jnp.ndim(site["value"]) > len(site["fn"].shape()) for site in local):
        return changed
    for name, site in sampled_sites(trace).items():
        inner, batch = unwrap(site["fn"]), site["fn"].batch_shape
        if isinstance(inner, Observation) and in_plate(site, plate) and len(batch) == 1 and inner.batch_shape == batch:
            mask, wide = mask_of(site["fn"]), inner.repeated(count)
            wide = wide if mask is True else wide.mask(jnp.broadcast_to(mask, wide.batch_shape))
            changed[name] = {**site, "fn": wide}
    return changed


def _scale_paths(proposal: Trace, plate: str, weights: Array) -> dict[str, Any]:
    """Multiply the gradient of each local value by its weight, and hold the parameters inside ``log q`` fixed."""
    changed = dict(proposal)
    for name, site in sampled_sites(proposal).items():
        if in_plate(site, plate) and not site["is_observed"] and role(site) != "noise":
            value, event = site["value"], site["fn"].event_dim
            fixed = lax.stop_gradient(value)
            value = fixed + weights.reshape(weights.shape + (1,) * event) * (value - fixed)
            changed[name] = {**site, "value": value, "fn": jax.tree.map(lax.stop_gradient, site["fn"])}
    return changed


# -------------------------------------------------------------------------------- checks


def _check_model(trace: Trace, proposal: Trace, plate: str) -> None:
    """Refuse models whose bound would not be the one that is documented."""
    plates = [name for name, site in trace.items() if site["type"] == "plate"]
    if plate not in plates:
        fail("plate", f"a plate of the model: {plates}", repr(plate), 'Pass plate="name" of the data plate.')
    for name, site in [*sampled_sites(trace).items(), *sampled_sites(proposal).items()]:
        kind = role(site) or ("observed" if site["is_observed"] else None)
        local, others = in_plate(site, plate), [f.name for f in site["cond_indep_stack"] if f.name != plate]
        if kind in ("observed", "latent") and not local and name in trace:
            required = f"inside the data plate {plate!r}"
            cure = "The bound is a sum over one plate: put it there, or use Trace_ELBO."
            fail(f"the {kind} site {name!r}", required, f"inside {others or 'no plate'}", cure)
        if kind == "noise" and others:
            fail(f"the noise site {name!r}", f"in no plate but {plate!r}", f"inside {others}", "Use one data plate.")
        if local and not site["is_observed"] and site["fn"].is_discrete:
            fail(f"the local site {name!r}", "continuous", "a discrete one", "Sum it out in the likelihood.")
        if name not in proposal and kind not in ("observed", "noise"):
            fail("the guide", "one for every latent site of the model", f"none for {name!r}", "Use ngp.AutoGP(model).")
    if not any(site["is_observed"] for site in sampled_sites(trace).values()):
        fail("the model", "called with data", "no observed site", "Pass the observations: svi.update(state, X, y).")
    if mutable := [name for name, site in {**trace, **proposal}.items() if site["type"] == "mutable"]:
        fail("the model and guide", "without mutable state", f"{mutable}", "Use networks without running averages.")


def _check_separable(proposal: Trace, depends: str | None, joint: str | None, fixed: list[str]) -> None:
    """The squared-weights gradient needs ``log r_k`` to depend on sample k alone (mathematics.md section 10.3)."""
    if depends is not None:
        cure = "Pass doubly_reparametrised=None: the gradient is the ordinary one there, and not biased."
        required = "None or False for a guide in which a local site depends on another"
        fail("doubly_reparametrised", required, f"True with such a site {depends!r}", cure)
    if joint is not None:
        cure = "Pass doubly_reparametrised=None: the other gradient would be biased."
        _refuse_joint("doubly_reparametrised", "None or False", "True", joint, cure)
    if fixed:
        cure = "Use ngp.guides.free_latent or amortised, or the ordinary gradient."
        required = "None or False unless the guide samples each local site by reparametrisation"
        got = f"True with {type(unwrap(proposal[fixed[0]]['fn'])).__name__} at site {fixed[0]!r}"
        fail("doubly_reparametrised", required, got, cure)


def _refuse_joint(argument: str, value: str, got: str, noise: str, cure: str) -> None:
    required = f"{value} for a model that samples a layer above its latent inputs"
    fail(argument, required, f"{got} with the noise site {noise!r} drawn jointly over the samples", cure)


def _dependent_site(propose: Callable[[Mapping[str, object]], Trace], proposal: Trace, plate: str) -> str | None:
    """A local site of a guide whose distribution depends on the value of another local site."""
    local = local_sites(proposal, plate)
    if len(local) < 2:
        return None

    def distributions(values: Mapping[str, object]) -> list[list[Any]]:
        with handlers.block():
            found = local_sites(propose(values), plate)
        return [jax.tree.leaves(found[name]["fn"]) for name in values]

    program, constants, structure = traced(distributions, {name: local[name]["value"] for name in sorted(local)})
    each = jax.tree.unflatten(structure, sources(program))
    is_value = range(len(constants), len(program.invars)).__contains__
    named = zip(sorted(local), each, strict=True)
    return next((name for name, leaves in named if any(map(is_value, frozenset().union(*leaves)))), None)


def sampled_sites(trace: Trace) -> dict[str, Site]:
    """The sites of a trace that have a distribution."""
    return {name: site for name, site in trace.items() if site["type"] == "sample"}
