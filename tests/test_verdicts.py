"""What the experiments behind the verdicts compute: ratios of times, gaps paired by split, and draws that bound nothing."""

import jax.numpy as jnp
import numpy as np
import numpyro

import numpyro_gp as ngp
from examples import additive_coverage, decoupled_map, equal_seconds, importance_weighting


def test_a_ratio_is_of_the_least_times_and_its_error_of_neighbouring_steps():
    row = {"coupled_ms": "10 20 40", "decoupled_ms": "5 20 60"}
    assert decoupled_map.ratio(row) == 0.5
    assert decoupled_map.ratio_and_error(row) == "0.50 ± 0.29"  # of 0.5, 1.0, 1.5


def test_gaps_in_equal_seconds_are_paired_by_split_at_the_last_mark():
    rows = []
    for mark in (1, equal_seconds.MARKS):
        for split, (first, second) in enumerate(((1.0, 0.5), (2.0, 2.5))):
            for method, value in ((equal_seconds.FIRST, first), (equal_seconds.SECOND, second)):
                row = {"set": "a", "split": split, "method": method, "mark": str(mark), "seconds": "4", "steps": "8"}
                rows.append(row | {"log_density": str(value * mark), "rmse": "1"})
    found = equal_seconds.at_the_end(rows)
    assert equal_seconds.ahead(found, "a", equal_seconds.SECOND) == [2.5, -2.5]
    assert equal_seconds.table(rows).splitlines()[-1] == "| a | coupled | 4 | 8 | 7.500 ± 5.000 | 0.000 ± 2.500 |"


def test_bounds_stand_below_the_full_covariance_of_the_same_data():
    rows = [
        {"simulation": str(number), "belief": belief, "bound": bound, "coverage": "0.5", "width": "1", "error": "2"}
        for number, own in enumerate((("-1", "-3"), ("-2", "-8")))
        for belief, bound in zip(("full", "mean field"), own, strict=True)
    ]
    assert additive_coverage.table(rows).splitlines()[-1].endswith("| 4.000 ± 2.000 |")


def test_independent_draws_agree_with_a_function_at_the_first_sample_alone(rng):
    """Two samples of a datum see one function when it is drawn jointly; with noise of their own they do not."""
    Z, inputs = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(2, 4, 2)))

    def values(draw):
        def model():
            f = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), Z, outputs=2)
            with numpyro.plate("data", 4):
                return draw(f, "noise", inputs)

        return numpyro.handlers.seed(model, 0)()

    independent, joint = (np.asarray(values(draw)) for draw in (importance_weighting.independently, jointly))
    np.testing.assert_allclose(independent[0], joint[0], atol=1e-5)  # the first row of a triangular root
    assert np.abs(independent[1] - joint[1]).max() > 1e-3


def jointly(f, site, inputs):
    return f.draw(site, inputs)
