"""A posterior that is kept: in files, in pickles, in copies."""

import copy
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Self

import jax
import numpy as np

from numpyro_gp.arrays import Model
from numpyro_gp.checks import fail
from numpyro_gp.posterior.conditioned import Conditioned
from numpyro_gp.posterior.fitted import Fitted
from numpyro_gp.posterior.sources import GuideDraws, of_guide, set_up_by_shapes, stored
from numpyro_gp.posterior.storage import read_arrays, refuse_narrowed, to_pickle, write_arrays
from numpyro_gp.rows.argument_shapes import arguments_of
from numpyro_gp.rows.call import is_data

KINDS = ("svi", "mcmc", "stein")
# Of a posterior: its engine, arrays by group, and numbers.
Parts = tuple[str, Mapping[str, Mapping[str, object]], Mapping[str, object]]


@dataclasses.dataclass(frozen=True, eq=False)
class Kept(Fitted):
    """What writes a posterior and reads it again."""

    def __reduce__(self) -> tuple[object, ...]:
        model, source = to_pickle("model", self.model), self.source
        if isinstance(source, GuideDraws):
            source = dataclasses.replace(source, guide=to_pickle("guide", source.guide))
        fields = self.num_chains, dict(self.extra_fields), self.inducing, self.given
        leaves = jax.tree.leaves((self.samples or {}, dict(self.params)))
        is_double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in leaves)
        return _unpickled, (is_double, type(self), (model, self.kind, source, *fields))

    def __copy__(self) -> Self:
        return dataclasses.replace(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return dataclasses.replace(self, source=copy.deepcopy(self.source, memo))

    def save(self, path: str | os.PathLike) -> None:
        """Write everything but the model and the guide to one file (NumPy's format, no pickle).

        So it writes what ``pickle`` refuses: fits of models that are a ``lambda``, stand inside a function, or hold a
        kernel or a likelihood that does. `load` gets the model and the guide from the program that defines them.
        """
        kind, groups, notes = self.parts()
        write_arrays(path, kind, groups, notes)

    def parts(self) -> Parts:
        """Everything but the model and the guide: the engine, arrays by group, and numbers."""
        groups: dict[str, Mapping[str, object]] = {"samples": self.samples or {}, "params": self.params}
        groups["inducing"] = self.inducing
        groups["extra_fields"] = {name: x for name, x in self.extra_fields.items() if is_data(x)}
        if isinstance(self.model, Conditioned):
            groups["past"] = self.model.arrays
        return self.kind, groups, {"num_chains": self.num_chains, "given": self.given}

    @classmethod
    def load(cls, path: str | os.PathLike, model: Model, guide: object = None, *args: object, **kwargs: object) -> Self:
        """Read what `save` wrote, for the same model and, after a variational fit, the same guide.

        A guide that was not run yet in this process is set up on the shapes of the arguments of the fit, which the file
        has after `ngp.fit`. Pass the arguments themselves, ``args`` and ``kwargs``, where it has none or they do not
        do: where one of them is no array, number, string or `ngp.neighbours`, where the fit was NumPyro's own run of
        its own guide, and where a support or a Python branch of the model reads their values.
        """
        parts = read_arrays(path)
        if parts[0] not in KINDS:
            cure = "Read pseudo-data with ngp.PseudoData.load."
            fail("path", "a file that Posterior.save wrote", f"{str(path)!r}, of kind {parts[0]!r}", cure)
        return cls.of_parts(parts, model, guide, *args, **kwargs)

    @classmethod
    def of_parts(cls, parts: Parts, model: Model, guide: object = None, *args: object, **kwargs: object) -> Self:
        """A posterior of `parts`, with its model and guide; see `load`."""
        kind, groups, notes = parts
        if "past" in groups:
            model = Conditioned.of_arrays(model, groups["past"])
        if kind == "svi":
            if guide is None:
                fail("guide", "the guide of the fit", "None", "Pass it: Posterior.load(path, model, guide).")
            given = notes.get("given")  # files of older releases have none
            if given is not None and not (args or kwargs):
                guide = set_up_by_shapes(guide, arguments_of(given))
            fitted = of_guide(guide, groups["params"], *args, **kwargs)
            return cls(model, kind, fitted, inducing=groups.get("inducing", {}), given=given)
        source = stored(groups["samples"], groups.get("params", {}))
        return cls(model, kind, source, notes["num_chains"], groups.get("extra_fields", {}), groups.get("inducing", {}))


def _unpickled(is_double: bool, kind: type[Kept], fields: tuple[Any, ...]) -> Kept:
    """A posterior of a pickle, whose arrays JAX has rounded where it computes in single precision."""
    if is_double and not jax.config.jax_enable_x64:
        refuse_narrowed("the pickle", "a posterior ", "one, of float64")
    return kind(*fields)
