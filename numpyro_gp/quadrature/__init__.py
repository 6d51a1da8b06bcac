"""Expectations under normal distributions, their derivatives, and the nodes they are taken with."""

from numpyro_gp.quadrature.expectations import composite_cuts, expect, floored_sqrt, log_expect

__all__ = ["composite_cuts", "expect", "floored_sqrt", "log_expect"]
