"""The fits of a guide or an engine: what each was set up with, found again by the numbers of its parameters.

Parameters are a plain dictionary of arrays, which say nothing of inducing inputs, and a guide can be fitted again, to
data of another size too. So each fit leaves here, as long as its guide lives, where it started and which arrays it
ended with.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from numpyro.infer.autoguide import AutoGuide, AutoGuideList

from numpyro_gp.arrays import is_key
from numpyro_gp.beliefs import AdditiveBasis, Basis
from numpyro_gp.checks import fail, is_known
from numpyro_gp.primitives.inducing import Inducing
from numpyro_gp.primitives.neighbours.row_sites import RowPrior
from numpyro_gp.sites import Trace, is_latent, role, unwrap

# Fits of one guide that are remembered, the last.
MOST_FITS = 64


@dataclass(eq=False)
class FitRecord:
    """One fit of a guide.

    Attributes
    ----------
    guide : callable or None
        The guide as this fit set it up, a copy; None where that is the guide itself.
    inducing : dict
        Inducing inputs at its start, by site and part, where they are known.
    given : dict or None
        The arguments that it was set up on, by their shapes (`rows.shapes`), where they are known and have words.
    arrays : frozenset
        Names and numbers of its parameters, empty while nobody knows them: a run of NumPyro's own ``SVI`` ends unseen.
    """

    guide: Any
    inducing: Inducing
    given: dict[str, object] | None = None
    arrays: frozenset[Any] = frozenset()


_fits: WeakKeyDictionary[object, list[FitRecord]] = WeakKeyDictionary()


def fits_of(owner: object) -> list[FitRecord]:
    """The fits of a guide, or of an engine whose parameters are particles, the first one first."""
    try:
        return _fits.setdefault(getattr(owner, "__self__", owner), [])  # a method is made anew whenever it is asked for
    except TypeError:  # has no hash, or cannot be referred to
        return []


def begin(owner: object, guide: object, inducing: Inducing, is_again: bool = False) -> FitRecord:
    """A new fit of a guide or engine; of a run that may start one only if its inducing inputs are not the last's."""
    fits = fits_of(owner)
    if is_again and fits and is_same(inducing, fits[-1].inducing):
        return fits[-1]
    found = FitRecord(guide, inducing)
    fits.append(found)
    del fits[:-MOST_FITS]
    return found


def arrays_of(params: object) -> frozenset[object]:
    """Names and numbers of arrays; nothing of those that are traced."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    known = [(path, np.asarray(leaf)) for path, leaf in leaves if is_known(leaf) and not is_key(leaf)]
    return frozenset((jax.tree_util.keystr(path), array.shape, hash(array.tobytes())) for path, array in known)


def is_same(one: Inducing, other: Inducing) -> bool:
    """Whether two fits stand at the same inducing inputs, as far as both are known."""
    pairs = [(one[s][part], other[s][part]) for s in set(one) & set(other) for part in set(one[s]) & set(other[s])]
    return all(np.array_equal(*pair) for pair in pairs)


def known_fit(owner: object, params: object) -> FitRecord | None:
    """The fit whose arrays are all among these parameters; None if it is not known.

    Of several it is the last. Where no run has ended unseen, some arrays do: others may have been replaced.
    """
    fits = fits_of(owner)
    own: frozenset[Any] = arrays_of(params) if fits else frozenset()
    found = max(reversed(fits), key=lambda fit: (own >= fit.arrays, len(own & fit.arrays)), default=None)
    if found is None or not own & found.arrays:
        return None
    return found if own >= found.arrays or all(fit.arrays for fit in fits) else None


def as_fitted(guide: object, params: object) -> FitRecord:
    """The guide, inducing inputs and arguments with which the fit of these parameters was set up, as far as known.

    Parameters that are not known are those of the run that nobody has asked for yet, and then become known; those that
    may be of several fits are refused.
    """
    if (record := known_fit(guide, params)) is None:
        fits = fits_of(guide)
        unseen = [fit for fit in fits if not fit.arrays] or fits
        record = unseen[-1] if unseen else FitRecord(None, {})
        if not all(is_same(fit.inducing, record.inducing) for fit in unseen):
            got = f"parameters that may be of any of its {len(unseen)} fits, at other inducing inputs each"
            cure = "Pass result.params of ngp.fit as they are, or make a guide for each fit."
            fail("params", "those of a fit of this guide that is known", got, cure)
        if unseen:
            record.arrays = record.arrays or arrays_of(params)
    own = guide if record.guide is None else record.guide
    return FitRecord(own, record.inducing or inducing_at_start(own), record.given)


def hand_on(started: object, guide: object) -> None:
    """Give a guide, or those of a list, the inducing inputs of its last fit: fits are no part of a pickle."""
    if isinstance(guide, AutoGuideList) and isinstance(started, AutoGuideList):
        for one, other in zip(started, guide, strict=True):
            hand_on(one, other)
    elif hasattr(guide, "inducing"):
        vars(guide)["inducing"] = inducing_at_start(started)


# --------------------------------------------------------------------------------- inducing inputs of a set-up


def inducing_at_start(engine: object) -> Inducing:
    """Those at which a guide of ours or particles started, or an autoguide of NumPyro's was set up; all of a list."""
    if isinstance(engine, AutoGuideList):
        found: dict[str, dict[str, np.ndarray]] = {}
        for part in engine:
            for site, own in inducing_at_start(part).items():
                found.setdefault(site, {}).update(own)
        return found
    if not hasattr(engine, "inducing") and isinstance(engine, AutoGuide):
        return inducing_of_sites({name: one for name, one in (engine.prototype_trace or {}).items() if is_latent(one)})
    return getattr(engine, "inducing", {})


def inducing_of_sites(sites: Trace) -> Inducing:
    """Those of the processes among latent sites, where they are known; of neighbours their mark.

    Parts are named as the primitives report them.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, site in sites.items():
        if role(site) != "gp":
            continue
        fn, parts = unwrap(site["fn"]), dict[str, object]()
        if isinstance(fn, RowPrior):
            parts.update(fn.parts())
        elif isinstance(basis := getattr(fn, "basis", None), Basis):
            parts[""] = basis.inducing
        elif isinstance(basis, AdditiveBasis):
            parts.update((f", component {n!r}", x) for n, x in zip(basis.names, basis.inducing, strict=True))
        found[name] = {part: np.asarray(x) for part, x in parts.items() if isinstance(x, jax.Array) and is_known(x)}
    return found
