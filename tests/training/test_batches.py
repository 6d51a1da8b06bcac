"""Streams of batches against the whole data: expectations, closed forms, positions, and what is refused."""

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from numpyro_gp.training.batches import Stream, Whole, abstract_trace, filled, layout_of
from tests.oracles.engines import Countdown, engine, key, same

fit_module = importlib.import_module("numpyro_gp.training.fit")
KEY = key()
RNG = np.random.default_rng(1)
X, Z = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
PARTS = [slice(0, 5), slice(5, 10), slice(10, 12)]  # the last is shorter
WEIGHTS = np.array([5, 5, 2]) / 12
NOISE = 0.3


def rows_model(X, y=None, *, Z):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(NOISE), obs=y)


def all_model(X, y=None, *, Z, num_data=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", num_data or len(X), subsample_size=len(X)) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(NOISE), obs=None if y is None else y[rows])


def indexed_model(X, y=None, *, Z, batch=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(NOISE), obs=y[rows])


def tuples(start=0):
    return ((X[part], Y[part]) for part in PARTS[start:])


def dictionaries(start=0):
    return ({"X": X[part], "y": Y[part]} for part in PARTS[start:])


def run(svi, steps, batches, **options):
    return ngp.fit(KEY, svi, steps, **{"batches": batches, "num_data": 12, "Z": Z, "progress": False, **options})


def still(model, loss=None):
    """SVI that stays where it starts and remembers its last gradient."""
    optimiser = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    return SVI(model, ngp.AutoGP(model), optimiser, loss or Trace_ELBO())


def gradient(result):
    return optax.tree_utils.tree_get(result.state.optim_state, "trace")


@pytest.mark.long
@pytest.mark.parametrize(
    "model, source",
    [(rows_model, tuples), (all_model, dictionaries), (indexed_model, tuples)],
    ids=["rows", "all", "idx"],
)
def test_the_mean_over_a_partition_is_the_loss_and_gradient_of_the_whole_data(model, source):
    """A batch that is not scaled is wrong by half, a copy that is not masked by a tenth."""
    svi = still(model)
    results = [run(svi, 1, source)]
    for steps in (2, 3):
        results.append(run(svi, steps, source, resume=results[-1]))
    whole = ngp.fit(KEY, svi, 1, X, Y, Z=Z, progress=False)
    np.testing.assert_allclose(WEIGHTS @ results[-1].losses, whole.losses[0], rtol=1e-12)
    for name, wanted in gradient(whole).items():
        found = sum(weight * gradient(result)[name] for weight, result in zip(WEIGHTS, results, strict=True))
        np.testing.assert_allclose(found, wanted, atol=1e-12 * np.abs(wanted).max())


def fixed_model(X, y=None, *, Z):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.8), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(NOISE), obs=y)


@pytest.mark.long
def test_natural_steps_reach_the_optimum_of_each_batch():
    """Of size one: the optimum of data whose noise variance is ``B / N`` of the true one, by its closed form."""
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.0), 1.0)
    guide = ngp.AutoGP(fixed_model, {"f": ngp.guides.coupled(natural=True)})
    svi, result = SVI(fixed_model, guide, optimiser, Trace_ELBO()), False
    for steps, part in enumerate(PARTS, 1):
        result = run(svi, steps, tuples, resume=result)
        belief, share = guide.beliefs(result.params)["f"], (part.stop - part.start) / 12
        noise = NOISE**2 * share
        wanted, _ = ngp.beliefs.coupled_optimum(ngp.kernels.RBF(1.0, 0.8), Z, X[part], Y[part], noise)
        np.testing.assert_allclose(belief.mean, wanted.mean, atol=1e-8)
        covariances = [b.scale_tril @ b.scale_tril.T for b in (belief, wanted)]
        np.testing.assert_allclose(*covariances, atol=1e-8)


