"""Rows that a plate is given: their scale and mask by hand, in every place where a plate may stand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

from numpyro_gp.rows.held import GivenRows, given_rows_again, refuse_own_parameters

Y = jnp.asarray([0.3, -1.0, 2.0, 2.0])  # three rows of ten, and a copy of the last
TERMS = -0.5 * np.asarray(Y) ** 2 - 0.5 * np.log(2 * np.pi)


def density(model, **options):
    given = {"plate": "data", "num_data": 10, "rows": 4, "count": jnp.asarray(3), **options}
    with GivenRows(**given), handlers.seed(rng_seed=0):
        return log_density(model, (), {}, {})[0]


def observed(axis=-1, **plate):
    plate = {"size": 4, **plate}
    with numpyro.plate("other", 2, dim=-3 - axis), numpyro.plate("data", dim=axis, **plate) as rows:
        shape = (2, 1) if axis == -1 else (1, 2)
        y = Y[rows] if axis == -1 else Y[rows][:, None]
        numpyro.sample("y", dist.Normal(jnp.zeros(shape), 1.0), obs=y)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("plate", [{}, {"size": 10, "subsample_size": 4}], ids=["rows", "all"])
def test_terms_of_data_count_for_all_and_those_of_copies_not(axis, plate):
    # An unmasked copy moves it by 12, a scale of 10 / 4 by 1.4; the other plate holds every term twice.
    np.testing.assert_allclose(density(lambda: observed(axis, **plate)), 2 * 10 / 3 * TERMS[:3].sum(), rtol=1e-12)


def test_sites_outside_of_the_plate_count_once():
    def model():
        numpyro.sample("once", dist.Normal(0.0, 1.0), obs=Y[0])
        observed()

    np.testing.assert_allclose(density(model), TERMS[0] + 2 * 10 / 3 * TERMS[:3].sum(), rtol=1e-12)


@pytest.mark.long
def test_a_minibatch_of_the_given_rows_is_right_on_average():
    """Over the four rows that one draw may pick, of which a quarter falls on the copy."""
    one = lambda: observed(subsample_size=1)  # noqa: E731

    def draw(key):
        with GivenRows("data", 10, 4, jnp.asarray(3)), handlers.seed(rng_seed=key):
            trace = handlers.trace(one).get_trace()
        site = trace["y"]
        return trace["data"]["value"][0], jnp.sum(site["scale"] * site["fn"].log_prob(site["value"]))

    rows, values = jax.vmap(draw)(jax.random.split(jax.random.key(0), 40))
    mean = np.mean([np.asarray(values)[np.asarray(rows) == row][0] for row in range(4)])
    np.testing.assert_allclose(mean, 2 * 10 / 3 * TERMS[:3].sum(), rtol=1e-12)


def test_scales_of_the_users_own_stay():
    scaled = lambda: handlers.scale(observed, scale=0.5)()  # noqa: E731
    np.testing.assert_allclose(density(scaled), 10 / 3 * TERMS[:3].sum(), rtol=1e-12)


def test_float32_stays_float32():
    def model():
        with numpyro.plate("data", 4):
            mean = jnp.zeros(4, jnp.float32)
            numpyro.sample("y", dist.Normal(mean, jnp.ones((), jnp.float32)), obs=Y.astype(jnp.float32))

    assert density(model).dtype == jnp.float32


def test_behind_a_block_they_are_put_up_again_and_count_once():
    def hidden():
        with handlers.block(), given_rows_again():
            trace = handlers.trace(lambda: observed(size=10, subsample_size=4)).get_trace()
        found.append((trace["y"]["scale"], trace["data"]["value"]))

    found = []
    with GivenRows("data", 10, 4, jnp.asarray(3)), handlers.seed(rng_seed=0):
        hidden()
        with given_rows_again():
            trace = handlers.trace(observed).get_trace()
    np.testing.assert_allclose([found[0][0], trace["y"]["scale"]], 10 / 3)
    np.testing.assert_array_equal(found[0][1], jnp.arange(4))


def test_other_plates_and_parameters_of_single_rows_are_refused():
    match = r"the plate 'data' must be of the 4 rows of a batch, or of all 10 .* but got size 7, subsample_size 4"
    with pytest.raises(ValueError, match=match):
        density(lambda: observed(size=7, subsample_size=4))

    def own(shape, event_dim):
        with numpyro.plate("data", 4):
            numpyro.param("w", jnp.zeros(shape), event_dim=event_dim)

    for shape, event_dim in (((4,), 0), ((4, 3), 1)):
        with pytest.raises(ValueError, match=r"the parameter 'w' must be without an entry for each row .*amortised"):
            density(lambda shape=shape, event_dim=event_dim: own(shape, event_dim))
    density(lambda: own((4,), None))  # a network's, say
    density(lambda: own((1, 4), 1))
    with pytest.raises(ValueError, match="the guide must be without an entry"):
        refuse_own_parameters("the guide", "one", "data")
