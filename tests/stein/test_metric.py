"""Coordinates of a metric: what it is on normals in closed form, that it moves no particle, that it sees no units."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib import einstein

from numpyro_gp.stein import IMQ, SVGD, Curvature, Spread
from numpyro_gp.stein.metric import (
    Moving,
    average_curvature,
    inverse_root_of,
    root_of_absolute,
)

KEY = jax.random.key(5)
MEAN = np.array([0.5, -1.0, 2.0])
FACTOR = np.array([[2.0, 0.0, 0.0], [0.9, 0.5, 0.0], [0.05, -0.1, 0.15]])
COVARIANCE = FACTOR @ FACTOR.T
START = np.random.default_rng(0).normal(size=(6, 3))


def correlated(turn):
    """The normal above after ``x -> turn x``."""
    mean, covariance = jnp.asarray(turn @ MEAN), jnp.asarray(turn @ COVARIANCE @ turn.T)
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1).mask(False))
    difference = x - mean
    numpyro.factor("density", -0.5 * difference @ jnp.linalg.solve(covariance, difference))


def after(model, args, metric, start, steps=3, optimiser=None):
    options = dict(init_particles={"x": start}, evaluation="vmap")
    svgd = SVGD(model, optimiser or optax.sgd(0.3), IMQ(), len(start), metric=metric, **options)
    state = jax.tree.map(jnp.asarray, svgd.init(KEY, *args))
    traced = []

    @jax.jit
    def step(state):
        traced.append(state)
        return svgd.update(state, *args)

    for _ in range(steps):
        state, _ = step(state)
    assert len(traced) == 1, "measured again in the same program"
    return svgd, state


@pytest.mark.long
@pytest.mark.parametrize("kind", ["curvature", "spread"])
def test_a_linear_change_of_coordinates_changes_nothing(kind, rng):
    """Of the result, to rounding. Without a metric, or with scores or steps that are not turned, it is another."""
    turn = np.array([[1.0, 0.3, 0.0], [0.0, 5.0, 0.0], [-2.0, 0.0, 0.5]])
    draws = rng.normal(size=(40, 3)) @ FACTOR.T
    found = {}
    for name, by in (("plain", np.eye(3)), ("turned", turn)):
        metric = Curvature(every=2) if kind == "curvature" else Spread({"x": draws @ by.T})
        svgd, state = after(correlated, (by,), metric, START @ by.T)
        found[name] = np.asarray(svgd.particles(state)["x"])
    np.testing.assert_allclose(found["turned"], found["plain"] @ turn.T, rtol=1e-9, atol=1e-9)
    assert np.abs(found["plain"] - START).max() > 0.1


@pytest.mark.long
def test_of_a_normal_the_curvature_gives_its_covariance():
    svgd, state = after(correlated, (np.eye(3),), Curvature(), START, steps=1)
    root = np.asarray(state.optim_state.root)
    np.testing.assert_allclose(root @ root.T, COVARIANCE, rtol=1e-8)
    # A single step of the optimiser in these coordinates, typed out: x + root 0.3 phi(root^-1 x, root score).
    z, score = START @ np.linalg.inv(root).T, np.linalg.solve(COVARIANCE, (MEAN - START).T).T @ root
    squared = ((z[:, None] - z[None]) ** 2).sum(-1)
    h = np.median(squared[np.triu_indices(6, 1)]) / np.log(7)
    kernel = (1 + squared / h) ** -0.5
    push = (1 + squared / h) ** -1.5 / h
    phi = (kernel @ score + (push[..., None] * (z[:, None] - z[None])).sum(1)) / 6
    np.testing.assert_allclose(svgd.unconstrained(state)["x"], START + 0.3 * phi @ root.T, rtol=1e-8)


@pytest.mark.long
def test_without_steps_the_particles_stay_while_coordinates_change():
    """Every other step measures, of a target whose curvature differs from place to place; the optimiser stands still."""

    def bent():
        numpyro.sample("x", dist.StudentT(3.0, 0.0, 1.0).expand([2]).to_event(1))

    start = START[:, :2]
    svgd, state = after(bent, (), Curvature(every=2, memory=0.75), start, 1, optax.sgd(0.0))
    first = state.optim_state
    np.testing.assert_allclose(svgd.unconstrained(state)["x"], start, rtol=0, atol=1e-12)
    moved = state._replace(optim_state=first._replace(curvature=2 * first.curvature))
    kept = svgd.update(moved)[0].optim_state
    np.testing.assert_array_equal(kept.root, first.root)
    last = svgd.update(svgd.update(moved)[0])[0]
    # 0.75 of what was remembered, twice the first, and 0.25 of the first again.
    np.testing.assert_allclose(last.optim_state.curvature, 1.75 * first.curvature, rtol=1e-10)
    np.testing.assert_allclose(last.optim_state.root, inverse_root_of(1.75 * first.curvature), rtol=1e-10)
    np.testing.assert_allclose(svgd.unconstrained(last)["x"], start, rtol=0, atol=1e-12)


@pytest.mark.long
def test_minibatches_and_what_is_shared_and_single_precision():
    """Curvature of a mean: 1 of its prior and 8 of eight data, on any two of them; a shared parameter has none."""

    def model(y, batch):
        one = jnp.float32(1.0)
        shift = numpyro.param("shift", one)
        x = numpyro.sample("x", dist.Normal(0 * one, one).expand([2]).to_event(1))
        with numpyro.plate("data", len(y), subsample_size=batch) as index:
            numpyro.sample("y", dist.Normal(x[0] + shift, one), obs=y[index])

    start = START.astype(np.float32)[:, :2]
    svgd, state = after(model, (jnp.arange(8, dtype=jnp.float32), 2), Curvature(), start, 1, optax.adam(0.1))
    curvature = state.optim_state.curvature
    assert curvature.dtype == state.optim_state.root.dtype == jnp.float32
    assert {leaf.dtype for leaf in svgd.particles(state).values()} == {jnp.dtype("float32")}
    np.testing.assert_allclose(curvature, np.diag([9.0, 1.0]), rtol=1e-5, atol=1e-5)
    assert np.abs(float(svgd.shared(state)["shift"]) - 1.0) > 0.05


def test_curvature_in_unconstrained_coordinates_counts_by_its_size():
    """``4 u - exp(u)``, a Gamma's, has the rate; ``u^2 / 2 - u^4 / 4`` has ``3 u^2 - 1``, which is negative near 0."""
    rate, _, _ = average_curvature(
        lambda one: 4 * one["u"] - jnp.exp(one["u"]), {"u": jnp.log(jnp.asarray([1.0, 3.0]))}
    )
    np.testing.assert_allclose(rate, [[2.0]], rtol=1e-12)
    well, _, _ = average_curvature(lambda one: one["u"] ** 2 / 2 - one["u"] ** 4 / 4, {"u": jnp.asarray([0.0, 1.0])})
    np.testing.assert_allclose(well, [[1.5]], rtol=1e-12)
    root = root_of_absolute(jnp.asarray([[2.0, 3.0], [3.0, 2.0]]))  # eigenvalues 5 and -1
    np.testing.assert_allclose(root @ root.T, [[3.0, 2.0], [2.0, 3.0]], rtol=1e-12)
    flat = inverse_root_of(jnp.diag(jnp.asarray([4.0, 0.0])))
    np.testing.assert_allclose(flat, np.diag([0.5, np.finfo(float).eps ** (-1 / 3)]), rtol=1e-9)


