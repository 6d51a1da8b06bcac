"""How models are compared with those of chosen interactions; fits run in ``test_examples.py``."""

import numpy as np
import pytest

from examples.studies.gam.gam_interactions import MAIN, judged
from examples.studies.gam.gam_interactions_tables import CHOSEN, compare, parse

pytestmark = pytest.mark.experiments


def test_differences_are_paired_by_split():
    """Levels of the splits differ by 3, gaps by 0.2: errors that are not paired would be 1.5."""
    values = {(CHOSEN, 1): 0.0, (CHOSEN, 2): 3.0, (MAIN, 1): -0.4, (MAIN, 2): 2.4}
    rows = [
        {"model": model, "split": split, "pairs": "a:b", "log_density": v, "rmse": 0.5, "coverage": 0.9, "seconds": 2.0}
        for (model, split), v in values.items()
    ]
    line = compare(rows).splitlines()[-1]
    assert line == f"| {MAIN} | 2 | 1.0 | 1.000 ± 1.400 | 0.500 ± 0.000 | 0.900 ± 0.000 | -0.500 ± 0.100 | 2 |"


def test_scores_are_read_from_their_column():
    assert parse("a:b 12.50; b:c -0.30") == {"a:b": 12.5, "b:c": -0.3}
    assert parse("") == {}


def test_scores_of_held_out_rows():
    y, mean = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 5.0])
    assert judged(y, mean, np.array([-1.0, -2.0, -1.0, -2.0]), mean - 1, mean + 1) == {
        "log_density": -1.5,
        "rmse": 1.0,
        "coverage": 0.75,
    }
