"""Whether parameters are those of a guide: all of them, finite, of its shapes and its precision."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax.typing import DTypeLike
from numpyro.infer.autoguide import AutoGuide, AutoGuideList, AutoSemiDAIS

from numpyro_gp.arrays import is_key
from numpyro_gp.checks import fail
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.posterior.storage import refuse_narrowed
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.rows.call import Arguments
from numpyro_gp.sites import Trace, role


def check_params(guide: Callable[..., object], params: Mapping[str, object], call: Arguments | None) -> None:
    """Refuse parameters that are not those of the guide: it would stand where it started, at the prior.

    The parameters of an autoguide are known from the run that set it up; those of a hand-written guide need
    the arguments of a call, and have the shapes that these give them.
    """
    # This one autoguide needs the arguments of the model at every call.
    knows_itself = isinstance(guide, AutoGuide) and not isinstance(guide, AutoSemiDAIS)
    if knows_itself:
        wanted = shapes_of_params(guide)
    elif call is None:
        return
    else:
        sites = abstract_trace(lambda: guide(*call.args, **call.kwargs), (), {})
        check_state(sites, params)
        wanted = dict.fromkeys(name for name, site in sites.items() if site["type"] == "param")
    missing = [name for name in wanted if name not in params]
    shapes = {name: jax.tree.map(jnp.shape, params[name]) for name in wanted if name in params}
    wrong = [f"{name!r} of shape {shapes[name]}, not {wanted[name]}" for name in shapes if shapes[name] != wanted[name]]
    wrong = wrong if knows_itself else []
    others = sorted(set(params) - set(wanted))
    if missing or wrong:
        got = f"none named {missing}" if missing else ", ".join(wrong)
        required = f"the parameters of the guide: {sorted(wanted)}"
        cure = "Pass svi.get_params(state), or result.params, of the fit of this model and this guide."
        cure += "" if missing else " A guide keeps the shapes of its first run by SVI.run: make one for each fit."
        fail("params", required, f"{got}; others are {others}" if others else got, cure)
    if strange := [name for name in others if isinstance(guide, AutoGP) and _is_of_a_belief(name, guide)]:
        cure = "Build the guide with the recipes of the fit: they are those of another belief."
        fail("params", f"the parameters of the guide: {sorted(wanted)}", f"others as well: {strange}", cure)


def check_state(sites: Trace, params: Mapping[str, object]) -> None:
    """Refuse parameters without the mutable state of a model or guide, which would stand where it starts."""
    if missing := [name for name, site in sites.items() if site["type"] == "mutable" and name not in params]:
        cure = "Pass result.params of ngp.fit; after svi.run, {**result.params, **result.state.mutable_state}."
        fail("params", f"with the mutable state {missing}", f"{sorted(params)}", cure)


def check_precision(source: object) -> None:
    """Refuse arrays of a fit in float64 while JAX computes in float32."""
    arrays = [leaf for leaf in jax.tree.leaves(source) if isinstance(leaf, jax.Array) and not is_key(leaf)]
    if wide := sorted({str(leaf.dtype) for leaf in arrays if jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype}):
        refuse_narrowed("the posterior", "", f"one of {', '.join(wide)}")


def check_whitened_precision(value: object, name: str, dtype: DTypeLike) -> None:
    """Refuse whitened values of single precision where the model is of double precision now.

    They are of a factor with another jitter, and with it say other things of the function.
    """
    now = jnp.dtype(dtype)
    kinds = {jnp.dtype(leaf.dtype) for leaf in jax.tree.leaves(value) if hasattr(leaf, "dtype") and not is_key(leaf)}
    if narrow := [str(kind) for kind in kinds if jnp.issubdtype(kind, jnp.floating) and kind.itemsize < now.itemsize]:
        required = f"in the precision of the fit, {narrow[0]}"
        cure = 'Predict as it was fitted: jax.config.update("jax_enable_x64", False), or fit again.'
        fail(f"the model's site {name!r}", required, f"{now}", cure, TypeError)


def _is_of_a_belief(name: str, guide: AutoGP) -> bool:
    """Whether a parameter has a name that only beliefs have: of a factor, of points of a mean, or a moment's."""
    site, _, own = name.rpartition("/")
    known = guide.prototype_trace or {}
    is_process = site in known and role(known[site]) == "gp"
    return is_process and ("tril" in own or own.startswith("Z_") or name.startswith(f"{site}{NATURAL_MARK}"))


@alone
def shapes_of_params(guide: AutoGuide) -> dict[str, Any]:
    """Shapes of the parameters of an autoguide about global sites, by name."""
    # NumPyro checks the parameters of distributions that start a guide: a program for each operation, and for no shape.
    with numpyro.validation_enabled(False):
        sites = abstract_trace(lambda: _run_autoguide(guide), (), {})
    return {n: jax.tree.map(jnp.shape, s["value"]) for n, s in sites.items() if s["type"] == "param"}


def _run_autoguide(guide: AutoGuide) -> None:
    """The statements of an autoguide about global sites; the guide itself is left as it is."""
    if isinstance(guide, AutoGuideList):
        for part in guide:
            _run_autoguide(part)
        return
    if isinstance(guide, AutoGP):
        guide.declare_global()
        guide = guide.rest
    if isinstance(guide, AutoGuide):
        own = copy.copy(guide)
        own.create_plates = None  # those of the run that set it up
        own()