def test_coordinates_of_other_units_keep_their_widths_in_single_precision(rng):
    """An intercept of thousands beside a logarithm: its width, or that of the other, was taken for rounding."""
    half, units = rng.normal(size=(4, 4)), np.array([3000.0, 0.1, 20.0, 1.0])
    matrix = units[:, None] * (half @ half.T) * units[None]
    root, inverse = (
        np.asarray(of(jnp.asarray(matrix, jnp.float32)), float) for of in (root_of_absolute, inverse_root_of)
    )
    np.testing.assert_allclose(root @ root.T, matrix, rtol=1e-4)
    np.testing.assert_allclose(root.T @ inverse, np.eye(4), atol=1e-4)


@pytest.mark.long
def test_a_bad_particle_reaches_neither_curvature_nor_others():
    def guarded():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("wall", jnp.log(2.0 - x) - x**2)

    start = jnp.asarray([0.0, -1.0, 9.0, 0.5])
    keep = np.array([0, 1, 3])
    svgd, state = after(guarded, (), Curvature(), start)
    other, without = after(guarded, (), Curvature(), start[keep])
    np.testing.assert_allclose(svgd.particles(state)["x"][keep], other.particles(without)["x"], rtol=1e-9)
    assert svgd.faults(state) == [(2, "x")]
    svgd, state = after(guarded, (), Curvature(), jnp.asarray([9.0]))  # there is no curvature at all
    np.testing.assert_array_equal(svgd.particles(state)["x"], [9.0])
    np.testing.assert_array_equal(state.optim_state.root, [[1.0]])


