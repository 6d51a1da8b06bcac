"""Features of unit variance in NumPy: against a basis with the scales, and differences."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs import AdditiveBasis
from numpyro_gp.gam.model import features as own
from numpyro_gp.gam.model.hyperparameters import places_of_lengths
from numpyro_gp.programs.compiled import run_quickly
from tests.gam.known import kernel_of_term

RNG = np.random.default_rng(2)
ROWS = 61
DATA = {"x": RNG.uniform(size=ROWS), "z": RNG.normal(size=ROWS), "g": RNG.choice(["a", "b", "c"], ROWS)}
DATA |= {"k": RNG.integers(0, 5, ROWS), "y": np.sin(5 * DATA["x"]) + 0.3 * RNG.normal(size=ROWS)}
CASES = [
    ("y ~ s(x, num_inducing=5) + te(x, z, num_inducing=6) + re(g)", "empirical"),
    ("y ~ s(k) + s(x, by=g, num_inducing=4) + ti(x, z, num_inducing=6) + factor(g) + linear(z)", "empirical"),
    ("y ~ s(x, num_inducing=4) + s(x, by=g, num_inducing=4) + re(g, by=z) + s(z, cyclic=True)", "empirical"),
    ("y ~ s(x, cyclic=True, num_inducing=5) + te(x, z, num_inducing=6) + linear(z)", "uniform"),
    ("y ~ linear(z) + factor(g)", "gaussian"),
]


def at_random(model, X):
    """Lengthscales, scales and features there."""
    C, P = places_of_lengths(model).shape
    lengths, scales = RNG.uniform(0.3, 2.0, (C, P)), RNG.uniform(0.5, 2.0, C)
    return lengths, scales, *own.RowFeatures(model, X)(lengths)


@pytest.mark.long
@pytest.mark.parametrize(("formula", "measure"), CASES)
def test_scales_and_features_are_those_of_the_basis(formula, measure):
    """Features are linear in the standard deviation of their term: scaled ones equal those of the scaled kernels."""
    # So small a jitter hides that terms without a lengthscale have none here.
    model = dataclasses.replace(ngp.gam.model(formula, DATA, measure=measure), jitter=1e-8)
    X = model.rows.X
    lengths, scales, features, inverse = at_random(model, X)

    def dense(lengths, scales, X):
        kernels = {
            part.name: kernel_of_term(model, part, scales[c] ** 2, lengths[c, : len(part.term.columns)])
            for c, part in enumerate(model.layout.read_terms)
        }
        kernels["constant"] = ngp.kernels.Constant(scales[-1] ** 2)
        assert list(kernels) == [*(part.name for part in model.layout.read_terms), "constant"]
        basis = AdditiveBasis.build(kernels, model.inducing(X.dtype), model.jitter)
        return basis.features(X), basis.diagonals(X), basis.frame().inverse

    of_values, of_variances, of_inverse = run_quickly(dense, *map(jnp.asarray, (lengths, scales, X)))
    s = np.repeat(scales, model.sizes)
    np.testing.assert_allclose(s[:, None] * features.values, of_values, atol=1e-7)
    np.testing.assert_allclose(scales[:, None] ** 2 * features.variances, of_variances, atol=1e-10)
    # Of the factors themselves: with so small a jitter rounding decides the fourth digit of their inverses.
    np.testing.assert_allclose(*map(np.linalg.inv, (inverse / s, of_inverse)), atol=1e-7)


@pytest.mark.parametrize(("formula", "measure"), CASES)
def test_slopes_are_those_in_the_lengthscales(formula, measure):
    model, step = ngp.gam.model(formula, DATA, measure=measure), 1e-5
    X = model.rows.X
    lengths = at_random(model, X)[0]
    found = own.RowFeatures(model, X)(lengths)[0]
    for slot in range(lengths.shape[1]):
        move = np.zeros(lengths.shape)
        move[:, slot] = step
        more, less = (own.RowFeatures(model, X)(lengths + sign * move)[0] for sign in (1, -1))
        for values, slopes in (("values", "slopes"), ("variances", "variance_slopes")):
            wanted = (getattr(more, values) - getattr(less, values)) / (2 * step)
            np.testing.assert_allclose(getattr(found, slopes)[slot], wanted, atol=1e-5 * max(1, np.abs(wanted).max()))


def test_what_did_not_move_is_kept_and_what_did_is_not():
    """One lengthscale after the other, at the same places, gives what all of them give at new ones."""
    model = ngp.gam.model(CASES[0][0], DATA)
    lengths, _, _, _ = at_random(model, model.rows.X)
    places = own.RowFeatures(model, model.rows.X)
    places(lengths)
    for at in ((0, 0), (1, 1), (1, 0)):
        lengths[at] *= 1.3
        found = places(lengths)
        new = own.RowFeatures(model, model.rows.X)(lengths)
        for one, other in zip((*found[0], found[1]), (*new[0], new[1]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_chunks_are_the_whole():
    model = ngp.gam.model(CASES[1][0], DATA)
    lengths, _, whole, _ = at_random(model, model.rows.X)
    chunks = list(own.row_chunks(model, model.rows.X, 16))
    assert [rows.stop - rows.start for rows, _ in chunks] == [16, 16, 16, 13]
    parts = [places(lengths)[0] for _, places in chunks]
    for part, one in zip(own.Features(*(np.concatenate(leaves, -1) for leaves in zip(*parts))), whole, strict=True):
        np.testing.assert_allclose(part, one, atol=1e-12)


def test_an_interrupt_leaves_no_features_of_other_lengthscales():
    """And a matrix without a factor is one: LAPACK leaves what it has of it, and says so in a number."""
    model = ngp.gam.model("y ~ s(x, num_inducing=4) + s(z, num_inducing=4)", DATA)
    found, lengths = own.RowFeatures(model, model.rows.X[:5]), np.ones((3, 1))
    before = found(lengths)[0].values.copy()
    whole, indefinite = found.components[1], own.without_slopes(np.array([[1.0, 2.0], [2.0, 1.0]]), 0)
    none = own.KernelMatrices(indefinite, indefinite, own.without_slopes(np.ones(2), 0))
    found.components[1] = whole._replace(kernel=lambda _: none)
    with pytest.raises(np.linalg.LinAlgError):
        found(2 * lengths)
    found.components[1] = whole
    np.testing.assert_array_equal(found(lengths)[0].values, before)
