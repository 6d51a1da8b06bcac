"""What must not depend on the order of rows, nor on their units: neighbours, and how often each row counts.

Designs are composed by a seed. ``NUMPYRO_GP_ROWS_COUNT=500 pytest -m "" tests/contracts/test_rows.py`` tries many.
"""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy.special import expit
from scipy.stats import multivariate_normal

import numpyro_gp as ngp
from numpyro_gp.neighbours.search import Tree
from numpyro_gp.rows.batches import Taken
from tests.precision import x64

COUNT = int(os.environ.get("NUMPYRO_GP_ROWS_COUNT", "0"))
FEW, SOME, MANY = COUNT // 50 or 1, COUNT // 10 or 3, COUNT or 12
DESIGNS = ("normal", "grid", "twins", "one place", "clusters", "line")
ORDERS = ("shuffled", "by target", "by group", "in turns")
UNITS = (0, 0, 0, -25, 20, 30)


class Design(NamedTuple):
    """Rows in single precision, how many neighbours, and the rows in another order."""

    X: np.ndarray
    y: np.ndarray
    count: int
    lengthscale: np.ndarray
    again: np.ndarray
    replicates: bool


def design(seed):
    rng = np.random.default_rng(seed)
    size, columns = int(rng.integers(2, 260)), int(rng.choice([1, 2, 3, 6, 7, 9, 12]))
    kind, order = DESIGNS[rng.integers(len(DESIGNS))], ORDERS[rng.integers(len(ORDERS))]
    X = rng.normal(size=(size, columns))
    if kind == "grid":
        X = rng.integers(0, 4, size=(size, columns)).astype(float)
    elif kind == "twins":
        X = X[rng.integers(0, max(1, size // int(rng.integers(2, 60))), size)]
    elif kind == "one place":
        X[rng.random(size) < 0.9] = X[0]
    elif kind == "clusters":
        X = 1e3 * rng.integers(0, 3, size=(size, 1)) + 10.0 ** rng.integers(-3, 1) * X
    elif kind == "line":
        X = X[:, :1] * np.ones(columns)
    units = 10.0 ** (rng.choice(UNITS) * (np.ones(columns) if rng.random() < 0.5 else rng.random(columns).round()))
    X = (X * units).astype(np.float32)
    y = (np.sin(3 * X[:, 0] / units[0]) + 0.1 * rng.normal(size=size)).astype(np.float32)
    group = np.argsort(y)[::-1] if kind == "normal" else np.lexsort(X.T)
    turns = np.argsort(np.arange(size) % 3, kind="stable")
    again = dict(zip(ORDERS, (rng.permutation(size), np.argsort(y), group, turns), strict=True))[order]
    count = int(min(size - 1, rng.choice([1, 3, 16, size - 1])))
    return Design(
        X, y, count, rng.uniform(0.5, 2, columns) * (units if rng.random() < 0.5 else 1), again, rng.random() < 0.5
    )


def apart(X, scale, own, index):
    """Squared distances in double precision, in units in which they are numbers; infinity where there is no row."""
    rows = X.astype(float) / np.asarray(scale, float)
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max())[1])
    return np.where(index >= 0, ((rows[index] - rows[own][:, None]) ** 2).sum(axis=-1), np.inf)


def check_nearest(X, scale, own, index, allowed):
    """Rows that may be neighbours, each once, with the distances of the nearest of them."""
    rows = np.asarray(index)
    wanted = np.where(allowed, apart(X, scale, own, np.tile(np.arange(len(X)), (len(own), 1))), np.inf)
    wanted = np.sort(wanted, axis=1)[:, : rows.shape[1]]
    wanted = np.pad(wanted, ((0, 0), (0, rows.shape[1] - wanted.shape[1])), constant_values=np.inf)
    # Rounding may change the places of two at nearly the same distance.
    np.testing.assert_allclose(np.sort(apart(X, scale, own, rows), axis=1), wanted, rtol=4e-6)
    for row, allows in zip(rows, allowed, strict=True):
        some = row[row >= 0]
        assert len(set(some.tolist())) == len(some)
        assert allows[some].all()


@pytest.mark.parametrize("seed", range(MANY))
def test_neighbours_are_those_of_all_distances_in_any_order_of_the_rows(seed):
    d = design(seed)
    size, rng = len(d.X), np.random.default_rng(seed)
    order = rng.permutation(size)
    place = np.argsort(order)
    is_other = np.any(d.X[:, None] != d.X[None], axis=-1) if not d.replicates else ~np.eye(size, dtype=bool)
    before = place[None] < place[:, None]
    with x64(False):
        options = {"lengthscale": d.lengthscale, "replicates": d.replicates, "others": True}
        near = ngp.neighbours(d.X, d.count, order=order, **options)
        again = ngp.neighbours(d.X[d.again], d.count, order=np.argsort(d.again)[order], **options)
        scale, own = np.asarray(near.lengthscale), np.arange(size)
        for found, back in ((near, own), (again, d.again)):
            rows = {name: np.asarray(getattr(found, name)) for name in ("index", "others")}
            rows = {name: np.where(array >= 0, back[array], -1) for name, array in rows.items()}
            check_nearest(d.X, scale, back, rows["index"], (is_other & before)[back])
            check_nearest(d.X, scale, back, rows["others"], is_other[back])
        some = rng.permutation(size)[: 1 + size // 3]
        new = near.find(d.X[some], d.count).index
        check_nearest(d.X, scale, some, new, np.ones((len(some), size), bool))
        raw = d.X.astype(float) / scale.astype(float)
        check_nearest(d.X, scale, some, Tree(raw).query(raw[some], d.count), np.ones((len(some), size), bool))
        check_nearest(d.X, scale, some, near.around(d.count, rows=some).index, ~np.eye(size, dtype=bool)[some])


# --- densities, fits and predictions: of one size, so that all seeds share their programs

SIZE, NEAREST = 40, 6


def kernel():
    return ngp.kernels.Matern52(1.3, jnp.asarray([0.7, 1.1], jnp.float32))


def regression(near, y=None):
    ngp.gp_regression("y", kernel(), near, 0.04, obs=y, jitter=0.0)


def counts(near, y=None, batch=None):
    with numpyro.plate("data", near.size, subsample_size=batch) as rows:
        f = ngp.gp("f", kernel(), near[rows])
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=None if y is None else y[rows])


def data(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(SIZE, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=SIZE)
    order = rng.permutation(SIZE)
    again = (rng.permutation(SIZE), np.argsort(y), np.argsort(X[:, 0]), np.argsort(np.arange(SIZE) % 4))[seed % 4]
    return X, y.astype(np.float32), order, again


def both(X, order, again, count, **options):
    """Neighbours of rows, and of the same rows in another order."""
    orders = order, np.argsort(again)[order]
    return [ngp.neighbours(rows, count, order=own, **options) for rows, own in zip((X, X[again]), orders, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SOME))
def test_regressions_by_neighbours_do_not_depend_on_the_order_of_the_rows(seed):
    """Density, predictions and leave-one-out; given all rows before each they are those of dense algebra."""
    X, y, order, again = data(seed)
    new = np.random.default_rng(seed).uniform(-2, 2, size=(7, 2)).astype(np.float32)
    with x64(False):
        found = []
        for count in (NEAREST, SIZE - 1):
            for near, own in zip(both(X, order, again, count), (y, y[again]), strict=True):
                density = log_density(regression, (near, own), {}, {})[0]
                posterior = ngp.Posterior.from_mcmc(regression, {"unused": jnp.zeros(1)})
                at = posterior.predict_at(jax.random.key(0), new, near, own, neighbours=count)
                left = posterior.to_arviz(jax.random.key(0), near, own, num_samples=1).log_likelihood["y"]
                found.append((density, at.mean, at.variance, np.asarray(left).ravel()))
    for first, (*second, left) in (found[:2], found[2:]):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4),
            first,
            (*second, left[np.argsort(again)]),
        )
    covariance = np.asarray(kernel().matrix(jnp.asarray(X, float))) + 0.04 * np.eye(SIZE)
    precision = np.linalg.inv(covariance)
    residual, variance = precision @ y / np.diag(precision), 1 / np.diag(precision)
    density, _, _, left = found[2]
    np.testing.assert_allclose(density, multivariate_normal(None, covariance).logpdf(y), rtol=2e-4)
    np.testing.assert_allclose(left, -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance)), atol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(FEW))
