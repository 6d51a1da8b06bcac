"""Eight devices and one: the same numbers, what devices send to one another, and what is refused."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from scipy import stats

from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.devices import Placement, placement_of
from numpyro_gp.rows.feeds import Drawn, pieces_of

ENGINES = ["orthogonal", "weighted"]  # one layer; two, under importance weights
# M x M for three inducing points, or the columns of both bases: 3 + 6 rows of two numbers.
LARGEST = 18


# What `tests.devices` says of them comes from a process of its own: one for all takes minutes.
SHARES = ["weighted", "particles", "both", "curved", "samples", "samples and rows"]
SHARES += ["seven", "axis", "odd", "joint", "same axis"]


@functools.cache
def said(part):
    """All that a process of eight devices says of rows, or of shares of particles and samples, by name."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    command, root = [sys.executable, "-m", "tests.devices", part], Path(__file__).parent.parent.parent
    # Operations are JAX's own, which know devices; shapes of annotations are checked in this process.
    own = {"XLA_FLAGS": flags, "NUMPYRO_GP_TEST_EAGER": "compiled", "NUMPYRO_GP_TEST_SHAPES": "0"}
    environment = {**os.environ, **own}
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: value for line in done.stdout.splitlines() for name, value in json.loads(line).items()}


def found(name):
    return said("shares" if name in SHARES else "rows")[name]


@pytest.mark.long
@pytest.mark.parametrize("engine", [*ENGINES, "minibatch"])
def test_eight_devices_take_the_steps_of_one(engine):
    """Three steps: parameters and losses to rounding. A device that is left out, or counted twice, moves them by 0.01.

    There are 32 rows of two columns, or 16 in a minibatch: rows that travel would be 32 numbers or more. Of a
    minibatch it is the first loss, of the same rows on one device.
    """
    assert found(engine)["difference"] < 1e-9
    kinds, largest = found(engine)["collectives"]
    assert kinds == ["all-reduce"]
    assert largest <= LARGEST


@pytest.mark.long
def test_eight_devices_take_the_steps_of_one_by_neighbours():
    """Minibatches too, whose rows read others: all devices hold all data, and each has its share of the batch."""
    seen = found("neighbours")
    assert max(seen["None"], seen["16"]) < 1e-9
    assert seen["collectives"][0] == ["all-reduce"]  # of the terms and slopes of each share, and no rows
    assert seen["collectives"][1] <= 2
    assert "the minibatch must be rows that divide among 8 devices, but got 12 rows" in seen["refused"]


@pytest.mark.long
def test_arrays_in_pieces_streams_and_predictions():
    """And minibatches, of which each device draws its share of its own rows."""
    for name in ("placed", "stream", "predicted"):
        assert found(name) < 1e-9, name
    assert found("shared") == 8  # devices that hold a piece of the predictions
    assert found("own")
    assert stats.chisquare(found("counts")).pvalue > 1e-4
    assert found("drawing")[1] <= 8  # whether each piece has its rows: no rows and no data
    assert found("resumed") == 0.0


@pytest.mark.long
def test_eight_devices_have_particles_and_importance_samples_of_their_own():
    """Eight particles: those of the first device alone, or forces of other particles, move them by 0.01.

    Eight samples of 32 rows: devices send sums over the samples of each row, where weights would be 256 numbers.
    """
    for name in ("both", "curved"):  # side by side on each device, in the coordinates of their averaged curvature
        assert found(name) < 1e-9, name
    for name, kind, largest in (
        ("particles", "all-gather", 8 * 3),  # a score of all particles at one site
        ("samples", "all-reduce", 32),
        ("samples and rows", "all-reduce", LARGEST),
    ):
        assert found(name)["difference"] < 1e-9, name
        assert found(name)["collectives"][0] == [kind], name
        assert found(name)["collectives"][1] <= largest, name
    assert found("samples")["collectives"][1] == 32  # every device with all samples would send none of them


