"""Rows that a plate is given: their scale and mask by hand, in every place where a plate may stand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from numpyro_gp.guides import keyed_rows, permuted_rows
from numpyro_gp.rows.batch_plates import ROUNDS, BatchPlate, _network, inside_blocks, refuse_own_parameters

Y = jnp.asarray([0.3, -1.0, 2.0, 2.0])  # three rows of ten, and a copy of the last
TERMS = -0.5 * np.asarray(Y) ** 2 - 0.5 * np.log(2 * np.pi)


def density(model, **options):
    given = {"plate": "data", "num_data": 10, "rows": 4, "counts": jnp.asarray([3, 1, 3]), **options}
    with BatchPlate(**given), handlers.seed(rng_seed=0):
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


def test_sites_outside_and_scales_of_the_users_own_stay_and_float32_does():
    def model():
        numpyro.sample("once", dist.Normal(0.0, 1.0), obs=Y[0])
        observed()

    def single():
        with numpyro.plate("data", 4):
            mean = jnp.zeros(4, jnp.float32)
            numpyro.sample("y", dist.Normal(mean, jnp.ones((), jnp.float32)), obs=Y.astype(jnp.float32))

    each = 10 / 3 * TERMS[:3].sum()
    np.testing.assert_allclose(density(model), TERMS[0] + 2 * each, rtol=1e-12)
    np.testing.assert_allclose(density(handlers.scale(observed, scale=0.5)), each, rtol=1e-12)
    assert density(single).dtype == jnp.float32


def test_behind_a_block_they_are_put_up_again_and_count_once():
    def hidden():
        with handlers.block(), inside_blocks():
            trace = handlers.trace(lambda: observed(size=10, subsample_size=4)).get_trace()
        found.append((trace["y"]["scale"], trace["data"]["value"]))

    found = []
    with BatchPlate("data", 10, 4, jnp.asarray([3, 1, 3])), handlers.seed(rng_seed=0):
        hidden()
        with inside_blocks():
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


# --- rows without replacement: each row and each pair as likely, each row once an epoch


@pytest.mark.parametrize("size", [2, 1000, 1025, 45_905])
def test_an_order_holds_every_row_once(size):
    """Also where the network has none, and fifteen numbers more than there are rows; and by batches."""
    for number in range(3):
        key = jax.random.key(number)
        order = np.asarray(permuted_rows(key, size, jnp.arange(size)))
        np.testing.assert_array_equal(np.sort(order), np.arange(size))
    batch = jax.jit(lambda step: permuted_rows(key, size, step * (size // 2) + jnp.arange(size // 2)))
    np.testing.assert_array_equal(jnp.concatenate([batch(step) for step in range(2)]), order[: size // 2 * 2])


def test_each_row_and_each_pair_is_as_likely_as_another():
    """Chi-squared tests that fail once in 1e4 keys; a network of four rounds fails both by far.

    Four rows of 23 for many keys, by the network itself: for larger data the same code with larger digits.
    """
    words = jax.random.bits(jax.random.key(5), (40_000, ROUNDS), jnp.uint32)
    draws = np.asarray(jax.jit(jax.vmap(lambda own: _network(own, 23, jnp.arange(4, dtype=jnp.uint32))))(words))
    for at in range(4):
        assert stats.chisquare(np.bincount(draws[:, at], minlength=23)).pvalue > 1e-4
    for one, other in ((0, 1), (0, 3), (2, 3)):
        pairs = np.bincount(draws[:, one] * 23 + draws[:, other], minlength=529).reshape(23, 23)
        assert (np.diag(pairs) == 0).all()
        assert stats.chisquare(pairs[~np.eye(23, dtype=bool)]).pvalue > 1e-4


def test_a_guide_of_your_own_stands_under_the_handler():
    def guide():
        with numpyro.plate("data", 5000, subsample_size=3) as rows, numpyro.plate("all", 4) as every:
            return rows, every

    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        rows, every = keyed_rows(guide)()
    key = trace["data"]["kwargs"]["rng_key"]
    np.testing.assert_array_equal(rows, permuted_rows(key, 5000, jnp.arange(3)))
    np.testing.assert_array_equal(every, jnp.arange(4))


def test_without_a_key_and_with_other_positions_it_says_what_to_do():
    with pytest.raises(ValueError, match=r"a plate with subsample_size must be run with a random key"):
        keyed_rows(lambda: numpyro.plate("data", 8, subsample_size=3))()
    with pytest.raises(TypeError, match="positions must be whole numbers"):
        permuted_rows(jax.random.key(0), 5, jnp.ones(2))
    for size in (5, 5000):  # the last step of an epoch: rows of the first would come again, at some other place
        with pytest.raises(ValueError, match=rf"positions must be from 0 to {size - 1}, but got {size - 2} to {size}"):
            permuted_rows(jax.random.key(0), size, jnp.arange(size - 2, size + 1))


def test_sites_of_a_subsampled_plate_share_one_scale():
    """Ten data stand for three of four rows, and two of these for four; `ImportanceWeightedELBO` asks for one object."""

    def model(counts):
        def sites():
            with numpyro.plate("data", 4, subsample_size=2):
                with numpyro.handlers.scale(scale=0.5):
                    numpyro.sample("c", dist.Normal(0.0, 1.0))
                numpyro.sample("a", dist.Normal(0.0, 1.0))
                numpyro.sample("b", dist.Normal(0.0, 1.0))

        with BatchPlate("data", 10, 4, counts), handlers.seed(rng_seed=0):
            trace = handlers.trace(sites).get_trace()
        a, b, c = (trace[name]["scale"] for name in "abc")
        assert a is b
        return a, c

    found = jax.jit(model)(jnp.asarray([3, 1, 3]))
    np.testing.assert_allclose(found, (10 / 3 * 2, 10 / 3), rtol=1e-6)


def test_positions_in_one_byte_give_rows_of_all_numbers():
    """Of 1000 rows, which are sorted, and of 36 000, which are not."""
    for size in (1000, 36_000):
        rows, wanted = (permuted_rows(jax.random.key(0), size, jnp.arange(64, dtype=kind)) for kind in (jnp.uint8, int))
        np.testing.assert_array_equal(rows, wanted)
