"""The settings and the fixtures of the package's own tests."""

from tests.conftest import rng

__all__ = ["rng"]