@pytest.mark.long
def test_importance_weights_without_latent_inputs_have_the_usual_bound():
    losses = [run(still(fixed_model, loss), 3, tuples).losses for loss in (None, ngp.ImportanceWeightedELBO(3))]
    np.testing.assert_allclose(*losses, rtol=1e-12)


@pytest.mark.long
def test_steins_one_particle_climbs_the_same_slope_on_average():
    """Particles never move, and the force on one particle alone is the score of its target."""
    optimiser = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    svgd, results = ngp.stein.SVGD(all_model, optimiser, num_stein_particles=1), [False]
    for steps in (1, 2, 3):
        results.append(run(svgd, steps, tuples, resume=results[-1]))
    whole = ngp.fit(KEY, svgd, 1, X, Y, Z=Z, progress=False)
    for name, wanted in gradient(whole).items():
        found = sum(weight * gradient(result)[name] for weight, result in zip(WEIGHTS, results[1:], strict=True))
        np.testing.assert_allclose(found, wanted, atol=1e-12 * np.abs(wanted).max())


# --- positions of the source, with an engine that compiles quickly

DATA = np.random.default_rng(2).normal(size=20)


def pieces(start=0):
    """Batches of four, and the last but one of three, for ever."""
    batches = [(DATA[:4],), (DATA[4:8],), (DATA[8:12],), (DATA[12:15],), (DATA[15:19],)]
    return itertools.islice(itertools.cycle(batches), start, None)


def simple(steps, batches, svi=None, **options):
    return ngp.fit(KEY, svi or engine(), steps, **{"batches": batches, "num_data": 20, "progress": False, **options})


@pytest.mark.long
def test_iterators_functions_and_iterables_give_the_same_steps():
    wanted = simple(7, pieces())
    same(wanted, simple(7, pieces))
    same(wanted, simple(7, list(itertools.islice(pieces(), 5))))  # gone through again
    same(wanted, simple(7, (batch for (batch,) in pieces())))  # one array without its tuple
    same(wanted, simple(7, ((jnp.asarray(batch),) for (batch,) in pieces())))


@pytest.mark.long
def test_a_resumed_fit_takes_the_batches_from_where_it_stopped(tmp_path):
    wanted, path = simple(7, pieces), tmp_path / "run.npz"
    first = simple(5, pieces, checkpoint=path)
    same(wanted, simple(7, pieces, resume=first))
    same(wanted, simple(7, pieces(5), resume=first))  # an iterator stands where its user put it
    same(wanted, simple(7, pieces, checkpoint=path, resume=True))


def test_a_source_that_writes_into_one_buffer():
    def source():
        buffer = np.empty(4)
        for (batch,) in pieces():
            buffer[: len(batch)] = batch
            yield (buffer[: len(batch)],)
            buffer[:] = np.nan

    same(simple(7, pieces()), simple(7, source()))


def test_a_memory_map_is_a_source(tmp_path):
    stored = np.memmap(tmp_path / "y.bin", dtype=float, mode="w+", shape=(20,))
    stored[:] = DATA
    mapped = (stored[at : at + 4] for at in range(0, 20, 4))
    same(simple(5, mapped), simple(5, (DATA[at : at + 4] for at in range(0, 20, 4))))


def test_the_next_batch_is_taken_while_the_step_runs_and_none_too_many(monkeypatch):
    events, build = [], fit_module.compiled_loop

    class Losses:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            events.append("wait")
            return np.asarray(self.values)

    def watched(*args):
        advance = build(*args)

        def run(*inputs):
            events.append("step")
            count, state, losses, healthy = advance(*inputs)
            return count, state, Losses(losses), healthy

        return run

    def source():
        for batch in pieces():
            events.append("batch")
            yield batch

    monkeypatch.setattr(fit_module, "compiled_loop", watched)
    simple(3, source())
    assert events == ["batch", "step", "batch", "wait", "step", "batch", "wait", "step", "wait"]


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


