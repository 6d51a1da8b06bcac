"""A net over models: hypothesis draws one, and every relation that must hold is checked on it.

``NUMPYRO_GP_NET=10000`` draws as many models, at random; otherwise ten at a fixed seed, which is shared out: a relation
that needs several predictions or a program of its own sees one model in ``SHARE``.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.contracts.models import build, descriptions
from tests.contracts.relations import RELATIONS

COUNT = int(os.environ.get("NUMPYRO_GP_NET", "10"))
IN_CI = "NUMPYRO_GP_NET" not in os.environ
SHARE = 5
CHEAP = ("numpyro_objectives_agree", "saved_and_pickled_is_itself", "a_batch_of_all_rows_is_the_data")


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_model_keeps_the_relation(relation):
    """Fails with the description of the smallest model that breaks it."""

    @settings(
        max_examples=COUNT // SHARE if IN_CI and relation not in CHEAP else COUNT,
        deadline=None,
        database=None,
        derandomize=IN_CI,
        suppress_health_check=list(HealthCheck),
    )
    @given(description=descriptions())
    def check(description):
        RELATIONS[relation](build(description))

    check()
