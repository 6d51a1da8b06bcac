"""Kernels of a series: scales of its steps typed out, priors in its units, sums of their parts, and three engines that agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.starting.priors import scales_of

RNG = np.random.default_rng(0)
T = 1980 + 0.25 * np.arange(80)
WALK = np.cumsum(RNG.normal(size=80))
SEASON = 5 * np.cos(2 * np.pi * T)


def test_steps_are_those_without_their_season_and_rows_may_be_missing():
    found = scales_of(T, WALK)
    moves = np.diff(WALK)
    np.testing.assert_allclose([found.gap, found.count, found.sd], [0.25, 79, WALK.std()], rtol=1e-9)
    np.testing.assert_allclose(found.step, moves.std(), rtol=1e-5)
    np.testing.assert_allclose(
        found.rest, (WALK - np.polyval(np.polyfit(T - 1990, WALK, 1), T - 1990)).std(), rtol=1e-5
    )
    mixed = RNG.permutation(80)
    np.testing.assert_allclose(scales_of(T[mixed], WALK[mixed]), found, rtol=1e-9)
    # Of four quarters the season has three free means: steps less their mean by quarter.
    by_quarter = moves - np.array([moves[at::4].mean() for at in range(4)])[np.arange(79) % 4]
    with_season = scales_of(T, WALK + SEASON, (1.0,))
    np.testing.assert_allclose(with_season.step, by_quarter.std(), rtol=1e-3)
    assert scales_of(T, WALK + SEASON).step > 3 * with_season.step
    some = np.sort(RNG.permutation(80)[:55])  # the square of a step over two gaps counts half
    np.testing.assert_allclose(scales_of(T[some], WALK[some]).step, moves.std(), rtol=0.2)
    np.testing.assert_allclose(scales_of(T[some], WALK[some]).gap, 0.25)


def test_traced_rows_have_the_same_scales_in_single_precision():
    known = scales_of(T, WALK + SEASON, (1.0,))
    traced = jax.jit(lambda t, y: scales_of(t, y, (1.0,)))(
        jnp.asarray(T - 1990, jnp.float32), jnp.asarray(WALK + SEASON)
    )
    np.testing.assert_allclose(traced, known, rtol=2e-3)


def test_waves_of_days_since_1970_keep_their_phase_in_single_precision():
    t = np.arange(210.0)
    y = np.tile([0.0, 9.0, 2.0, 7.0, 1.0, 8.0, 3.0], 30) + RNG.normal(size=210)
    late = scales_of((t + 7e5).astype(np.float32), y.astype(np.float32), (7.0,))
    np.testing.assert_allclose(late, scales_of(t, y, (7.0,)), rtol=1e-3)


def opened(part, values, **options):
    """The kernel at values of its sites, and the medians of their priors."""
    with handlers.trace() as trace, handlers.substitute(data=values), handlers.seed(rng_seed=0):
        kernel = part("part", T[:, None], WALK + SEASON, **options)
    return kernel, {name: float(np.exp(site["fn"].loc)) for name, site in trace.items()}


def test_kernels_are_the_sums_that_they_say_and_priors_have_units():
    scales, t = scales_of(T, WALK + SEASON, (1.0,)), T - T.mean()
    kernel, medians = opened(ngp.starting.trend, {"part_level": 0.3, "part_slope": 0.02}, period=1.0)
    np.testing.assert_allclose(list(medians.values()), [0.1 * scales.step, 0.01 * scales.step], rtol=1e-6)
    steps = t / 0.25
    a, b = np.minimum(abs(steps)[:, None], abs(steps)), np.maximum(abs(steps)[:, None], abs(steps))
    beside = np.sign(steps)[:, None] == np.sign(steps)
    walk = beside * (0.3**2 * a + 0.02**2 * a**2 * (3 * b - a) / 6)
    line = 9 * scales.sd**2 + (4 * scales.sd / 79) ** 2 * np.outer(steps, steps)
    np.testing.assert_allclose(kernel.matrix(T[:, None]), line + walk, rtol=1e-7)

    kernel, medians = opened(ngp.starting.season, {"part_sd": 2.0, "part_wiggle": 0.8, "part_memory": 9.0}, period=1.0)
    np.testing.assert_allclose(list(medians.values()), [0.7 * scales.rest, 1.0, 30.0], rtol=1e-6)
    gaps = np.abs(T[:, None] - T)
    circle = np.exp(-2 * np.sin(np.pi * np.linspace(0, 1, 2001)[:-1]) ** 2 / 0.8**2).mean()
    round_ = np.exp(-2 * np.sin(np.pi * gaps) ** 2 / 0.8**2) - circle
    falls = (1 + np.sqrt(3) * gaps / 9) * np.exp(-np.sqrt(3) * gaps / 9)
    np.testing.assert_allclose(kernel.matrix(T[:, None]), 4 * round_ * falls, atol=1e-6)

    kernel, medians = opened(ngp.starting.cycle, {"part_sd": 2.0, "part_memory": 9.0, "part_period": 6.0}, period=1.0)
    np.testing.assert_allclose(list(medians.values()), [0.5 * scales.rest, 19.75 / 5, 19.75 / 15], rtol=1e-6)
    np.testing.assert_allclose(kernel.matrix(T[:, None]), 4 * falls * np.cos(2 * np.pi * gaps / 6), atol=1e-9)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: ngp.starting.trend("f", np.ones((5, 2)), np.ones(5)),
            r"X must be one column, the time.*X\[:, \[0\]\]",
        ),
        (lambda: ngp.starting.cycle("f", T[:, None], WALK[1:]), r"y must be of shape \(80,\), four rows or more"),
        (lambda: ngp.starting.season("f", T[:, None], WALK, period=-1.0), "period must be positive"),
        (lambda: ngp.starting.season("f", T[:, None], WALK, period="year"), "period must be a number, but got a str"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()
