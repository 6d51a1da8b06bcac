"""Expectations under normal distributions, their derivatives, and the nodes they are taken with."""

from numpyro_gp.quadrature.expectations import composite_cuts, expect, floored_sqrt, log_expect
from numpyro_gp.quadrature.rules import composite_rule, gauss_hermite, quasi_normal, spread_points, tensor_hermite

__all__ = [
    "composite_cuts",
    "composite_rule",
    "expect",
    "floored_sqrt",
    "gauss_hermite",
    "log_expect",
    "quasi_normal",
    "spread_points",
    "tensor_hermite",
]
