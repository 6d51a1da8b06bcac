"""Streams of batches against the whole data: the mean of a step over a partition, and optima in closed form."""

import itertools

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from tests.oracles.engines import key

KEY = key()
RNG = np.random.default_rng(1)
X, Z = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
PARTS = [slice(0, 5), slice(5, 10), slice(10, 12)]  # the last is shorter
NOISE = 0.3


def mean_model(y):
    location = numpyro.param("location", 0.0)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(location, 1.0), obs=y)


def rows_model(X, y=None, *, Z):
    f = process(Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(NOISE), obs=y)


def process(Z):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    return ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)


fixed_model = numpyro.handlers.block(
    numpyro.handlers.substitute(rows_model, {"lengthscale": 0.8}), hide=["lengthscale"]
)


def all_model(X, y=None, *, Z, num_data=None):
    f = process(Z)
    with numpyro.plate("data", num_data or len(X), subsample_size=len(X)) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(NOISE), obs=None if y is None else y[rows])


def indexed_model(X, y=None, *, Z, batch=None):
    f = process(Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(NOISE), obs=y[rows])


tuples = [(X[part], Y[part]) for part in PARTS]
dictionaries = [{"X": X[part], "y": Y[part]} for part in PARTS]


def run(svi, steps, batches, **options):
    return ngp.fit(KEY, svi, steps, **{"batches": batches, "num_data": 12, "Z": Z, "progress": False, **options})


def still(model):
    """SVI that stays where it starts and remembers its last gradient."""
    optimiser = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    return SVI(model, ngp.AutoGP(model), optimiser, Trace_ELBO())


def gradient(result):
    return optax.tree_utils.tree_get(result.state.optim_state, "trace")


def check_slopes(results, whole):
    """The mean of the gradients over the parts is that of the whole data."""
    for name, wanted in gradient(whole).items():
        found = sum(gradient(result)[name] for result in results) / len(results)
        np.testing.assert_allclose(found, wanted, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.long
@pytest.mark.parametrize(
    "model, source",
    [(rows_model, tuples), (all_model, dictionaries), (indexed_model, tuples)],
    ids=["rows", "all", "idx"],
)
def test_the_mean_over_a_partition_is_the_loss_and_gradient_of_the_whole_data(model, source):
    """A batch that is not scaled is wrong by half, a copy that is not masked by a tenth, and so are rows of the short
    batch that count 5 / 2 times."""
    svi = still(model)
    results = [run(svi, 1, source)]
    for steps in (2, 3):
        results.append(run(svi, steps, source, resume=results[-1]))
    whole = ngp.fit(KEY, svi, 1, X, Y, Z=Z, progress=False, init_params=results[-1].params)
    np.testing.assert_allclose(results[-1].losses.mean(), whole.losses[0], rtol=1e-12)
    check_slopes(results, whole)


@pytest.mark.long
def test_natural_steps_reach_the_optimum_of_each_batch():
    """Of size one: the optimum of data whose noise variance is a third of the true one, by its closed form."""
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.0), 1.0)
    guide = ngp.AutoGP(fixed_model, {"f": ngp.guides.coupled(natural=True)})
    svi, result = SVI(fixed_model, guide, optimiser, Trace_ELBO()), False
    for steps, part in enumerate(PARTS, 1):
        result = run(svi, steps, tuples, resume=result)
        belief = guide.beliefs(result.params)["f"]
        wanted, _ = ngp.beliefs.coupled_optimum(ngp.kernels.RBF(1.0, 0.8), Z, X[part], Y[part], NOISE**2 / 3)
        np.testing.assert_allclose(belief.mean, wanted.mean, atol=1e-8)
        covariances = [b.scale_tril @ b.scale_tril.T for b in (belief, wanted)]
        np.testing.assert_allclose(*covariances, atol=1e-8)


@pytest.mark.long
def test_steins_one_particle_climbs_the_same_slope_on_average():
    """Particles never move, and the force on one particle alone is the score of its target."""
    optimiser = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    svgd, results = ngp.stein.SVGD(all_model, optimiser, num_stein_particles=1), [False]
    for steps in (1, 2, 3):
        results.append(run(svgd, steps, tuples, resume=results[-1]))
    check_slopes(results[1:], ngp.fit(KEY, svgd, 1, X, Y, Z=Z, progress=False))


def test_arrays_of_a_batch_have_the_same_rows():
    with pytest.raises(ValueError, match=r"batches\[0\] must be arrays with the same number of rows"):
        run(still(rows_model), 3, [(X[:3], Y[:4])])


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
    for guide, message in (
        (ngp.AutoGP(latent_model), "the parameter 'w/loc' must be without an entry for each row of plate 'data'"),
        (AutoMultivariateNormal(latent_model), "the guide at site 'w' must be without an entry for each row"),
    ):
        with pytest.raises(ValueError, match=message):
            run(svi(guide), 3, tuples)


def weights(source, steps=9, **options):
    """How often the rows of each batch count at each step: gradients of the mean, of data that are all one."""
    svi = SVI(mean_model, lambda y: None, optax.sgd(1e-9), Trace_ELBO())
    fit = ngp.fit(KEY, svi, steps, **{"batches": source, "num_data": 12, "progress": False, **options})
    return -(fit.losses + 0) * 2 / (fit.rows * (1 + np.log(2 * np.pi))), fit


SIZES = [5, 5, 2]


def ones(start=0):
    return ((np.ones(size),) for size in itertools.islice(itertools.cycle(SIZES), start, None))


def test_every_row_of_a_source_counts_as_often_as_another():
    """Rows of a short batch counted 5 / 2 times; of a source that nobody knows the first pass tells how many it has."""
    listed, _ = weights([(np.ones(size),) for size in SIZES])
    np.testing.assert_allclose(listed, -3, rtol=1e-6)
    learnt, _ = weights(ones())
    np.testing.assert_allclose(learnt, [-12 / 5] * 2 + [-3] * 7, rtol=1e-6)
    equal, _ = weights([(np.ones(5),)] * 4)  # not a pass
    np.testing.assert_allclose(equal, -12 / 5, rtol=1e-6)


def test_a_fit_that_goes_on_knows_the_rows_before(tmp_path):
    """Of a file and of a result; one that has none of them, as of an older release, takes all for full."""
    path = tmp_path / "run.npz"
    _, first = weights(ones, steps=4, checkpoint=path)
    assert first.rows.tolist() == [5, 5, 2, 5]
    for options in ({"resume": first}, {"resume": path}):
        found, fit = weights(ones, **options)
        np.testing.assert_allclose(found[4:], -3, rtol=1e-6)
        assert fit.rows.tolist() == SIZES * 3
    iterator, _ = weights(ones(4), resume=first)
    np.testing.assert_allclose(iterator[4:], -3, rtol=1e-6)
    _, older = weights(ones, resume=first._replace(rows=None))
    np.testing.assert_allclose(-older.losses[4] / (5 * 0.5 * (1 + np.log(2 * np.pi))), -12 / 5, rtol=1e-6)


@pytest.mark.long
def test_a_list_is_read_on_where_a_fit_stopped():
    """It started again: of more batches than lie between two interruptions the last were never read."""
    batches = [(np.full(3, float(number)),) for number in range(5)]
    whole = weights(batches, steps=8)[1].losses
    for stop in (2, 5, 7):
        first = weights(batches, steps=stop)[1]
        np.testing.assert_array_equal(weights(batches, steps=8, resume=first)[1].losses, whole)
