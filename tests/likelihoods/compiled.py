"""A likelihood whose quantities are one program each: operation by operation they are a hundred."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from numpyro_gp.likelihoods import Likelihood


@functools.partial(jax.jit, static_argnames="quantity")
def _asked(likelihood: Likelihood, quantity: str, arguments: Any, keywords: Any) -> Any:
    return getattr(likelihood, quantity)(*arguments, **keywords)


class Compiled(NamedTuple):
    """``Compiled(likelihood).predictive_mean(mean, variance)``, for instance."""

    likelihood: Likelihood

    def __getattr__(self, quantity: str) -> Callable[..., Any]:
        return lambda *arguments, **keywords: _asked(self.likelihood, quantity, arguments, keywords)
