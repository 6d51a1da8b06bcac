"""Directions of SVGD against the oracle, loops in NumPy, and what the mathematics says of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import stein
from numpyro_gp.stein import IMQ, RBF, Groups, Moments, PerSite
from numpyro_gp.stein.direction import bandwidth
from tests.oracles.vectors import cases

CASES = cases("svgd")
svgd_direction, forces = jax.jit(stein.svgd_direction), jax.jit(stein.forces)  # eager, each operation compiles alone
PAIRS = [case for case in CASES if len(case["x"]) > 1]


@pytest.mark.parametrize("case", CASES)
def test_direction_of_the_oracle(case):
    phi = svgd_direction(case["x"], case["score"], RBF(case["h"]))
    np.testing.assert_allclose(phi, case["phi"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(case["x"] + case["step"] * phi, case["x_next"], rtol=0, atol=1e-12)
    imq = svgd_direction(case["x"], case["score"], IMQ(case["imq_c"], case["imq_power"], case["h"]))
    np.testing.assert_allclose(imq, case["phi_imq"], rtol=0, atol=1e-12)


def test_median_rule_of_three_particles():
    squared = jnp.array([[0.0, 1.0, 4.0], [1.0, 0.0, 9.0], [4.0, 9.0, 0.0]])
    np.testing.assert_allclose(bandwidth(RBF(), squared), 4 / np.log(4), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("case", PAIRS)
def test_median_rule_of_the_oracle(case):
    x = jnp.asarray(case["x"])
    squared = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    np.testing.assert_allclose(bandwidth(RBF(), squared), case["median_h"], rtol=1e-12)
    phi = svgd_direction(x, case["score"])
    np.testing.assert_allclose(phi, case["phi_median"], rtol=0, atol=1e-12)
    # The rivals of mathematics.md section 9.1: the published sign, no repulsion, NumPyro's median over all n^2 entries.
    attraction, repulsion = forces(x, case["score"])
    assert np.abs(np.asarray(attraction - repulsion) - case["phi_median"]).max() > 1e-3
    assert np.abs(np.asarray(attraction) - case["phi_median"]).max() > 1e-3
    rival = np.median(np.asarray(squared)) / np.log(len(x))
    assert np.abs(np.asarray(svgd_direction(x, case["score"], RBF(float(rival)))) - case["phi_median"]).max() > 1e-4


@pytest.mark.parametrize("inner", [IMQ(bandwidth=0.7), PerSite({"a": IMQ()})], ids=["one", "sites"])
def test_moments_add_the_affine_direction(inner, rng):
    """``mean s + (mean s (x - m)^T + I)(y - m) / v`` over all sites together, pair by pair; a division would lose terms."""
    x, s = {name: rng.normal(size=(5, 2)) for name in "ab"}, {name: rng.normal(size=(5, 2)) for name in "ab"}
    rows, slopes = (np.column_stack([tree["a"], tree["b"]]) for tree in (x, s))
    centred = rows - rows.mean(0)
    expected, width = np.zeros((5, 4)), np.mean(centred**2)
    for i in range(5):
        for j in range(5):
            expected[i] += ((1 + centred[j] @ centred[i] / width) * slopes[j] + centred[i] / width) / 5
    with_moments, without = svgd_direction(x, s, Moments(inner, 0.4)), svgd_direction(x, s, inner)
    added = np.column_stack([with_moments[name] - without[name] for name in "ab"])
    np.testing.assert_allclose(added, 0.4 * expected, rtol=1e-10, atol=1e-12)


def site_values(rng, n=6):
    return {"f": rng.normal(size=(n, 3, 2)), "a": rng.normal(size=n), "b": 5 * rng.normal(size=(n, 2))}


@pytest.mark.long
def test_groups_are_directions_of_their_own(rng):
    x, s = site_values(rng), site_values(rng)
    phi = svgd_direction(x, s, PerSite({"a": IMQ()}))
    assert set(phi) == set(x)
    assert {name: leaf.shape for name, leaf in phi.items()} == {name: leaf.shape for name, leaf in x.items()}
    for name, kernel in [("f", RBF()), ("a", IMQ()), ("b", RBF())]:
        flat = svgd_direction(x[name].reshape(6, -1), s[name].reshape(6, -1), kernel)
        np.testing.assert_allclose(phi[name].reshape(6, -1), flat, atol=1e-14)
    joined = np.concatenate([x["a"][:, None], x["b"]], 1), np.concatenate([s["a"][:, None], s["b"]], 1)
    grouped = svgd_direction(x, s, Groups([["a", "b"]], IMQ(), rest=RBF(2.0)))
    together = svgd_direction(*joined, IMQ())
    np.testing.assert_allclose(np.concatenate([grouped["a"][:, None], grouped["b"]], 1), together, atol=1e-14)
    np.testing.assert_allclose(
        grouped["f"].reshape(6, -1), svgd_direction(x["f"].reshape(6, -1), s["f"].reshape(6, -1), RBF(2.0))
    )
    everything = svgd_direction(x, s)
    table = [np.concatenate([t[name].reshape(6, -1) for name in t], 1) for t in (x, s)]
    np.testing.assert_allclose(everything["a"], np.asarray(svgd_direction(*table))[:, 6], atol=1e-14)


def test_one_particle_climbs_and_coincident_ones_stay_finite(rng):
    """Those at one place average their scores."""
    x, s = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, -4.0]])
    for kernel in (RBF(), RBF(0.1), PerSite()):
        np.testing.assert_array_equal(svgd_direction(x, s, kernel), s)
    s = jnp.asarray(rng.normal(size=(6, 2)))
    average = jnp.broadcast_to(s.mean(0, keepdims=True), s.shape)
    np.testing.assert_allclose(svgd_direction(jnp.ones((6, 2)), s), average, atol=1e-14)
    x = jnp.asarray(np.r_[np.zeros((5, 2)), [[1e-200, 0.0]]])
    assert np.isfinite(np.asarray(svgd_direction(x, s))).all()
    far = x.at[-1].set(1.0)  # the median is zero, the mean is not: the far particle is seen
    assert float(svgd_direction(far, jnp.zeros_like(far))[-1, 0]) > 0


def test_a_bad_particle_is_left_out_of_the_others(rng):
    x, s = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(5, 2)))
    bad_score, bad_place = s.at[2, 1].set(jnp.nan), x.at[2, 0].set(jnp.inf)
    keep = np.array([0, 1, 3, 4])
    wanted = svgd_direction(x[keep], s[keep])
    for places, scores, where in [(x, bad_score, [False, True]), (bad_place, s, [True, False])]:
        phi = svgd_direction(places, scores)
        np.testing.assert_allclose(phi[keep], wanted, atol=1e-13)
        np.testing.assert_array_equal(np.isnan(phi[2]), where)


def test_a_bad_site_takes_its_particle_out_of_every_group(rng):
    x, s = site_values(rng), site_values(rng)
    s["a"][1] = np.nan
    keep = np.array([0, 2, 3, 4, 5])
    phi = svgd_direction(x, s, PerSite())
    wanted = svgd_direction(*({k: v[keep] for k, v in tree.items()} for tree in (x, s)), PerSite())
    for name in x:
        np.testing.assert_allclose(phi[name][keep], wanted[name], atol=1e-13)
    assert np.isnan(phi["a"][1])
    assert not np.isnan(phi["b"][1]).any()


def test_far_from_the_origin_nothing_is_lost(rng):
    x = rng.normal(size=(8, 2))
    near, far = (svgd_direction(jnp.asarray(p), jnp.zeros((8, 2))) for p in (x, x + 1e6))
    np.testing.assert_allclose(near, far, atol=1e-8)  # uncentred products lose 1e-16 * 1e6 * 8 / h


@pytest.mark.parametrize("kernel", [RBF(per_coordinate=True), IMQ(1.2, -0.4, per_coordinate=True)])
def test_a_kernel_of_each_coordinate_sees_that_coordinate_alone(kernel, rng):
    """Each column moves as a particle of one dimension; one bandwidth for all would move them by 1e-2 differently."""
    x, s = site_values(rng), site_values(rng)
    shared = RBF() if isinstance(kernel, RBF) else IMQ(1.2, -0.4)
    phi = svgd_direction(x, s, Groups(["a"], IMQ(), rest=kernel))
    columns, scores = (np.hstack([v["f"].reshape(6, -1), v["b"]]) for v in (x, s))
    alone = [svgd_direction(columns[:, [d]], scores[:, [d]], shared) for d in range(8)]
    np.testing.assert_allclose(np.hstack([phi["f"].reshape(6, -1), phi["b"]]), np.hstack(alone), atol=1e-14)
    np.testing.assert_allclose(phi["a"], svgd_direction(x["a"], s["a"], IMQ()), atol=1e-14)
    assert np.abs(np.hstack(alone) - svgd_direction(columns, scores, shared)).max() > 1e-2


def test_each_step_lowers_the_divergence_of_normal_particles(rng):
    """Theorem 1 of Pinder et al. (2020) where it is a closed form: under a linear kernel normal particles stay normal.

    The divergence of a normal with their moments falls in each step, at the rate ``mean(s . phi) + tr A`` of a map
    ``phi = A x + b`` at first, the squared Stein discrepancy.
    """
    precision = np.linalg.inv([[1.0, 0.6], [0.6, 2.0]])

    def divergence(x):
        mean, ratio = x.mean(0), precision @ np.cov(x.T, bias=True)
        return (np.trace(ratio) + mean @ precision @ mean - 2 - np.linalg.slogdet(ratio)[1]) / 2

    def linear(x):
        """What the linear part of `Moments` adds to the direction of its kernel."""
        score = jnp.asarray(-x @ precision)
        both, kernel = (svgd_direction(jnp.asarray(x), score, one) for one in (Moments(RBF(1.0)), RBF(1.0)))
        return np.asarray(both - kernel)

    x = rng.normal(size=(9, 2)) * [0.4, 3.0] + [2.0, -1.0]
    phi, found = linear(x), [divergence(x)]
    slope = np.linalg.lstsq(np.c_[x, np.ones(9)], phi, rcond=None)[0][:2]
    fall = (divergence(x - 1e-6 * phi) - divergence(x + 1e-6 * phi)) / 2e-6
    np.testing.assert_allclose(fall, np.mean(np.sum(-x @ precision * phi, 1)) + np.trace(slope), rtol=1e-6)
    for _ in range(100):
        x = x + 0.05 * linear(x)
        found.append(divergence(x))
    assert np.all(np.diff(found) < 0), np.diff(found)
    assert found[-1] < 1e-2 * found[0]
