"""Inducing inputs that a model takes from its arguments: those of a fit, and whether another call has the same.

Whitened values are those of a process at its inducing inputs. At others of the same number they are another function,
and nothing but a comparison shows it. So are those of rows by other neighbours, which have a mark to be compared by.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import ClassVar, NamedTuple

import jax
import numpy as np

from numpyro_gp.arrays import Array, Model, set_to
from numpyro_gp.checks import fail, is_known, when_known
from numpyro_gp.neighbours.value import Neighbours
from numpyro_gp.programs.set_up import NEEDS_VALUES
from numpyro_gp.rows.call import Call, call_of
from numpyro_gp.rows.model_trace import Look, check_row_counts, look
from numpyro_gp.sites import Trace

# By the name of the site, and what else there is to say: the component of an additive process.
Inducing = Mapping[str, Mapping[str, np.ndarray]]
# Of a process by neighbours, in the place of inducing inputs: the two parts of a mark.
ROWS, INDEX = ", its rows", ", its neighbours"
OF_THE_FIT = "Pass the near with which it was fitted, which near.save(path) keeps."
Wanted = Callable[[str, str], bool]  # whether a part of a site is asked for


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
    for part, values in points.items():
        if is_given or isinstance(values, jax.core.Tracer) or not asked.arguments_alone:
            when_known(Told(asked.tell, site, part), values)


def parts_of_neighbours(near: Neighbours, is_point: bool = True) -> dict[str, Array]:
    """What rows with neighbours are compared by: of pseudo-data, which belong to rows, these alone."""
    if near.mark is None:
        return {}
    return {ROWS: near.mark.rows} | ({INDEX: near.mark.checksum} if is_point else {})


@contextmanager
def noted_inducing(wanted: Wanted = lambda site, part: True) -> Iterator[dict[str, dict[str, np.ndarray]]]:  # noqa: ARG005
    """Collect the inducing inputs of the processes that a model opens in this block, those known and wanted."""
    points: dict[str, dict[str, np.ndarray]] = {}

    def note(site: str, part: str, values: np.ndarray) -> None:
        if wanted(site, part):
            points.setdefault(site, {})[part] = values

    with set_to(_asked, _Asked(note, False)):
        yield points


def sites_at_start(
    model: Model, args: tuple[object, ...], kwargs: Mapping[str, object], *wanted: Wanted
) -> tuple[Trace | None, Inducing | None]:
    """Sites of a model that is about to run on these arguments, whose rows are checked, and its inducing inputs.

    None for both if the model needs values; no inducing inputs where arguments are traced.
    """
    with jax.ensure_compile_time_eval():  # NumPy's arrays stay known, also where a start is traced
        call = call_of(model, args, kwargs)
    try:
        with noted_inducing(*wanted) as points:
            seen = look(model, call)
    except NEEDS_VALUES:
        return None, None
    check_row_counts(seen, call)
    if not all(map(is_known, call.arrays)):
        return seen.sites, None
    _tell(seen, call)
    return seen.sites, points


def _tell(seen: Look, call: Call) -> None:
    """Hand on the inducing inputs that a look at a model has found, those of this call."""
    for waiting in seen.checks:
        if isinstance(waiting.check, Told):
            waiting.run(call.arrays)


def check_near(model: Model, call: Call, fitted: Inducing) -> None:
    """Refuse rows with other neighbours than those of a fit, unless the model needs values."""
    marks = {site: {part: parts[part] for part in (ROWS, INDEX) if part in parts} for site, parts in fitted.items()}
    if any(marks.values()):
        with suppress(*NEEDS_VALUES), compared_with(marks):
            _tell(look(model, call), call)


def compared_with(fitted: Inducing) -> AbstractContextManager[_Asked]:
    """In a look at a model: its checks refuse arguments that are other inducing inputs than those of the fit."""

    def compare(site: str, part: str, values: np.ndarray) -> None:
        wanted = fitted.get(site, {}).get(part)
        if wanted is None or wanted.shape != values.shape:  # the values of the site do not fit either
            return
        if part == INDEX:  # the checksum of all neighbours, and their number
            if not np.array_equal(values, wanted):
                count, number = int(values[1]), int(wanted[1])
                got = f"{count} of each row" if count != number else f"others, {count} of each row as there,"
                cure = f"Whitened values of {number} neighbours are another function by others. {OF_THE_FIT}"
                fail("near", "the neighbours of the fit", f"{got} at site {site!r}", cure)
        elif not np.allclose(values, wanted, rtol=1e-4, atol=1e-6 * np.abs(wanted).max(initial=0.0)):
            away = np.abs(values - wanted).max()
            if part == ROWS:
                got = f"those of other rows, or in another order, up to {away:.3g} away, at site {site!r}"
                fail("near", "the neighbours of the fit", got, OF_THE_FIT)
            cure = "Pass the Z, or the layers, of the fit; to a process with inducing inputs at all data its X. "
            cure += "A guide keeps those of its first run by SVI.run: make one for each fit."
            fail(f"inducing inputs of {site!r}{part}", "those of the fit", f"others, up to {away:.3g} away", cure)

    return set_to(_asked, _Asked(compare, True))
