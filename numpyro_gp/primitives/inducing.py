"""Inducing inputs that a model takes from its arguments: those of a fit, and whether another call has the same.

Whitened values are those of a process at its inducing inputs. At others of the same number they are another function,
and nothing but a comparison shows it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import ClassVar, NamedTuple

import jax
import numpy as np

from numpyro_gp.arrays import Array, Model, set_to
from numpyro_gp.checks import fail, is_known, when_known
from numpyro_gp.programs.set_up import NEEDS_VALUES
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.look import check_rows, look
from numpyro_gp.sites import Trace

# By the name of the site, and what else there is to say: the component of an additive process.
Inducing = Mapping[str, Mapping[str, np.ndarray]]


class _Asked(NamedTuple):
    """Who asks: what is told a site, a part of it and its inputs, and whether inputs that are no arguments count."""

    tell: Callable[[str, str, np.ndarray], None]
    arguments_alone: bool


_asked: ContextVar[_Asked | None] = ContextVar("_asked", default=None)


@dataclasses.dataclass(frozen=True)
class Told:
    """A check of inducing inputs: hands them on."""

    tell: Callable[[str, str, np.ndarray], None]
    site: str
    part: str
    # Inputs that the model makes of its arguments are looked at too.
    follows: ClassVar[bool] = True

    def __call__(self, values: np.ndarray) -> None:
        self.tell(self.site, self.part, values)


def report(site: str, points: Mapping[str, Array], *, is_given: bool = False) -> None:
    """Tell those who ask at which inducing inputs a process stands.

    Those that are known while a model is looked at may be parameters, and other ones than at the start. ``is_given``:
    they are none, but held by what the model was given, as layers are.
    """
    if (asked := _asked.get()) is None:
        return
    for part, own in points.items():
        if is_given or isinstance(own, jax.core.Tracer) or not asked.arguments_alone:
            when_known(Told(asked.tell, site, part), own)


@contextmanager
def noted_inducing() -> Iterator[dict[str, dict[str, np.ndarray]]]:
    """Collect the inducing inputs of the processes that a model opens in this block, where they are known."""
    found: dict[str, dict[str, np.ndarray]] = {}
    note = lambda site, part, values: found.setdefault(site, {}).update({part: values})  # noqa: E731
    with set_to(_asked, _Asked(note, False)):
        yield found


def sites_at_start(
    model: Model, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Trace | None, Inducing | None]:
    """Sites of a model that is about to run on these arguments, whose rows are checked, and its inducing inputs.

    None for both if the model needs values; no inducing inputs where arguments are traced.
    """
    with jax.ensure_compile_time_eval():  # NumPy's arrays stay known, also where a start is traced
        call = call_of(model, args, kwargs)
    try:
        with noted_inducing() as found:
            seen = look(model, call)
    except NEEDS_VALUES:
        return None, None
    check_rows(seen, call)
    if not all(map(is_known, call.arrays)):
        return seen.sites, None
    for own in seen.checks:
        if isinstance(own.check, Told):
            own.run(call.arrays)
    return seen.sites, found


def compared_with(fitted: Inducing) -> AbstractContextManager[_Asked]:
    """In a look at a model: its checks refuse arguments that are other inducing inputs than those of the fit."""

    def compare(site: str, part: str, values: np.ndarray) -> None:
        own = fitted.get(site, {}).get(part)
        if own is None or own.shape != values.shape:  # of another shape: the values of the site do not fit either
            return
        if not np.allclose(values, own, rtol=1e-4, atol=1e-6 * np.abs(own).max(initial=0.0)):
            away = np.abs(values - own).max()
            cure = "Pass the Z, or the layers, of the fit; to a process with inducing inputs at all data its X. "
            cure += "A guide keeps those of its first run by SVI.run: make one for each fit."
            fail(f"inducing inputs of {site!r}{part}", "those of the fit", f"others, up to {away:.3g} away", cure)

    return set_to(_asked, _Asked(compare, True))
