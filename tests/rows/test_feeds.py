"""Streams of batches: positions of the source, what ends a fit before its time, and what is refused."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import feed_of
from tests.oracles.engines import Countdown, data, engine, key, same

KEY = key()

# --- positions of the source, with an engine that compiles quickly

DATA = np.random.default_rng(2).normal(size=20)


def pieces(start=0):
    """Batches of four, and the last but one of three, for ever."""
    batches = [(DATA[:4],), (DATA[4:8],), (DATA[8:12],), (DATA[12:15],), (DATA[15:19],)]
    return itertools.islice(itertools.cycle(batches), start, None)


class Again:
    """Batches to be gone through again and again, and nobody knows how many."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def simple(steps, batches, svi=None, **options):
    return ngp.fit(KEY, svi or engine(), steps, **{"batches": batches, "num_data": 20, "progress": False, **options})


@pytest.mark.long
def test_iterators_functions_and_iterables_give_the_same_steps():
    wanted = simple(7, pieces())
    same(wanted, simple(7, pieces))
    again = Again(list(itertools.islice(pieces(), 5)))
    same(wanted, simple(7, again))  # gone through again
    same(wanted, simple(7, (batch for (batch,) in pieces())))  # one array without its tuple
    same(wanted, simple(7, ((jnp.asarray(batch),) for (batch,) in pieces())))


@pytest.mark.long
def test_a_resumed_fit_takes_the_batches_from_where_it_stopped(tmp_path):
    wanted, path = simple(7, pieces), tmp_path / "run.npz"
    first = simple(5, pieces, checkpoint=path)
    same(wanted, simple(7, pieces, resume=first))
    same(wanted, simple(7, pieces(5), resume=first))  # an iterator stands where its user put it
    same(wanted, simple(7, pieces, checkpoint=path, resume=True))


@pytest.mark.long
def test_a_source_may_write_into_one_buffer_or_be_a_memory_map(tmp_path):
    def source():
        buffer = np.empty(4)
        for (batch,) in pieces():
            buffer[: len(batch)] = batch
            yield (buffer[: len(batch)],)
            buffer[:] = np.nan

    same(simple(7, pieces()), simple(7, source()))
    stored = np.memmap(tmp_path / "y.bin", dtype=float, mode="w+", shape=(20,))
    stored[:] = DATA
    found, wanted = (simple(5, (y[at : at + 4] for at in range(0, 20, 4))) for y in (stored, DATA))
    same(found, wanted)


@pytest.mark.long
def test_full_and_short_batches_share_one_program():
    calls = []

    def counted(y):
        calls.append(1)
        location = numpyro.sample("location", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(location, 1.0), obs=y)

    svi = SVI(counted, ngp.AutoGP(counted), optax.sgd(0.01), Trace_ELBO())
    counts = []
    for steps in (1, 2, 9):
        assert simple(steps, pieces, svi).losses.shape == (steps,)
        counts.append(len(calls))
    assert counts[2] - counts[1] == counts[1] - counts[0]  # which plate, and checks of the first batch: no step


# --- what ends a fit before its time


def broken(batch, at=3):
    return iter((*itertools.islice(pieces(), at), batch))


# Three good batches, and what comes then.
FAULTS = {
    "end": (lambda: pieces_that_end(3), r"one for each of the steps, but got 3, and then an end\. Pass a list"),
    "type": (
        lambda: broken((DATA[:4].astype(np.float32),)),
        r"batches\[3\]\[0\] must be of float64 with rows of shape \(\), as in the first .* but got float32",
    ),
    "columns": (lambda: broken((DATA[:4, None],)), r"but got float64 with rows of shape \(1,\)"),
    "structure": (lambda: broken({"y": DATA[:4]}), r"batches\[3\] must be of the structure of the first"),
    "empty": (lambda: broken((DATA[:0],)), r"batches\[3\] must be non-empty, but got 0 rows"),
    "longer": (lambda: broken((DATA[:5],)), r"batches\[3\] must be of at most 4 rows.* but got 5 rows"),
    "words": (lambda: broken((np.array(["a", "b"]),)), r"must be a tuple of arrays.* but got a tuple of ndarray"),
    "nothing": (lambda: broken(None), r"batches\[3\] must be a tuple of arrays"),
    "user": (lambda: source_that_fails(), "the disk is gone"),
}


def pieces_that_end(count):
    return itertools.islice(pieces(), count)


def source_that_fails():
    yield from pieces_that_end(3)
    raise OSError("the disk is gone")


