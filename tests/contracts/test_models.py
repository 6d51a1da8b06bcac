"""A net over models: they are drawn, and every relation that must hold on one is checked on some of them.

Twenty-eight models at a fixed seed, each with the relations that were checked least so far. ``NUMPYRO_GP_NET=10000``
draws as many, with other relations for each, and ``NUMPYRO_GP_NET_SEED=1`` others.
"""

import functools
import os
from collections import Counter

import pytest

from tests.contracts.answers import RELATIONS
from tests.contracts.descriptions import BELIEFS, CHOICES, INDUCING, LIKELIHOODS, Description, drawn, spread
from tests.contracts.models import build

COUNT = int(os.environ.get("NUMPYRO_GP_NET", "28"))
SEED = int(os.environ.get("NUMPYRO_GP_NET_SEED", "0"))
IN_CI = "NUMPYRO_GP_NET" not in os.environ
# How many relations are checked on each model, and on how many models each relation is at least.
EACH, LEAST = 3, 3
# Out of how many models those of CI are chosen: of these it has the first, with the same relations, however many it takes.
POOL = 500

Plan = list[tuple[Description, list[str]]]


@functools.cache
def plan() -> Plan:
    """Models with the relations to check on them."""
    models = spread(drawn(POOL, SEED), COUNT) if IN_CI else drawn(COUNT, SEED)
    counts = Counter[str]()
    found = []
    for description in models:
        able = [name for name, relation in RELATIONS.items() if relation.applies(description)]
        chosen = sorted(able, key=lambda name: counts[name])[:EACH]
        counts.update(chosen)
        found.append((description, chosen))
    return found


@pytest.mark.long
@pytest.mark.parametrize("number", range(COUNT))
def test_models_keep_the_relations(number):
    """Fails with the relation that is broken and the description of the model that breaks it."""
    description, relations = plan()[number]
    for name in relations:
        try:
            RELATIONS[name].check(build(description))
        except Exception as error:
            error.add_note(f"{name} of the model {description}")
            raise


def test_draws_depend_on_the_seed_alone():
    """Workers of a run must agree on which model a number is; 844421851525 / 10**12 is Python's Mersenne twister at 0."""
    assert drawn(1, 0)[0].process == tuple(LIKELIHOODS)[int(0.844421851525 * len(LIKELIHOODS))]
    assert drawn(3, 0) == drawn(4, 0)[:3] != drawn(3, 1)


@pytest.mark.long
@pytest.mark.skipif(not IN_CI, reason="models at random")
def test_every_relation_is_checked_and_every_feature_occurs():
    counts = Counter(name for _, relations in plan() for name in relations)
    assert set(counts) == set(RELATIONS)
    assert min(counts.values()) >= LEAST
    met = {feature for description, _ in plan() for feature in description.features}
    possible = {"process": LIKELIHOODS, "inducing": INDUCING, **CHOICES}
    possible |= {"likelihood": {kind for own in LIKELIHOODS.values() for kind in own}}
    possible |= {"belief": {kind for own in BELIEFS.values() for kind in own}}
    assert {(name, value) for name, values in possible.items() for value in values} <= met
