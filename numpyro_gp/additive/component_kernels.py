"""Kernels of the components of an additive model: of each column one that averages to zero; those alike as one batch.

Designs of `ngp.anova` (mathematics.md section 2.4) and formulas of `ngp.gam` (mathematics.md section 6.5) are made of
them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.members import alike, picked
from numpyro_gp.kernels import Kernel, Periodic, ZeroMean, ZeroMeanCategory
from numpyro_gp.kernels.batches import Batch, batch_of, stacked
from numpyro_gp.kernels.measures import Measure


class Component(NamedTuple):
    """What the kernel of a component is made of.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Those of the inputs that it reads.
    given : sequence
        Of each column its measure, its measure and period, or the frequencies ``(C,)`` of its levels.
    lengthscales : int
        How many it has.
    kind : hashable
        Equal for components whose kernels are one batch.
    make : callable
        ``(variance, lengthscales, given) -> Kernel`` on columns 0, 1, ....
    """

    name: str
    columns: tuple[int, ...]
    given: Sequence[object]
    lengthscales: int
    kind: Hashable
    make: Callable[..., Kernel]


def batches_of(components: Sequence[Component], variances: Array, lengthscales: Array) -> list[Batch]:
    """Kernels of components by their variances ``(C,)`` and lengthscales ``(L,)``, which stand one after the other."""
    dtype, ends = jnp.result_type(variances), np.cumsum([0, *(one.lengthscales for one in components)])
    batches = []
    for own in alike(one.kind for one in components):
        some, size = [components[at] for at in own], components[own[0]].lengthscales
        lengths = jnp.zeros((len(own), 0), dtype)
        if size:
            lengths = picked(lengthscales, ends[list(own), None] + np.arange(size))
        names, columns, given = zip(*(one[:3] for one in some), strict=True)
        variance = picked(variances, np.asarray(own))
        batches.append(batch_of(names, columns, some[0].make, variance, lengths, stacked(given, dtype)))
    return batches


def column_kernel(
    unit: Array, given: Any, family: Callable[..., Any] | None = None, lengthscale: Array | None = None
) -> Kernel:
    """The kernel of variance ``unit`` of one column: a curve, one that repeats, or levels; see `Component.given`."""
    if isinstance(given, tuple):
        measure, period = given
        assert lengthscale is not None
        return ZeroMean(Periodic(unit, lengthscale, period), measure)
    if isinstance(given, Measure):
        assert family is not None
        return ZeroMean(family(unit, lengthscale), given)
    return ZeroMeanCategory(unit, given)
