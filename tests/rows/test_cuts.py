"""Which arguments are cut into chunks: the whole and the chunks must be one prediction."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.rows.batches import row_axes

N = 6
X = np.linspace(0.0, 1.0, N)[:, None]
EXPOSURE = np.exp(np.linspace(0.0, 2.0, N))
KEY = jax.random.key(0)
DRAWS = {"f": jnp.asarray(np.linspace(-1.0, 1.0, N))[None] + jnp.array([[0.0], [0.3]])}


def indexed(X, extra=None, y=None, Z=X, table=None):
    """A plate that indexes its data, with an exposure for each datum, alone or inside a dictionary."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.4), Z)
    exposure = extra["exposure"][0] if isinstance(extra, dict) else extra
    with numpyro.plate("data", X.shape[0]) as idx:
        rate = f(X[idx])
        shift = jnp.log(exposure[idx]) if exposure is not None else 0.0
        shift = shift + (0.0 if table is None else table[jnp.round(X[:, 0]).astype(int)])
        ngp.observe("y", numpyro.distributions.Normal(rate.loc + shift, rate.scale), ngp.likelihoods.Poisson(), obs=y)


def direct(X, extra=None, y=None, Z=X):
    """The same without indices: on a part of the rows the model runs only if both are cut."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.4), Z)
    with numpyro.plate("data", X.shape[0]):
        rate = f(X)
        located = numpyro.distributions.Normal(rate.loc + jnp.log(extra), rate.scale)
        ngp.observe("y", located, ngp.likelihoods.Poisson(), obs=y)


def copied(X, extra):
    """A copy that is read by rows, as ``jnp.asarray`` of JAX 0.7 is."""
    indexed(X, jnp.array(extra))


BOTH = {"rows": ["X", "extra"]}
CALLS = {
    "indexed": (indexed, (X, EXPOSURE), {}, {}),
    "indexed, inducing inputs as long as the data": (indexed, (X, EXPOSURE), {"Z": X + 0.01}, BOTH),
    "a copy": (copied, (X, EXPOSURE), {}, {}),
    "in a dictionary": (indexed, (X, {"exposure": (EXPOSURE, "text")}), {}, {}),
    "direct": (direct, (X, EXPOSURE), {"Z": X + 0.01}, BOTH),
    "a table of as many entries as data": (indexed, (X, EXPOSURE), {"table": np.linspace(0.0, 1.0, N)}, BOTH),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_whole_is_chunked(name):
    """An exposure that is not cut gives every chunk the first rows: 1.6 in place of 6.4 at the last ones."""
    model, args, kwargs, rows = CALLS[name]
    posterior = ngp.Posterior.from_mcmc(model, DRAWS)
    whole = posterior.predict(KEY, *args, **kwargs)
    for size in (1, 4):
        part = posterior.predict(KEY, *args, chunk_size=size, **rows, **kwargs)
        np.testing.assert_allclose(part.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(part.variance, whole.variance, rtol=1e-12)
    assert float(whole.mean[-1] / whole.mean[0]) > 5


def test_what_is_not_clear_is_refused():
    message = (
        r"rows must be given where 6 rows are predicted 4 at a time .* but got \['extra'\], which no plate reads by "
        r"its rows\. Name all that have one row for each datum: rows=\['X', 'extra'\], or rows=\['X'\] if extra have none"
    )
    both = ngp.Posterior.from_mcmc(lambda X, extra: indexed(X, extra / extra.sum()), DRAWS)
    with pytest.raises(ValueError, match=message):
        both.predict(KEY, X, EXPOSURE, chunk_size=4)
    captured = ngp.Posterior.from_mcmc(lambda X: indexed(X, jnp.asarray(EXPOSURE)), DRAWS)
    with pytest.raises(ValueError, match=r"model must be given all arrays with rows as arguments.*closes over"):
        captured.predict(KEY, X, chunk_size=4)


@pytest.mark.parametrize(
    ("shapes", "batch", "expected"),
    [
        ([(10, 1), (10,), (4,)], (10,), (0, 10, {0: 0, 1: 0})),
        ([(3, 10, 1), (10,), (3,)], (3, 10), (1, 10, {0: 1, 1: 0})),
        ([(10, 1), (3, 10)], (3, 10), (1, 10, {0: 0, 1: 1})),
        ([(5, 10, 1), (1, 10, 1)], (2, 5, 10), (2, 10, {0: 1, 1: 1})),  # inputs of members of the inner plate alone
        ([(10, 7)], (10, 3), (0, 10, {0: 0})),  # outputs are on the right of the rows
    ],
)
def test_axis_of_the_rows(shapes, batch, expected):
    assert row_axes([np.zeros(shape) for shape in shapes], frozenset({0}), batch) == expected


# ------------------------------------------------------------ what chunks and streams would read wrongly


def offset_by_row(X, offset, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.4), np.linspace(0.0, 1.0, N)[:, None])
    with numpyro.plate("data", len(X)) as rows:
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=offset[rows])


@pytest.mark.long
def test_arrays_that_the_plate_reads_have_its_rows():
    """Three of six rows would be repeated; of eight, as of a training set, the first be read; a stream too."""
    posterior, offset = ngp.Posterior.from_mcmc(offset_by_row, DRAWS), np.arange(8.0) * 10
    whole = posterior.predict(KEY, X, offset[:6]).mean
    np.testing.assert_allclose(posterior.predict(KEY, X, offset[:6], chunk_size=4).mean, whole, rtol=1e-12)
    parts = posterior.predict(KEY, iter([(X[:4], offset[:4]), (X[4:], offset[4:6])]))
    np.testing.assert_allclose(np.concatenate([part.mean for part in parts]), whole, rtol=1e-12)
    few = "offset must be of 6 rows or more, as the plate that reads it, but got 3 rows"
    with pytest.raises(ValueError, match=few):
        posterior.predict(KEY, X, offset[:3])
    with pytest.raises(ValueError, match=few):
        posterior.functions(KEY, None, X, offset[:3])
    for size in (4, 8192):
        with pytest.raises(ValueError, match=r"offset must be of 6 rows, as the plate that reads it, but got 8 rows"):
            posterior.predict(KEY, X, offset, chunk_size=size)
    predictor = posterior.predictor(KEY, offset=offset[:6])
    np.testing.assert_allclose(predictor(X).mean, whole, rtol=1e-12)
    with pytest.raises(ValueError, match=r"offset must be of 2 rows, as the plate that reads it, but got 6 rows"):
        predictor(X[4:])
    np.testing.assert_allclose(posterior.predictor(KEY)(X=X[4:], offset=offset[4:6]).mean, whole[4:], rtol=1e-12)
    with pytest.raises(ValueError, match=r"all in their places or all named, but got \['offset'\] beside others"):
        posterior.predictor(KEY)(X[4:], offset=offset[4:6])
    beside = "offset must be an array of inputs of the stream, as plate 'data' reads it by its rows"
    with pytest.raises(ValueError, match=beside):
        next(posterior.predict(KEY, iter([X[:3], X[3:]]), offset=offset[:6]))


def process(X):
    return ngp.gp("f", ngp.kernels.RBF(1.0, 0.4), np.linspace(0.0, 1.0, N)[:, None])


def numbered(X, y=None):
    f = process(X)
    with numpyro.plate("data", len(X)) as rows:
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=10.0 * rows)


def centred(X, y=None):
    f = process(X)
    with numpyro.plate("data", len(X)) as rows:
        ngp.observe("y", f((X - X.mean(0, keepdims=True))[rows]), ngp.likelihoods.Gaussian(0.1), obs=y)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (numbered, "it computes with the numbers of the rows of plate 'data'"),
        (centred, "combines them, by 'reduce_sum'"),
    ],
)
def test_rows_that_depend_on_others_are_predicted_in_one_piece(model, reason):
    """In chunks rows would be numbered, and centred, anew in each."""
    posterior = ngp.Posterior.from_mcmc(model, DRAWS)
    whole = posterior.predict(KEY, X).mean
    with pytest.warns(UserWarning, match=rf"chunk_size=4 is not followed: the 6 rows .*{reason}"):
        part = posterior.predict(KEY, X, chunk_size=4).mean
    np.testing.assert_array_equal(part, whole)
    with pytest.raises(ValueError, match="the model of rows that come in parts must be one that"):
        next(posterior.predict(KEY, iter([X[:3], X[3:]])))
    if model is centred:
        predictor = posterior.predictor(KEY)
        np.testing.assert_allclose(predictor(X).mean, whole, rtol=1e-12)
        with pytest.raises(ValueError, match="treats each of them by itself"):
            predictor(X[:3])  # filled up to six
