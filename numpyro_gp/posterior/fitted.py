"""What a posterior is before it answers: a model, and draws of its global sites."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpyro import handlers

from numpyro_gp.arrays import Array, ArrayLike, Model
from numpyro_gp.checks import check_count
from numpyro_gp.posterior.sources import GuideDraws, Source, StoredDraws
from numpyro_gp.primitives.inducing import Inducing
from numpyro_gp.rows.call import Arguments, call_of

DEFAULT_DRAWS = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """The fields of `Posterior`, and what follows from them alone: the type of all functions of a posterior."""

    model: Model
    kind: str
    source: Source
    num_chains: int = 1
    extra_fields: Mapping[str, ArrayLike] = dataclasses.field(default_factory=dict)
    inducing: Inducing = dataclasses.field(default_factory=dict)
    given: Mapping[str, object] | None = None

    @property
    def samples(self) -> Mapping[str, Array] | None:
        """Stored draws by site, on the first axis; None where a guide makes them."""
        return self.source.samples if isinstance(self.source, StoredDraws) else None

    @property
    def guide(self) -> Callable[..., object] | None:
        """Guide of a variational fit."""
        return self.source.guide if isinstance(self.source, GuideDraws) else None

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the guide and of the model itself."""
        return self.source.params

    @property
    def num_draws(self) -> int | None:
        """Number of stored draws; None where draws can be made at will."""
        return self.source.num_draws

    @property
    def fitted_model(self) -> Model:
        """The model with its own ``numpyro.param`` values (learnt inducing inputs, networks) as they were fitted."""
        return handlers.substitute(self.model, data=dict(self.params)) if self.params else self.model

    def at(self, source: Source) -> Self:
        """Return this posterior over other arrays, those of a compiled function's arguments."""
        return dataclasses.replace(self, source=source)

    def values(self, key: Array, index: Array, *args: object, **kwargs: object) -> dict[str, Any]:
        """Values of the global sites for one draw; hand-written guides need the arguments of the model."""
        call = call_of(self.guide or self.model, args, kwargs) if args or kwargs else None
        return self.source.values(key, index, Arguments((), {}) if call is None else call.at(call.arrays))

    def spread(self, num_samples: int | None, is_random: bool) -> np.ndarray:
        """Indices of the draws of a prediction, spread evenly over those stored."""
        if num_samples is None:
            count = self.num_draws or (DEFAULT_DRAWS if is_random else 1)
        else:
            count = min(check_count("num_samples", num_samples), self.num_draws or num_samples)
        return _evenly(self.num_draws or count, count)


@functools.lru_cache(maxsize=64)
def _evenly(stored: int, count: int) -> np.ndarray:
    """Numbers of ``count`` of the stored draws: an array that calls share, and none may write to."""
    found: np.ndarray = np.round(np.linspace(0, stored - 1, count)).astype(np.int32)
    found.setflags(write=False)
    return found