def test_float32_stays_float32():
    def small(y):
        location = numpyro.param("location", jnp.zeros((), jnp.float32))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(location, jnp.ones((), jnp.float32)), obs=y)

    svi = SVI(small, lambda y: None, optax.sgd(0.01), Trace_ELBO())
    result = simple(5, ((batch.astype(np.float32),) for (batch,) in pieces()), svi)
    assert result.params["location"].dtype == jnp.float32


# --- what ends a fit before its time


def broken(batch, at=3):
    return (*itertools.islice(pieces(), at), batch)


FAULTS = {
    "end": (
        lambda: pieces_that_end(3),
        ValueError,
        r"batches must be as many as there are steps, but got an end after 3",
    ),
    "type": (
        lambda: iter(broken((DATA[:4].astype(np.float32),))),
        TypeError,
        r"batches\[3\]\[0\] must be of float64 with rows of shape \(\), as in the first .* but got float32",
    ),
    "columns": (lambda: iter(broken((DATA[:4, None],))), TypeError, r"but got float64 with rows of shape \(1,\)"),
    "structure": (
        lambda: iter(broken({"y": DATA[:4]})),
        TypeError,
        r"batches\[3\] must be of the structure of the first",
    ),
    "empty": (lambda: iter(broken((DATA[:0],))), ValueError, r"batches\[3\] must be non-empty, but got 0 rows"),
    "longer": (
        lambda: iter(broken((DATA[:5],))),
        ValueError,
        r"batches\[3\] must be of at most 4 rows.* but got 5 rows",
    ),
    "words": (
        lambda: iter(broken((np.array(["a", "b"]),))),
        TypeError,
        r"batches\[3\] must be a tuple of arrays.* but got a tuple of ndarray",
    ),
    "nothing": (lambda: iter(broken(None)), TypeError, r"batches\[3\] must be a tuple of arrays"),
    "user": (lambda: source_that_fails(), OSError, "the disk is gone"),
}


def pieces_that_end(count):
    return itertools.islice(pieces(), count)


def source_that_fails():
    yield from pieces_that_end(3)
    raise OSError("the disk is gone")


@pytest.mark.parametrize("fault", FAULTS)
def test_the_steps_before_a_fault_of_the_source_are_kept(fault, tmp_path):
    source, kind, match = FAULTS[fault]
    path, svi = tmp_path / "run.npz", engine()
    with pytest.raises(kind, match=match) as info:
        simple(7, source(), svi, checkpoint=path)
    assert info.value.__notes__ == [f"After 3 of 7 steps, kept in .result and in {path}."]
    same(info.value.result, simple(3, pieces(), svi))
    same(simple(5, pieces, svi, resume=path), simple(5, pieces, svi, resume=info.value.result))


def test_an_interrupt_while_the_source_is_read_keeps_the_steps():
    def source():
        yield from pieces_that_end(3)
        raise KeyboardInterrupt

    with pytest.raises(ngp.training.FitInterrupted, match="Interrupted after 2 of 7 steps") as info:
        simple(7, source())
    same(info.value.result, simple(2, pieces()))


def test_a_batch_that_is_not_finite_is_named_by_its_step():
    with pytest.raises(ngp.training.NonFiniteLoss, match=r"Step 3 of 7 .*'y'") as info:
        simple(7, iter(broken((np.full(4, np.nan),))))
    assert (info.value.step, info.value.sites) == (3, ("y",))


def test_a_device_that_is_lost_leaves_the_steps_before(monkeypatch):
    build, calls = fit_module.compiled_loop, []

    def lost(*args):
        advance = build(*args)

        def run(*inputs):
            calls.append(1)
            if len(calls) == 3:
                raise jax.errors.JaxRuntimeError("INTERNAL: device lost")
            return advance(*inputs)

        return run

    monkeypatch.setattr(fit_module, "compiled_loop", lost)
    with pytest.raises(jax.errors.JaxRuntimeError, match="device lost") as info:
        simple(7, pieces())
    assert info.value.result.losses.shape == (2,)


