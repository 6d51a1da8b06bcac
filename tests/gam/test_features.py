"""Features of unit variance in chunks of a few sizes: against a basis with the scales, and differences."""

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs import AdditiveBasis
from numpyro_gp.gam import features as own
from numpyro_gp.gam.hyperparameters import names_of
from numpyro_gp.programs import keep

RNG = np.random.default_rng(2)
ROWS = 61
DATA = {"x": RNG.uniform(size=ROWS), "z": RNG.normal(size=ROWS), "g": RNG.choice(["a", "b"], ROWS)}
DATA["y"] = np.sin(5 * DATA["x"]) + 0.3 * RNG.normal(size=ROWS)
FORMULA = "y ~ s(x, num_inducing=5) + te(x, z, num_inducing=6) + re(g)"


@pytest.fixture(scope="module")
def programs():
    return own.Programs(ngp.gam.model(FORMULA, DATA))


def seen_at(programs, free, X):
    parts = [seen for _, seen in programs.seen(free, X)]
    return parts[0], own.Features(*(np.concatenate(leaves, -1) for leaves in zip(*[one.features for one in parts])))


def test_scales_and_features_are_those_of_the_basis(programs):
    """Features are linear in the standard deviation of their term: scaled ones equal those of the scaled kernels."""
    model, free = programs.model, RNG.normal(size=programs.sites.size)
    X = np.asarray(model.arguments[0])
    seen, features = seen_at(programs, free, X)
    scales, lengths = seen.opened.scales, seen.opened.lengths
    kernels = {
        part.name: model.ground.kernel(
            part, jnp.asarray(scales[c] ** 2), jnp.asarray(lengths[c, : len(part.term.columns)])
        )
        for c, part in enumerate(model.layout.parts)
    }
    kernels["constant"] = ngp.kernels.Constant(scales[-1] ** 2)
    assert list(kernels) == names_of(model)
    basis = AdditiveBasis.build(kernels, model.inducing(X.dtype), None)
    np.testing.assert_array_equal(basis.sizes, programs.sizes)
    s = np.repeat(scales, programs.sizes)
    np.testing.assert_allclose(s[:, None] * features.values, basis.features(jnp.asarray(X)), atol=1e-8)
    np.testing.assert_allclose(scales[:, None] ** 2 * features.variances, basis.diagonals(jnp.asarray(X)), atol=1e-10)
    np.testing.assert_allclose(seen.inverse / s, basis.frame().inverse, rtol=1e-6, atol=1e-5)


def test_slopes_are_those_in_the_lengthscales(programs):
    free, step = 0.1 * RNG.normal(size=programs.sites.size), 1e-5
    X = np.asarray(programs.model.arguments[0])
    features = seen_at(programs, free, X)[1]
    assert list(programs.sites.shapes) == ["f_lengthscale", "f_scale", "noise"]
    for at, slot in ((0, 0), (1, 0), (2, 1)):  # of the curve, and the two of the surface
        move = step * np.eye(len(free))[at]
        more, less = (seen_at(programs, free + sign * move, X)[1] for sign in (1, -1))
        rows = slice(0, 5) if at == 0 else slice(5, 11)
        length = np.exp(free[at])
        found = (more.values - less.values)[rows] / (2 * step) / length
        np.testing.assert_allclose(features.slopes[slot, rows], found, atol=1e-4 * np.abs(found).max())
        part = 0 if at == 0 else 1
        found = (more.variances - less.variances)[part] / (2 * step) / length
        np.testing.assert_allclose(features.variance_slopes[slot, part], found, atol=1e-6)


def test_chunks_are_the_whole(programs, monkeypatch):
    free, X = np.zeros(programs.sites.size), np.asarray(programs.model.arguments[0])
    whole = seen_at(programs, free, X)[1]
    monkeypatch.setattr(own, "CHUNK", 16)
    assert [rows.stop - rows.start for rows, _ in programs.seen(free, X)] == [16, 16, 16, 13]
    for part, one in zip(seen_at(programs, free, X)[1], whole, strict=True):
        np.testing.assert_allclose(part, one, atol=1e-12)


def test_few_sizes_hold_all_numbers_of_rows():
    sizes = [own.size_near(rows) for rows in range(1, 3000)]
    assert all(size >= rows and size <= max(1.25 * rows, rows + 1) for rows, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 50
    assert own.size_near(1000) == own.size_near(963) == 1024


def test_data_of_another_length_compile_nothing(programs):
    """The rows that fill up a chunk are cut off again, and the program of 64 rows is found."""
    free = np.zeros(programs.sites.size)
    list(programs.seen(free, np.asarray(programs.model.arguments[0])))
    before = list(keep._programs)
    other = own.Programs(ngp.gam.model(FORMULA, {name: values[:58] for name, values in DATA.items()}))
    X = np.asarray(other.model.arguments[0])
    ((rows, seen),) = other.seen(free, X)
    assert rows == slice(0, 58)
    assert seen.features.values.shape == (12 + 2, 58)
    assert set(keep._programs) == set(before)


def test_the_expected_density_has_its_slopes():
    """Rows that fill up have no weight: the sum is that of a Poisson's closed form, ``y m - exp(m + v / 2) - log y!``."""
    counts = RNG.poisson(2.0, ROWS)
    programs = own.Programs(ngp.gam.model("n ~ linear(x)", {**DATA, "n": counts}, "poisson"))
    mean, variance, weights = RNG.normal(size=ROWS), RNG.uniform(0.1, 1, ROWS), RNG.uniform(0.5, 2, ROWS)
    free = np.zeros(programs.sites.size)
    value, of_free, of_mean, of_variance = programs.expected(free, counts.astype(float), mean, variance, weights)
    rate = np.exp(mean + variance / 2)
    factorials = np.array([sum(np.log(np.arange(1, n + 1))) for n in counts])
    np.testing.assert_allclose(value, np.sum(weights * (counts * mean - rate - factorials)))
    np.testing.assert_allclose(of_mean, weights * (counts - rate))
    np.testing.assert_allclose(of_variance, -0.5 * weights * rate)
    np.testing.assert_array_equal(of_free, 0)