def test_fits_of_pseudo_data_do_not_depend_on_the_order_of_the_rows(seed):
    X, y, order, again = data(seed)
    y, new = np.round(np.exp(y)).astype(np.float32), np.linspace(-2, 2, 14, dtype=np.float32).reshape(7, 2)
    with x64(False):
        found = []
        for near, own in zip(both(X, order, again, NEAREST, others=True), (y, y[again]), strict=True):
            guide = ngp.AutoGP(counts)
            svi = SVI(counts, guide, ngp.optim.natural_gradient(optax.adam(0.01)), Trace_ELBO())
            fit = ngp.fit(jax.random.key(0), svi, 25, near, jnp.asarray(own), progress=False)
            posterior = ngp.Posterior.from_svi(counts, guide, fit.params)
            at = posterior.predict_at(jax.random.key(0), new, near, own, neighbours=16)
            left = posterior.to_arviz(jax.random.key(0), near, own, num_samples=1).log_likelihood["y"]
            found.append((fit.losses, at.mean, np.asarray(left).ravel()))
    first, (*second, left) = found
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), first, (*second, left[np.argsort(again)])
    )


def labels(near, y=None):
    with numpyro.plate("data", near.size) as rows:
        f = ngp.gp("f", ngp.kernels.RBF(4.0, 3.0), near[rows])
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Bernoulli(), obs=None if y is None else y[rows])