@pytest.mark.long
def test_spread_of_constrained_draws_is_taken_where_particles_move(rng):
    draws = {"rate": np.exp(3 * rng.normal(size=200)), "w": rng.normal(size=(200, 2))}

    def model():
        numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("rate", dist.Weibull(4.0, 2.0))

    svgd = SVGD(model, optax.sgd(0.1), IMQ(), 3, metric=Spread(draws), evaluation="vmap")
    root = np.asarray(svgd.init(KEY).optim_state.root)
    expected = np.cov(np.column_stack([np.log(draws["rate"]), draws["w"]]).T, bias=True)
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.long
def test_messages():
    def init(draws):
        SVGD(correlated, optax.sgd(0.1), IMQ(), 3, metric=Spread(draws)).init(KEY, np.eye(3))

    for call, message in (
        (lambda: SVGD(correlated, optax.sgd(0.1), IMQ(), metric=Curvature), "metric must be Curvature, Spread or None"),
        (
            lambda: SVGD(correlated, optax.sgd(0.1), einstein.RBFKernel()),
            "kernel_fn must be a kernel of ngp.stein, but got .* in place of NumPyro's kernels too",
        ),
        (lambda: Curvature(every=0), "every must be at least 1"),
        (lambda: Curvature(memory=1), "memory must be a number from 0 to below 1, but got 1"),
        (lambda: init({"x": np.ones((9, 3)), "none": np.ones(9)}), r"draws\['x'\] must be different .*AutoNormal"),
        (lambda: init({"y": START}), r"draws must be draws of the latent sites \['x'\], but got \['y'\]"),
        (lambda: init({"x": START[:, :2]}), r"draws\['x'\] must be of shape \(S, \*\(3,\)\), but got \(6, 2\)"),
        (lambda: init({"x": START[:3]}), "draws must be more than the 3 coordinates, but got 3 of them"),
        (lambda: init({"x": np.where(START > 0, np.nan, START)}), r"draws\['x'\], unconstrained, must be finite"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_draws_are_scaled_by_their_own_covariance():
    """In closed form; equal coordinates of one draw are no lack of a width."""
    draws, here = np.random.default_rng(1).normal(size=(9, 2)), {"x": jnp.zeros((4, 2))}
    transforms = {"x": ("x", dist.transforms.IdentityTransform())}
    found = Spread({"x": draws}).covariance(here, transforms)
    np.testing.assert_allclose(found, np.cov(draws.T, ddof=0), rtol=1e-12)
    draws[0, 1] = draws[0, 0]
    Spread({"x": draws}).covariance(here, transforms)


def test_particles_are_the_origin_and_the_turned_coordinates():
    """``x = origin + root z``, and a step counts as one."""
    z, origin, root = START[:, :2], np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.0, 1.0]])
    inner = SimpleNamespace(get_params=lambda state: state, update=lambda gradients, state, value: gradients)
    moving = Moving(inner, Curvature())
    state = moving.start({"x": jnp.asarray(z)}, {"x": ("x", None)})
    state = state._replace(origin={"x": jnp.asarray(np.tile(origin, (6, 1)))}, root=jnp.asarray(root))
    np.testing.assert_allclose(moving.get_params(state)["x"], origin + z @ root.T, rtol=1e-12)
    turned = moving.turned(state, jnp.eye(2))
    np.testing.assert_allclose(moving.get_params(turned)["x"], origin + z @ root.T, rtol=1e-12)
    assert int(moving.update({"x": z}, state).step) == 1