@pytest.mark.long
def test_what_cannot_be_shared_is_refused():
    for name, message in (
        ("ragged", "the data must be rows that divide among 8 devices, but got 31 rows. Leave 7 out"),
        ("short", "the minibatch must be rows that divide among 8 devices, but got 12 rows"),
        ("clash", "the data must be all that has 32 rows, where the model draws minibatches"),
        ("columns", "sharding must be a NamedSharding of the first axis alone"),
        ("kind", "sharding must be a NamedSharding of the first axis alone"),
        ("explicit", "sharding must be of a mesh whose axes are all Auto"),
        ("seven", "num_stein_particles must be a multiple of the 8 devices, but got 7."),
        ("odd", "num_samples must be a multiple of the 2 devices, but got 3. Pass 4."),
        ("joint", "sharding must be None for a model that samples a layer above its latent inputs, but got one with"),
        ("same axis", "samples that these leave free, ['data'], but got ('samples',) of"),
        ("axis", "Resource axis: rows"),  # by JAX, where the sharding is built
    ):
        assert message in str(found(name)), name


def test_one_device_needs_no_placement_and_draws_as_many_would():
    assert placement_of(None, [np.ones(3), jnp.ones(3), jnp.ones(())]) is None
    assert jax.eval_shape(lambda x: x if placement_of(None, [x]) is None else 0, jnp.ones(3)).shape == (3,)
    placement = Placement(
        NamedSharding(jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec("data"))
    )
    assert (placement.pieces, placement.processes) == (1, [0])
    tree = {"key": jax.random.key(3, impl="rbg"), "x": np.ones(2)}
    copied = placement.placed(tree, 3)  # nobody to differ from
    assert all(leaf.sharding == placement.copies for leaf in jax.tree.leaves(copied))
    np.testing.assert_array_equal(jax.random.key_data(copied["key"]), jax.random.key_data(tree["key"]))
    assert copied["key"].dtype == tree["key"].dtype
    call = call_of(None, (jnp.arange(8), 3.0), {"y": jnp.arange(8.0)})
    drawn = Drawn(jax.random.key(0), call, (True, True), 4, placement)
    first = [np.asarray(array) for array in drawn.arrays()]
    np.testing.assert_array_equal(first[0], first[1])
    assert (len(set(first[0])), first[2].tolist()) == (4, [4, 1, 4])
    drawn.prefetch()
    assert not np.array_equal(drawn.arrays()[0], first[0])
    drawn.start(0)
    np.testing.assert_array_equal(drawn.arrays()[0], first[0])


def test_a_table_as_long_as_the_data_is_looked_up_whole_in_their_minibatches():
    """Codes read it: it was drawn as the data are, and codes beyond the batch read the last row that was drawn."""
    rng = np.random.default_rng(0)
    codes, levels, y = rng.integers(0, 12, 12), 10.0 * np.arange(12), rng.normal(size=12)

    def model(y, codes, levels, is_read=False):
        with numpyro.plate("data", 12, subsample_size=3) as rows:
            shift = levels[rows] if is_read else 0.0
            numpyro.sample("y", dist.Normal((2 * levels)[codes[rows]] + levels[codes[rows]] + shift, 1.0), obs=y[rows])

    placement = Placement(
        NamedSharding(jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec("data"))
    )
    arrays = (jnp.asarray(y), jnp.asarray(codes), jnp.asarray(levels))
    feed = pieces_of(SimpleNamespace(model=model), jax.random.key(0), call_of(model, arrays, {}), placement)
    own, of_rows, table, _ = map(np.asarray, feed.arrays())
    np.testing.assert_array_equal(table, levels)
    places = [int(np.flatnonzero(y == one)[0]) for one in own]
    np.testing.assert_array_equal(of_rows, codes[places])
    assert len(set(places)) == 3
    with pytest.raises(ValueError, match="levels must be read by rows of the plate alone, or by other indices alone"):
        pieces_of(SimpleNamespace(model=model), jax.random.key(0), call_of(model, (*arrays, True), {}), placement)