def dense_labels(ones, number):
    """Probabilities at places of ``number`` labels each, under the best normal posterior: natural steps in NumPy."""
    places = np.arange(len(ones))
    covariance = 4 * np.exp(-((places[:, None] - places) ** 2) / 18) + 4e-4 * np.eye(len(ones))
    nodes, weights = hermegauss(40)
    weights, linear, precision = weights / weights.sum(), np.zeros(len(ones)), np.full(len(ones), 0.2 * number)
    for _ in range(400):
        posterior = np.linalg.inv(np.linalg.inv(covariance) + np.diag(precision))
        mean = posterior @ linear
        p = expit(mean[:, None] + np.sqrt(np.diag(posterior))[:, None] * nodes)
        slope, curvature = ones - number * (p @ weights), number * ((p * (1 - p)) @ weights)
        precision = 0.5 * (precision + curvature)
        linear = 0.5 * (linear + slope + curvature * mean)
    return p @ weights


@pytest.mark.long
@pytest.mark.parametrize(("number", "replicates"), [(60, False), (100, True)])
def test_a_table_sorted_by_its_labels_has_the_fit_of_dense_algebra(number, replicates):
    """Ten places of many equal rows: by row numbers probabilities were off by 0.30 and 0.45, and are by 0.03."""
    ones = np.where(np.arange(10) < 5, number // 50, number // 2)
    X, y = np.repeat(np.arange(10.0), number)[:, None], (np.arange(number) < ones[:, None]).astype(float).ravel()
    near, guide = ngp.neighbours(X, 32, others=True, replicates=replicates), ngp.AutoGP(labels)
    svi = SVI(labels, guide, ngp.optim.natural_gradient(optax.adam(0.01)), Trace_ELBO())
    fit = ngp.fit(jax.random.key(0), svi, 60, near, jnp.asarray(y), progress=False)
    posterior = ngp.Posterior.from_svi(labels, guide, fit.params)
    at = posterior.predict_at(jax.random.key(1), np.arange(10.0)[:, None], near, y, neighbours=len(y))
    np.testing.assert_allclose(at.mean, dense_labels(ones, number), atol=0.04)


# --- how often each row counts


@pytest.mark.parametrize("seed", range(MANY))
def test_a_pass_of_batches_of_any_sizes_is_the_data(seed):
    """As a list from its first batch on; else as an iterator from its second pass on, if it has a short batch or none."""
    rng = np.random.default_rng(seed)
    first, number = int(rng.integers(1, 50)), int(rng.integers(1, 9))
    sizes = [first, *rng.integers(1, first + 1, size=number - 1).tolist()]
    sizes = sizes if seed % 2 else [*[first] * (number - 1), sizes[-1]]  # any; or a short one at the end
    listed, learnt = Taken([(np.zeros(size),) for size in sizes]), Taken(iter(()))
    for _ in range(3):
        for size in sizes:
            listed.add(size)
            learnt.add(size)
            rows, batches, of = (int(own) for own in listed.counts(0))
            assert rows == size
            assert batches * sum(sizes) == of * number  # each row counts as many times as a pass has batches
        last, batches, of = (int(own) for own in learnt.counts(0))
        if sizes[-1] < first or set(sizes) == {first}:
            assert batches * sum(sizes) == of * number
        assert last == sizes[-1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SOME))
def test_a_pass_of_minibatches_is_the_data(seed):
    """Of a plate that draws its rows, and of one of rows with neighbours."""
    X, y, order, _ = data(seed)
    batch = (4, 5, 8, 10)[seed % 4]
    near = ngp.neighbours(X, NEAREST, order=order)

    def plain():
        with numpyro.plate("data", SIZE, subsample_size=batch) as rows:
            numpyro.sample("y", dist.Normal(X[rows, 0], 1.0), obs=y[rows])

    def by_neighbours():
        with numpyro.plate("data", near.size, subsample_size=batch) as rows:
            ngp.gp_regression("y", kernel(), near[rows], 0.04, obs=y, jitter=0.0)

    parts = np.random.default_rng(seed).permutation(SIZE).reshape(-1, batch)
    wanted = float(log_density(regression, (near, y), {}, {})[0])
    for model, whole in ((plain, dist.Normal(X[:, 0], 1.0).log_prob(y).sum()), (by_neighbours, wanted)):
        some = [log_density(handlers.substitute(model, {"data": jnp.asarray(rows)}), (), {}, {})[0] for rows in parts]
        np.testing.assert_allclose(np.mean(some), whole, rtol=1e-5)
