"""Kernels of terms against dense formulas in NumPy: `te`, `by`, zero means over the rows, ends of a period."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from tests.gam.known import kernel_of_term

N = 12
RNG = np.random.default_rng(0)
DATA = {"x": RNG.lognormal(size=N), "z": RNG.normal(size=N), "h": RNG.permutation(24)[:N], "y": RNG.normal(size=N)}
DATA["g"] = np.array(list("abcabcabcaab"))
TEXT = "y ~ s(x) + s(h, cyclic=(0, 24)) + te(x, z) + ti(x, z) + s(z, by=g) + s(x, by=g) + re(g) + re(g, by=z)"
LENGTHS = {"s(x)": (0.7,), "s(h)": (0.8,), "te(x, z)": (0.7, 1.3), "ti(x, z)": (0.7, 1.3)}


@functools.cache
def built():
    """The model, and Gram matrices of all terms at the rows with a variance of 1.7."""
    model = ngp.gam.model(TEXT + " + linear(z) + factor(g)", DATA)
    parts = model.layout.read_terms
    lengths = {part.name: LENGTHS.get(part.name, (0.7,)) for part in parts}

    @jax.jit
    def found(X):
        values = {p.name: [jnp.asarray(one) for one in lengths[p.name]] for p in parts}
        kernels = {p.name: kernel_of_term(model, p, jnp.asarray(1.7), values[p.name]) for p in parts}
        return {name: kernel.matrix(X) for name, kernel in kernels.items()}

    return model, found(model.arguments[0])


def matern52(x, lengthscale):
    r = np.sqrt(5) * np.abs(x[:, None] - x[None, :]) / lengthscale
    return (1 + r + r**2 / 3) * np.exp(-r)


def zero_mean(K):
    """The kernel of functions that average to zero over the rows, each of the same weight."""
    mean = K.mean(axis=1)
    return K - np.outer(mean, mean) / mean.mean()


def standard(x):
    return (x - x.mean()) / x.std()


def test_terms_equal_their_dense_kernels():
    _, found = built()
    x, z, angle = standard(DATA["x"]), standard(DATA["z"]), 2 * np.pi * DATA["h"] / 24
    A, B = zero_mean(matern52(x, 0.7)), zero_mean(matern52(z, 1.3))
    same = (DATA["g"][:, None] == DATA["g"][None, :]).astype(float)
    counts = np.array([(DATA["g"] == level).mean() for level in "abc"])
    own = counts[np.searchsorted(list("abc"), DATA["g"])]
    levels = same - np.outer(own, own) / np.sum(counts**2)
    dense = {
        "s(x)": A,
        "s(h)": zero_mean(np.exp(-2 * np.sin((angle[:, None] - angle[None, :]) / 2) ** 2 / 0.8**2)),
        "te(x, z)": (1 + A) * (1 + B) - 1,
        "ti(x, z)": A * B,
        "s(z, by=g)": zero_mean(matern52(z, 0.7)) * same,
        "s(x, by=g)": A * levels,  # beside s(x): differences between the levels
        "re(g)": same,
        "re(g, by=z)": same * np.outer(z, z),
        "linear(z)": np.outer(z, z),
        "factor(g)": levels,
    }
    for name, K in dense.items():
        np.testing.assert_allclose(found[name], 1.7 * K, rtol=0, atol=1e-11, err_msg=name)


def test_inducing_inputs_determine_their_terms_and_no_more():
    """Levels of a function that averages to zero are one fewer; curves have all but one value, and fill gaps."""
    model, found = built()
    sizes = {name: len(points) for name, points in model.kernel_data.inducing.items()}
    assert sizes["s(x)"] == 24
    values = np.unique(model.rows.X[:, 0])
    assert np.isin(values, model.kernel_data.inducing["s(x)"][:, 0]).sum() == len(values) - 1 == N - 1
    assert len(np.unique(model.kernel_data.inducing["s(x)"][:, 0])) == 24
    assert (sizes["factor(g)"], sizes["re(g)"], sizes["linear(z)"]) == (2, 3, 1)
    assert sizes["s(z, by=g)"] == 3 * 24
    assert sizes["s(x, by=g)"] == 2 * 24
    for name, matrix in found.items():
        assert np.linalg.matrix_rank(np.asarray(matrix), tol=1e-10) <= sizes[name], name


@pytest.mark.parametrize("measure", ["uniform", "gaussian"])
def test_other_measures_on_request(measure):
    """A line is centred at the middle of the range, or at the mean."""
    kernel = "RBF" if measure == "gaussian" else "Matern52"
    model = ngp.gam.model(f"y ~ linear(x) + s(x, kernel={kernel})", DATA, measure=measure)
    X = model.rows.X
    kernel = kernel_of_term(model, model.layout.read_terms[0], jnp.ones(()), [])
    centre = 0.5 * (X.min() + X.max()) if measure == "uniform" else X.mean()
    np.testing.assert_allclose(kernel.diagonal(X), (X[:, 0] - centre) ** 2, atol=1e-12)


def test_how_many_inducing_inputs_terms_have():
    """Surfaces of many rows have centres, and curves a line; fewer where curves are many, or their levels."""
    rng = np.random.default_rng(0)
    inducing = lambda text, data: ngp.gam.model(text, data).kernel_data.inducing  # noqa: E731
    sizes = lambda text, data: [len(points) for points in inducing(text, data).values()]  # noqa: E731
    data = {name: rng.normal(size=300) for name in "abcy"}
    found = inducing("y ~ te(a, b, c) + te(a, b) + s(a) + s(b, num_inducing=5)", data)
    assert [len(points) for points in found.values()] == [100, 100, 24, 5]
    assert sizes("y ~ te(a, b)", data) == [200]
    assert sizes("y ~ te(a, b)", {name: values[:150] for name, values in data.items()}) == [150]
    assert sizes("y ~ te(a, b) + ti(a, c) + ti(b, c) + ti(a, b, c)", data) == [60, 60, 60, 90]
    assert sizes("y ~ te(a, b) + te(b, c, num_inducing=30)", data) == [200, 30]
    curves = " + ".join(f"s({name}, by=g)" for name in "abc")  # 24 of each of two levels: of 600 there is less left
    assert sizes(f"y ~ te(a, b) + {curves} + re(k)", data | {"g": np.arange(300) % 4, "k": np.arange(300)})[0] == 60
    # Of many rows a step costs what one of 11 000 rows with 60 does; weights are as rows.
    many = {name: rng.normal(size=4000) for name in "aby"}
    assert sizes("y ~ te(a, b)", many) == [100]
    assert sizes("y ~ te(a, b)", {name: np.tile(values, 4) for name, values in many.items()}) == [60]
    heavy = ngp.gam.model("y ~ te(a, b)", many, weights=np.full(4000, 4))
    assert heavy.sizes == [60, 1]
    assert np.isfinite(np.concatenate(list(found.values()))).all()
    data = {f"x{at}": rng.normal(size=60) for at in range(17)} | {"y": rng.normal(size=60), "g": np.arange(60) % 2}
    for count, size in ((16, 24), (17, 16)):
        text = "y ~ s(x0, by=g) + " + " + ".join(f"s(x{at})" for at in range(count))
        assert sizes(text, data) == [size, *[size] * count]
    for levels, size in ((4, 24), (5, 10)):
        assert sizes("y ~ s(x0, by=g)", data | {"g": np.arange(60) % levels}) == [size * levels]
    # Of a cluster far narrower than any lengthscale beside one far value: no value twice, no NaN.
    x = np.append(1e-9 * np.arange(60.0), 1.0)
    points = inducing("y ~ s(x)", {"x": x, "y": x})["s(x)"][:, 0]
    assert len(np.unique(points)) == 24
    assert np.isfinite(points).all()


def test_inducing_inputs_are_those_of_values_and_weights():
    """In whatever order rows come, and whether one of weight three is written as one row or as three.

    Mirrored values tie, and 7000 pairs are more than k-means looks at.
    """
    rng = np.random.default_rng(0)
    some = np.linspace(-1, 1, 100)
    table = {"a": rng.choice(some, 7000), "b": rng.normal(size=7000).round(3), "g": rng.choice(list("uvw"), 7000)}
    table |= {"y": rng.normal(size=7000), "n": rng.permutation(np.arange(7000) % 6)}
    table["a"] = np.concatenate([some, table["a"][100:]])
    formula = "y ~ s(a) + s(a, by=g) + s(b) + te(a, b) + factor(g) + s(n)"
    weights = rng.integers(1, 4, 7000).astype(float)
    weights[table["n"] == 3] *= 2
    rows = rng.permutation(np.repeat(np.arange(7000), weights.astype(int)))
    once = ngp.gam.model(formula, table, weights=weights).kernel_data.inducing
    copies = ngp.gam.model(formula, {name: column[rows] for name, column in table.items()}).kernel_data.inducing
    for name, points in once.items():
        np.testing.assert_allclose(points, copies[name], rtol=1e-7, atol=1e-9, err_msg=name)
    unweighted = ngp.gam.model(formula, table).kernel_data.inducing
    assert any(not np.array_equal(once[name], unweighted[name]) for name in ("s(b)", "s(n)"))


def test_gaps_that_are_equal_tie_whatever_the_rounding():
    """Six values of a column: what lies between them is rounded otherwise where rows are weighted, far from zero most."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n, y, weights = 2000 + rng.permutation(np.arange(70) % 6), rng.normal(size=70), rng.integers(1, 4, 70)
        rows = rng.permutation(np.repeat(np.arange(70), weights))
        once = ngp.gam.model("y ~ s(n)", {"n": n, "y": y}, weights=weights.astype(float)).kernel_data.inducing
        copies = ngp.gam.model("y ~ s(n)", {"n": n[rows], "y": y[rows]}).kernel_data.inducing
        np.testing.assert_allclose(once["s(n)"], copies["s(n)"], rtol=1e-9, atol=1e-9)


