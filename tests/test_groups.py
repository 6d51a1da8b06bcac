"""Order of chains, names of statistics and of dimensions."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.draws import TrainingDraws
from numpyro_gp.groups import arviz_container, sample_stats, spread_draws


@pytest.mark.parametrize(
    ("count", "available", "chains", "expected"),
    [
        (6, 6, 1, [0, 1, 2, 3, 4, 5]),
        (6, 6, 2, [0, 1, 2, 3, 4, 5]),
        (4, 6, 2, [0, 2, 3, 5]),
        (1, 6, 2, [0, 3]),
        (3, 100, 1, [0, 50, 99]),
    ],
)
def test_draws_are_spread_within_each_chain(count, available, chains, expected):
    np.testing.assert_allclose(spread_draws(count, available, chains), expected, atol=0.5)


def test_statistics_take_the_names_of_arviz():
    extra = {"potential_energy": np.arange(6.0), "num_steps": np.array([1, 3, 7, 7, 1, 3]), "adapt_state": object()}
    found = sample_stats(extra, np.array([0, 2, 3, 5]), 2)
    assert set(found) == {"lp", "n_steps", "tree_depth"}
    np.testing.assert_array_equal(found["lp"], [[0, -2], [-3, -5]])
    np.testing.assert_array_equal(found["tree_depth"], [[1, 3], [3, 2]])


def test_container_names_rows_of_arguments_after_the_plate():
    draws = TrainingDraws(
        latent={"a": jnp.zeros((4, 3))},
        log_likelihood={"y": jnp.zeros((4, 5))},
        replicated={"y": jnp.zeros((4, 5))},
        observed={"y": jnp.zeros(5)},
        dims={"a": ["a_dim_0"], "y": ["data"]},
    )
    constant = {"X": np.zeros((5, 2)), "Z": np.zeros((3, 2)), "scalar": np.zeros(())}
    data = arviz_container("svi", draws, constant, {}, 1, coords={"data": list("abcde")})
    assert data["constant_data"]["X"].dims == ("data", "X_dim_1")
    assert data["constant_data"]["Z"].dims == ("Z_dim_0", "Z_dim_1")
    assert data["observed_data"]["y"].coords["data"].values.tolist() == list("abcde")
    assert data["posterior"]["a"].shape == (1, 4, 3)
