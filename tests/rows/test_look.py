"""What a model checks, and which rows it reads: found without a value, and refused wherever a fit starts."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.rows.batches import rows_to_cut
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import check_behind, check_row_counts, check_rows_of, look
from tests.fits import sparse

KEY = jax.random.key(0)
X = jnp.linspace(-1.0, 1.0, 12)[:, None]
Y = jnp.sin(3 * X[:, 0])


def engine(model=sparse):
    return SVI(model, ngp.AutoGP(model), optax.adam(0.01), Trace_ELBO())


@pytest.mark.long
def test_data_with_fewer_rows_than_their_plate_are_refused():
    """``y[rows]`` of seven rows for twelve would repeat the last one five times: by any engine, and after a good fit."""
    svi, few, message = engine(), Y[:7], "y must be of 12 rows or more, as the plate that reads it, but got 7 rows"
    fit = lambda y, **options: ngp.fit(KEY, svi, 1, X, y, progress=False, **options)  # noqa: E731
    for start in (
        lambda: fit(few),
        lambda: fit(few, batch=3),
        lambda: engine().run(KEY, 1, X, few, progress_bar=False),
        lambda: MCMC(ngp.NUTS(sparse), num_warmup=1, num_samples=1, progress_bar=False).run(KEY, X, few),
        lambda: ngp.stein.SVGD(sparse, optax.adam(0.1)).init(KEY, X, few),
        lambda: (fit(Y), fit(few)),
    ):
        with pytest.raises(ValueError, match=message):
            start()


def test_data_with_more_rows_than_their_plate_are_refused():
    """``y[rows]`` of thirteen rows for twelve would be the first twelve, those of ``X`` or not."""

    def taken(X, y):
        with numpyro.plate("data", len(X)) as rows:
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=jnp.take(y, rows))

    for model in (sparse, taken):
        with pytest.raises(ValueError, match="y must be of 12 rows, as the plate that reads it, but got 13 rows"):
            check_rows_of(model, call_of(model, (X, jnp.ones(13)), {}))


def test_other_readings_are_left_alone():
    """More rows (a model of differences reads ``y[rows]`` and ``y[rows + 1]``), zeros for rows that are not there."""

    def differences(y):
        with numpyro.plate("data", 12) as rows:
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y[rows + 1] - y[rows])

    check_rows_of(differences, call_of(differences, (jnp.ones(13),), {}))

    def padded(y):
        with numpyro.plate("data", 12) as rows:
            numpyro.sample("y", dist.Normal(y.at[rows].get(mode="fill", fill_value=0.0), 1.0))

    def coded(table, codes):
        with numpyro.plate("data", 12) as rows:
            numpyro.sample("y", dist.Normal(table[codes[rows]], 1.0))

    def in_python(y):
        with numpyro.plate("data", 12) as rows:
            numpyro.sample("y", dist.Normal(float(np.asarray(y).sum()), 1.0).expand(rows.shape))

    def of_groups(level, y):
        """As many groups as rows in a minibatch."""
        with numpyro.plate("group", 3) as groups:
            value = numpyro.sample("level", dist.Normal(level[groups], 1.0))
        with numpyro.plate("data", 12, subsample_size=3) as rows:
            numpyro.sample("y", dist.Normal(value.sum(), 1.0), obs=y[rows])

    check_rows_of(of_groups, call_of(of_groups, (jnp.zeros(3), Y), {}))
    with pytest.raises(ValueError, match="y must be of 12 rows"):
        check_rows_of(of_groups, call_of(of_groups, (jnp.zeros(3), Y[:3]), {}))
    check_rows_of(padded, call_of(padded, (Y[:7],), {}))
    check_rows_of(coded, call_of(coded, (Y[:3], jnp.zeros(12, int)), {}))
    check_rows_of(in_python, call_of(in_python, (Y[:7],), {}))
    with pytest.raises(ValueError, match="codes must be of 12 rows"):
        check_rows_of(coded, call_of(coded, (Y[:3],), {"codes": jnp.zeros(4, int)}))


def grouped(codes, x, y=None):
    with numpyro.plate("group", 3):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[::4])
    with numpyro.plate("data", len(x)):
        ngp.observe("y", f.at(codes, x), ngp.likelihoods.Gaussian(0.1), obs=y)


GOOD, BAD = jnp.array([0, 1, 2, 0]), jnp.array([0, 1, 3, -1])


@pytest.mark.long
def test_a_prediction_checks_the_values_of_every_call():
    """The second call runs the program of the first, in which JAX takes the last group for every number above."""
    posterior = ngp.Posterior.from_mcmc(grouped, {"f": jnp.ones((1, 3, 3)) * jnp.arange(1.0, 4.0)[None, :, None]})
    posterior.predict(KEY, GOOD, X[:4], rows=("codes", "x"))
    for codes, x in ((BAD, X[:4]), (GOOD, X[:4].at[2, 0].set(jnp.nan))):
        with pytest.raises(ValueError, match=r"member must be from 0 to 2|X must be finite"):
            posterior.predict(KEY, codes, x, rows=("codes", "x"))
    with pytest.raises(ValueError, match="member must be from 0 to 2"):
        list(posterior.predict(KEY, iter([(GOOD, X[:4]), (BAD, X[:4])])))


@pytest.mark.long
def test_a_stream_checks_the_values_of_every_batch():
    batches = [(GOOD, X[:4], Y[:4]), (BAD, X[:4], Y[:4])]
    with pytest.raises(ValueError, match="member must be from 0 to 2") as caught:
        ngp.fit(KEY, engine(grouped), 2, batches=batches, num_data=8, progress=False)
    assert "In batches[1]." in caught.value.__notes__
    assert len(caught.value.result.losses) == 1


def test_members_that_do_not_exist_are_nan_inside_of_a_program():
    value = {"f": jnp.ones((3, 3))}

    def density(codes):
        return numpyro.infer.util.log_density(grouped, (codes, X[:4], Y[:4]), {}, value)[0]

    assert np.isfinite(jax.jit(density)(GOOD))
    assert np.isnan(jax.jit(density)(BAD))


def test_minibatches_of_new_data_are_refused():
    posterior = ngp.Posterior.from_mcmc(sparse, {"f": jnp.ones((1, 4)), "noise": jnp.ones(1)})
    with pytest.raises(
        ValueError, match=r"but got 5 of 12 rows at random, in plate 'data'\. Pass None for .* as batch=None"
    ):
        posterior.predict(KEY, X, batch=5)
    assert posterior.predict(KEY, X, batch=12).mean.shape == (12,)


@pytest.mark.long
def test_targets_that_no_datum_can_be_have_no_density():
    """Label 7 would have probability one, and -1 that of no label at all."""

    def labels(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[::4])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=y)

    found = ngp.Posterior.from_mcmc(labels, {"f": jnp.ones((2, 3))}).predict(KEY, X)
    assert np.all(np.isfinite(found.log_density(jnp.ones(12))))
    for wrong in (-1, 7, 0.5):
        with pytest.raises(ValueError, match="must be labels 0 or 1"):
            found.log_density(jnp.full(12, wrong))


def test_rows_that_jnp_take_reads_are_of_the_plate_too():
    """It gives NaN where there is no row, and so none is missed; parts of the data would all read the first rows."""

    def reading(held=None):
        def taken(X, extra=held):
            with numpyro.plate("data", len(X)) as rows:
                numpyro.sample("y", dist.Normal(X[:, 0] + jnp.take(extra, rows), 1.0))

        return taken

    def seen(model, *args):
        call = call_of(model, args, {})
        return look(model, call), call

    found, call = seen(reading(), X, Y)
    assert (found.read, found.repeated) == ({1: 12}, {})
    assert rows_to_cut(found, call, None, (12,), 5) == (0, 12, {0: 0, 1: 0})
    with pytest.raises(ValueError, match="extra must be an array of batches, as plate 'data' reads it by its rows"):
        check_behind(found, call, ["extra"], "data", "batches")
    for (other, given), message in ((seen(reading(Y), X), "closes over an array of 12 rows"),):
        with pytest.raises(ValueError, match=message):
            rows_to_cut(other, given, None, (12,), 5)
    check_row_counts(*seen(reading(), X, Y[:7]))