def left_open(x, z, lengthscale):
    """Shares of the variance of a Matern curve at ``x`` that its values at ``z`` leave open, by NumPy."""
    K = matern52(np.concatenate([x, z]), lengthscale)
    cross, inner = K[: len(x), len(x) :], K[len(x) :, len(x) :]
    return 1 - np.sum(cross * np.linalg.solve(inner + 1e-12 * np.eye(len(z)), cross.T).T, axis=1)


def test_inducing_inputs_of_a_curve_leave_little_open():
    """Of a skewed column with counts: less than 2 % everywhere, where an even grid with quantiles leaves a third."""
    x = np.concatenate([np.random.default_rng(0).gamma(2.0, size=300), np.repeat(1.0, 100)])
    model = ngp.gam.model("y ~ s(x)", {"x": x, "y": x})
    many = ngp.gam.model("y ~ s(x, num_inducing=1005)", dict.fromkeys("xy", np.arange(1010.0)))
    assert len(np.unique(many.kernel_data.inducing["s(x)"])) >= 1005  # a thousand were looked at, and some taken again
    x, z = standard(x), model.kernel_data.inducing["s(x)"][:, 0]
    assert left_open(x, z, 0.5).max() < 0.02
    at = np.linspace(0, 1, 24)
    assert left_open(x, 0.5 * (np.quantile(x, at) + x.min() + at * np.ptp(x)), 0.5).max() > 0.3


