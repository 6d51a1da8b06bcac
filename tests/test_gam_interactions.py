"""Which interactions are kept, and how models are compared; fits run in ``test_examples.py``."""

import numpy as np

from examples.gam_interactions import choose, scores
from examples.gam_interactions_tables import ALL, CHOSEN, compare, parse


def test_the_fewest_pairs_are_kept_that_leave_out_less_than_a_hundredth():
    """Without a:c the others would carry 0.011; main effects are not counted."""
    indices = {"a": 0.6, "a:b": 0.3, "b": 0.089, "a:c": 0.006, "b:c": 0.005}
    assert choose(indices) == ["a:b", "a:c"]
    assert choose({**indices, "b:c": 0.0039}) == ["a:b"]
    assert choose({"a": 1.0, "a:b": 0.0099}) == []
    assert parse("a 0.6000; a:b 0.3000") == {"a": 0.6, "a:b": 0.3}


def test_differences_are_paired_by_split():
    """Levels of the splits differ by 3, gaps by 0.2: errors that are not paired would be 1.5."""
    values = {(CHOSEN, 1): 0.0, (CHOSEN, 2): 3.0, (ALL, 1): -0.4, (ALL, 2): 2.4}
    rows = [
        {"model": model, "split": split, "pairs": "a:b", "log_density": v, "rmse": 0.5, "coverage": 0.9, "seconds": 2.0}
        for (model, split), v in values.items()
    ]
    line = compare(rows).splitlines()[-1]
    assert line == f"| {ALL} | 2 | 1.0 | 1.000 ± 1.400 | 0.500 ± 0.000 | 0.900 ± 0.000 | -0.500 ± 0.100 | 2 |"


def test_scores_of_held_out_rows():
    y, mean = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 5.0])
    assert scores(y, mean, np.array([-1.0, -2.0, -1.0, -2.0]), mean - 1, mean + 1) == {
        "log_density": -1.5,
        "rmse": 1.0,
        "coverage": 0.75,
    }