@pytest.mark.parametrize("fault", FAULTS)
def test_the_steps_before_a_fault_of_the_source_are_kept(fault, tmp_path):
    source, match = FAULTS[fault]
    path, svi = tmp_path / "run.npz", engine()
    with pytest.raises((ValueError, TypeError, OSError), match=match) as info:
        simple(7, source(), svi, checkpoint=path)
    assert info.value.__notes__ == [f"This happened after 3 of 7 steps. They are in .result and in {path}."]
    if fault == "user":
        same(info.value.result, simple(3, pieces(), svi))
        same(simple(5, pieces, svi, resume=path), simple(5, pieces, svi, resume=info.value.result))


def test_an_interrupt_while_the_source_is_read_keeps_the_steps():
    def source():
        yield from pieces_that_end(3)
        raise KeyboardInterrupt

    with pytest.raises(ngp.training.FitInterrupted, match="The fit was interrupted after 2 of 7 steps") as info:
        simple(7, source())
    found, wanted = info.value.result, simple(2, pieces())
    same((found.losses, found.state), (wanted.losses, wanted.state))  # all that a resumed fit goes on from
    assert found.params.keys() == wanted.params.keys()
    for name, value in wanted.params.items():  # made of the state, each time anew: an exponential may differ by a bit
        np.testing.assert_allclose(found.params[name], value, rtol=1e-14)


def test_what_cannot_be_streamed_is_refused():
    no_batch = "batches must be one for each of the steps, but got 0, and then an end"
    for call, message in (
        (lambda: simple(3, DATA), "batches must be an iterable of batches, or a function of the number"),
        (lambda: simple(3, {"y": DATA}), "batches must be an iterable of batches, or a function of the number"),
        (lambda: simple(3, []), no_batch),
        (lambda: simple(3, iter([])), no_batch),
        (lambda: simple(3, [{"y": DATA[:4]}], y=DATA), r"batches\[0\] must be free of arguments .* beside it.*'y'"),
        (
            lambda: simple(3, pieces(), num_data=None),
            "num_data must be the number of all data, 4 or more, but got None.*N, the number",
        ),
        (lambda: simple(3, pieces(), num_data=3), "num_data must be the number of all data, 4 or more, but got 3"),
        (lambda: simple(3, pieces(), Countdown()), "svi_or_stein must be an engine with a model where batches"),
        (lambda: simple(3, ((b, b, b) for (b,) in pieces())), "args and kwargs must be arguments of the model"),
        (lambda: ngp.fit(KEY, engine(), 3, DATA, num_data=20), "args and kwargs must be arguments .*num_data"),
        (lambda: feed_of(engine(), KEY, Arguments((data(),), {}), None, 9), "args and kwargs must be arguments of"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_the_plate_of_the_batch_must_be_clear():
    def model(y, sizes, names):
        location = numpyro.param("location", 0.0)
        for name, size in zip(names, sizes, strict=True):
            numpyro.plate(name, size)
        numpyro.sample("y", dist.Normal(location, 1.0).expand([4]).to_event(1), obs=y)

    svi = SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    message = r"the model must be one with a plate of the 4 rows of a batch, called 'dat"
    for sizes, names in (((), ()), ((7,), ("data",)), ((4, 4), ("a", "b"))):
        with pytest.raises(ValueError, match=message):
            simple(3, pieces(), svi, sizes=sizes, names=names)
    simple(1, pieces(), svi, sizes=(4, 4), names=("a", "data"))


# --- rows that a fit would read wrongly


def by_row(X, y=None, *, offset=None, power=0.0):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), np.linspace(0.0, 1.0, 3)[:, None])
    with numpyro.plate("data", len(X)) as rows:
        shift = power * rows if offset is None else offset[rows]
        seen = None if y is None else y[rows]
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=seen, offset=shift)


def test_streams_refuse_what_is_read_beside_them_and_numbers_of_rows():
    """Each batch would read the first rows of the offset, and be numbered from 0 on."""
    X, y = np.linspace(0.0, 1.0, 6)[:, None], np.zeros(6)
    svi = SVI(by_row, ngp.AutoGP(by_row), optax.adam(0.01), Trace_ELBO())
    options = {"batches": [(X[:3], y[:3]), (X[3:], y[3:])], "num_data": 6, "progress": False}
    with pytest.raises(ValueError, match="offset must be an array of batches, as plate 'data' reads it by its rows"):
        ngp.fit(KEY, svi, 1, offset=np.zeros(6), **options)
    with pytest.raises(
        ValueError, match="the model of batches must be one that only reads arrays by the rows of plate"
    ):
        ngp.fit(KEY, svi, 1, power=0.1, **options)