def test_weights_are_repeated_rows_of_a_normal_measure():
    """An offset is a column as it is, of any mean and deviation; a measure of its rows alone has others."""
    times = np.where(np.arange(N) % 3, 1, 2)
    terms = "y ~ s(x, kernel=RBF) + offset(z)"
    one = ngp.gam.model(terms, DATA, weights=times, measure="gaussian").kernel_data.measures
    rows = {name: np.repeat(column, times) for name, column in DATA.items()}
    other = ngp.gam.model(terms, rows, measure="gaussian").kernel_data.measures
    for first, second in zip(one, other, strict=True):
        np.testing.assert_allclose([first.mean, first.sd], [second.mean, second.sd], atol=1e-12)


HOURS = 3600.0 * np.arange(48)
# Seconds, the first of which is 1e-8 lower once it was encoded.
LONG = 0.7 + np.random.default_rng(0).uniform(0, 1e9, 48) * (np.arange(48) > 0)


@pytest.mark.parametrize(
    ("column", "step"),
    [
        (1.7e9 + HOURS, 3600),  # seconds since 1970, one row an hour
        (10 * (np.arange(48.0) % 36), 10),  # degrees
        (1 + 3 * (np.arange(48.0) % 4), 3),  # the first months of quarters
        (1.7e9 + HOURS + 0.25, 0),
        (20000 + np.arange(48.0), 1),  # days since 1970
        (20000 + np.arange(48.0) + 1e-5, 0),  # a second after each midnight
        (np.linspace(0.0, 1e-9, 48), 0),  # small, not whole
        (LONG, 0),
    ],
)
def test_a_column_holds_its_own_ends_and_whole_numbers_have_one_step_more(column, step):
    model = ngp.gam.model("y ~ s(t, cyclic=True)", {"t": column, "y": np.arange(48.0)})
    low, high = np.array(model.kernel_data.periods["s(t)"]) * model.layout.columns[0].scale
    np.testing.assert_allclose(high - low, np.ptp(column) + step, rtol=1e-6)


def test_ends_hold_numbers_in_single_precision_and_no_more():
    x = np.linspace(0.0, 0.1, 30).astype(np.float32)
    assert float(x[-1]) > 0.1
    ngp.gam.model("y ~ s(x, cyclic=(0, 0.1))", {"x": x, "y": np.arange(30.0)})
    with pytest.raises(ValueError, match=r"cyclic of s\(x\) must be the ends of the column"):
        ngp.gam.model("y ~ s(x, cyclic=(0, 1e-9))", {"x": 1.5e-9 * np.arange(30.0) / 29, "y": np.arange(30.0)})