def test_what_cannot_be_streamed_is_refused():
    for wrong in (DATA, {"y": DATA}, 3):
        with pytest.raises(TypeError, match="batches must be an iterable of batches, or a function of the number"):
            simple(3, wrong)
    for wrong in ([], iter([])):
        with pytest.raises(ValueError, match="batches must be as many as there are steps, but got an end after 0"):
            simple(3, wrong)
    with pytest.raises(ValueError, match=r"batches\[0\] must be arrays with the same number of rows"):
        run(still(rows_model), 3, [(X[:3], Y[:4])])
    with pytest.raises(ValueError, match=r"batches\[0\] must be free of arguments that are given beside it.*'y'"):
        simple(3, [{"y": DATA[:4]}], y=DATA)
    with pytest.raises(TypeError, match="num_data must be a whole number, but got None"):
        simple(3, pieces(), num_data=None)
    with pytest.raises(ValueError, match="num_data must be the number of all data, 4 or more, but got 3"):
        simple(3, pieces(), num_data=3)
    with pytest.raises(TypeError, match="svi_or_stein must be an engine with a model where batches are given"):
        simple(3, pieces(), Countdown())
    with pytest.raises(TypeError, match="args and kwargs must be arguments of the model"):
        simple(3, ((batch, batch, batch) for (batch,) in pieces()))
    with pytest.raises(TypeError, match=r"args and kwargs must be arguments of the model, .*num_data"):
        ngp.fit(KEY, engine(), 3, DATA, num_data=20)


def test_the_plate_of_the_batch_must_be_clear():
    def model(y, sizes, names):
        location = numpyro.param("location", 0.0)
        for name, size in zip(names, sizes, strict=True):
            numpyro.plate(name, size)
        numpyro.sample("y", dist.Normal(location, 1.0).expand([4]).to_event(1), obs=y)

    svi = SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    for sizes, names in (((), ()), ((7,), ("data",)), ((4, 4), ("a", "b"))):
        with pytest.raises(
            ValueError, match=r"the model must be one with a plate of the 4 rows of a batch, called 'dat"
        ):
            simple(3, pieces(), svi, sizes=sizes, names=names)
    simple(1, pieces(), svi, sizes=(4, 4), names=("a", "data"))


def latent_model(X, y=None, *, Z):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(ngp.latent_inputs("w", X[:, :1])), ngp.likelihoods.Gaussian(NOISE), obs=y)


@pytest.mark.long
def test_latent_inputs_need_a_guide_that_reads_them_off_the_batch():
    def svi(guide):
        return SVI(latent_model, guide, optax.adam(0.01), Trace_ELBO())

    network = ngp.guides.amortised(ngp.guides.encoder((2,)))
    assert np.isfinite(run(svi(ngp.AutoGP(latent_model, {"w": network})), 3, tuples).losses).all()
    with pytest.raises(
        ValueError, match=r"the parameter 'w/loc' must be without an entry for each row of plate 'data'"
    ):
        run(svi(ngp.AutoGP(latent_model)), 3, tuples)
    with pytest.raises(ValueError, match=r"the guide at site 'w' must be without an entry for each row"):
        run(svi(AutoMultivariateNormal(latent_model)), 3, tuples)


# --- the parts


def test_parts_of_a_batch():
    np.testing.assert_array_equal(filled(np.arange(3), 5), [0, 1, 2, 2, 2])
    array = jnp.ones(3)
    assert filled(array, 3) is array
    assert layout_of("b", {"X": np.ones((3, 2), np.float32)}).arrays == {"['X']": (jnp.float32, (2,))}
    assert Whole([array]).arrays()[0] is array
    stream = Stream([(np.ones(3),), (np.ones(2),)], (), {})
    stream.prefetch()
    assert int(stream.arrays()[-1]) == 2
    assert stream.rows == 3
    shape = abstract_trace(lambda y: numpyro.sample("y", dist.Normal(jnp.zeros(3), 1.0), obs=y), (DATA[:3],), {})
    assert shape["y"]["value"].shape == (3,)
