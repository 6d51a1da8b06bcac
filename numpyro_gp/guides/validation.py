"""NumPyro's own checks of a model's distributions, for a model that is run once in one program.

NumPyro makes them where values are known, and says nothing where they are traced.
"""

import functools
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from numpyro_gp.checks import when_known
from numpyro_gp.guides.internals import is_validated
from numpyro_gp.sites import Observation


class Validated(Messenger):
    """Checks parameters of distributions, and data against their support, at the end of the program."""

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample":
            return
        fn = part = msg["fn"]
        while part is not None:
            self._check_parameters(part)
            part = getattr(part, "base_dist", None)
        is_data = msg["is_observed"] and msg["value"] is not None
        if is_data and is_validated(fn) and fn.support is not None and not isinstance(fn, Observation):
            when_known(_warn_outside, jnp.all(fn.support(msg["value"])))

    def _check_parameters(self, fn: Any) -> None:
        for name, value in fn.get_args().items() if is_validated(fn) else ():
            constraint = fn.arg_constraints[name]
            if not constraints.is_dependent(constraint):
                when_known(functools.partial(_check_parameter, type(fn).__name__, name), jnp.all(constraint(value)))


def _check_parameter(distribution: str, name: str, is_valid: np.ndarray) -> None:
    if not is_valid:
        raise ValueError(f"{distribution} distribution got invalid {name} parameter.")


def _warn_outside(is_inside: np.ndarray) -> None:
    if not is_inside:
        message = "Out-of-support values provided to log prob method. The value argument should be within the support."
        warnings.warn(message, stacklevel=2)
