"""What a model and a guide must be for samples that are weighted: refusals of importance-weighted bounds."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpyro.distributions as dist
from numpyro import handlers

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.programs.trace import sources, traced
from numpyro_gp.sites import Site, Trace, in_plate, local_sites, role, unwrap


def check_local(name: str, site: Site, density: Array) -> Array:
    """The log density of a local site, refused if it is not one number for each datum of one plate."""
    frames = site["cond_indep_stack"]
    if len(frames) != 1 or frames[0].dim != -1 or density.ndim > 2 or density.shape[-1:] != (frames[0].size,):
        cure = "Make further axes part of the event with .to_event, and let K samples be the only batch axis."
        required = "inside the data plate alone, the plate on the last axis, with one term for each datum"
        got = f"plates {[frame.name for frame in frames]} and terms of shape {density.shape}"
        fail(f"site {name!r}", required, got, cure)
    return density


def check_model(trace: Trace, proposal: Trace, plate: str) -> None:
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


def joint_noise(trace: Trace) -> str | None:
    """A noise site of a layer above the latent inputs, which takes all samples of a datum together."""
    noise = (name for name, site in sampled_sites(trace).items() if role(site) == "noise")
    return next((name for name in noise if len(trace[name]["fn"].batch_shape) > 1), None)


def refuse_joint_noise(trace: Trace, argument: str, value: str, given: str, cure: str) -> None:
    """Refuse an argument that noise of a layer above the latent inputs does not allow."""
    if (name := joint_noise(trace)) is not None:
        required = f"{value} for a model that samples a layer above its latent inputs"
        fail(argument, required, f"{given} with the noise site {name!r} drawn jointly over the samples", cure)


def not_reparametrised(proposal: Trace, plate: str) -> str | None:
    """A local site of a guide without a path from its parameters to its value."""
    for name, site in local_sites(proposal, plate).items():
        if isinstance(unwrap(site["fn"]), dist.Delta) or not site["fn"].has_rsample:
            return name
    return None


def dependent_site(propose: Callable[[Mapping[str, object]], Trace], proposal: Trace, plate: str) -> str | None:
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


def refuse_points(proposal: Trace, plate: str, num_samples: int) -> None:
    """Refuse several samples of a point: all weights would be equal, and the bound that of one sample for every K."""
    for name, site in local_sites(proposal, plate).items() if num_samples > 1 else ():
        # A point that was computed from samples has their axis.
        if isinstance(unwrap(site["fn"]), dist.Delta) and len(site["fn"].batch_shape) == 1:
            cure = f"Give it a width: ngp.AutoGP(model, {{{name!r}: ngp.guides.free_latent()}}), or rest=AutoNormal."
            required = f"a distribution with a width, as the {num_samples} samples of its weights need"
            fail(f"the guide at the local site {name!r}", required, "a point (Delta)", cure)


def check_separable(trace: Trace, proposal: Trace, plate: str, depends: str | None) -> None:
    """The squared-weights gradient needs ``log r_k`` to depend on sample k alone (mathematics.md section 10.3)."""
    if depends is not None:
        cure = "Pass doubly_reparametrised=None: the gradient is the ordinary one there, and not biased."
        required = "None or False for a guide in which a local site depends on another"
        fail("doubly_reparametrised", required, f"True with such a site {depends!r}", cure)
    cure = "Pass doubly_reparametrised=None: the other gradient would be biased."
    refuse_joint_noise(trace, "doubly_reparametrised", "None or False", "True", cure)
    if (name := not_reparametrised(proposal, plate)) is not None:
        cure = "Use ngp.guides.free_latent or amortised, or the ordinary gradient."
        required = "None or False unless the guide samples each local site by reparametrisation"
        got = f"True with {type(unwrap(proposal[name]['fn'])).__name__} at site {name!r}"
        fail("doubly_reparametrised", required, got, cure)


def sampled_sites(trace: Trace) -> dict[str, Site]:
    """The sites of a trace that have a distribution."""
    return {name: site for name, site in trace.items() if site["type"] == "sample"}
