"""What the experiments behind the verdicts compute: ratios of times, gaps paired by split, and draws that bound nothing."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import optimize

import numpyro_gp as ngp
from examples.studies.additive import additive_numbers
from examples.studies.deep import decoupled_map, gradient_noise
from examples.studies.importance import importance_weighting, latent_scores, normality, weights_from_fit
from examples.studies.orthogonal import decoupled_convergence
from examples.studies.tables import recount

pytestmark = pytest.mark.experiments


def test_a_ratio_is_of_the_least_times_and_its_error_of_neighbouring_steps():
    row = {"coupled_ms": "10 20 40", "decoupled_ms": "5 20 60"}
    assert decoupled_map.ratio(row) == 0.5
    assert decoupled_map.ratio_and_error(row) == "0.50 ± 0.29"  # of 0.5, 1.0, 1.5


def test_an_estimate_of_draws_bounds_the_loss_where_a_mixture_does_not(rng):
    """Of draws at 0 and 1 alone a row at 0.5 has 1 / sqrt(2 pi) h exp(-1 / 8 h^2), h from Scott's rule."""
    draws = np.repeat([0.0, 1.0], 50)[:, None]
    width = draws.std(ddof=1) * 100**-0.2
    found = latent_scores.estimated(draws, np.array([0.5]))
    np.testing.assert_allclose(found, -0.5 * np.log(2 * np.pi * width**2) - 0.125 / width**2, rtol=1e-12)


def test_of_two_starts_the_higher_bound_counts_and_pairs_share_their_starts():
    """LV-GP takes the start at the targets (bound -1, density 5) where it has both; IW has the usual one alone."""
    rows = []
    for split, gain in enumerate((0.0, 1.0, 2.0)):
        for method, start, bound, density in (
            ("GP VI", "usual", "", 1.0),
            ("LV-GP VI", "usual", "-2", 2.0 + gain),
            ("LV-GP VI", "targets", "-1", 5.0 + gain),
            ("LV-GP IW", "usual", "-3", 3.0),
            ("GP-GP VI", "usual", "-3", 1.5 + gain),
        ):
            row = {"set": "a", "split": split, "method": method, "start": start, "bound": bound}
            rows.append(row | dict.fromkeys(latent_scores.SCORES, density))
    rows += [row | {"set": "b"} for row in rows if row["method"] in ("GP VI", "GP-GP VI")]  # without latent inputs
    assert latent_scores.gains(rows, "a") == [4.0, 5.0, 6.0]
    assert latent_scores.gains(rows, "a", pair=(2, 1)) == [1.0, 0.0, -1.0]
    assert latent_scores.table(rows).splitlines()[-1].startswith("| a (3) | 6.000 ± 0.577 | **5.000 ± 0.577** |")
    assert latent_scores.levels(rows).splitlines()[2:] == ["| a | 1.000 ± 0.000 |  | 6.000 ± 0.577 |  |"]
    assert latent_scores.pairs(rows).splitlines()[2:] == ["| a (3) | 0.000 ± 0.577 |  |  |"]
    alone = latent_scores.pairs(rows, shown=latent_scores.DEPTH_ALONE).splitlines()
    assert alone[0] == "| set (splits) | GP-GP VI - GP VI | LV-GP VI - GP VI |"
    assert alone[2:] == ["| a (3) | 1.500 ± 0.577 | **5.000 ± 0.577** |", "| b (3) | 1.500 ± 0.577 |  |"]
    assert latent_scores.by_start(rows).splitlines()[2:] == ["| a | 3 of 3 | 1.000 ± 0.000 | 3.000 ± 0.000 |"]


def test_ways_after_a_fit_are_paired_by_split():
    rows = [
        {"set": "airfoil", "split": split, "way": way} | dict.fromkeys(weights_from_fit.METRICS, gain + split)
        for split in (2, 0, 1)
        for way, gain in (("IW", 3 + split), ("first", 0), ("VI", 1))
    ]
    found = weights_from_fit.differences(rows)
    assert found["VI", "first"] == [1.0, 1.0, 1.0]
    assert sorted(found["IW", "VI"]) == [2.0, 3.0, 4.0]
    last = weights_from_fit.pairs(rows).splitlines()[-1]
    assert last.endswith("| **3.000 ± 0.577** (3) | **3.000 ± 0.577** (3) | **3.000 ± 0.577** (3) |")


def test_draws_with_two_bumps_are_told_from_normal_ones(rng):
    """Of ten columns half are normal and half far bumps; beyond the twentieth that a test sees by chance counts."""
    normal = rng.normal(size=(500, 10))
    bumps = normal + 10 * (np.arange(10) < 5) * (np.arange(500) % 2)[:, None]
    statistic, share = normality.shapiro(bumps)
    assert 0.5 <= share <= 0.7
    assert 0.7 < statistic < 0.999
    assert normality.shapiro(normal)[0] > 0.99
    rows = [
        {"set": "a", "way": way, "split": split, "statistic": "0.5", "share": share, "log_density": "1"}
        for split, share in enumerate(("0.25", "0.35", "0.45"))
        for way in ("LV-GP", "GP-LV-GP")
    ]
    np.testing.assert_allclose(normality.more_than_chance(rows, "a"), [0.2, 0.3, 0.4])
    assert normality.table(rows).splitlines()[-1].startswith("| a (3) | 0.500 ± 0.000 | **0.35 ± 0.06** |")
    assert normality.ways_table(rows).splitlines()[-1].startswith("| a | GP-LV-GP - LV-GP | 0.000 ± 0.000 (3) |")


def test_independent_draws_agree_with_a_function_at_the_first_sample_alone(rng):
    """Two samples of a datum see one function when it is drawn jointly; with noise of their own they do not."""
    Z, inputs = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(2, 4, 2)))

    def values(draw):
        def model():
            f = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), Z, outputs=2)
            with numpyro.plate("data", 4):
                return draw(f, "noise", inputs)

        return numpyro.handlers.seed(model, 0)()

    independent, joint = (np.asarray(values(draw)) for draw in (importance_weighting.independently, jointly))
    np.testing.assert_allclose(independent[0], joint[0], atol=1e-5)  # the first row of a triangular root
    assert np.abs(independent[1] - joint[1]).max() > 1e-3


def jointly(f, site, inputs):
    return f.draw(site, inputs)


def test_without_a_divisor_the_coefficients_are_the_parameters(rng):
    """Those of Orth are its parameters over a diagonal below one, so that they move further in the same step."""
    Z, gamma = jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(4, 2)))
    given, X = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=(5, 2)))

    def mean(method, parameter):
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data={parameter: given}):
            prior = numpyro.handlers.trace(lambda: ngp.gp("f", ngp.kernels.RBF(0.1, 1.0), Z)).get_trace()["f"]["fn"]
            belief = decoupled_convergence.recipe(method, gamma, Z)("f", prior)
        return np.asarray(belief.marginals(prior.basis, X).mean)

    with numpyro.handlers.seed(rng_seed=0):
        basis = numpyro.handlers.trace(lambda: ngp.gp("f", ngp.kernels.RBF(0.1, 1.0), Z)).get_trace()["f"]["fn"].basis
    wanted = ngp.beliefs.Orthogonal(gamma, given, jnp.zeros(3), jnp.eye(3)).marginals(basis, X).mean
    np.testing.assert_allclose(mean("Orth, no divisor", "f/a"), wanted, rtol=1e-5)
    assert np.linalg.norm(mean("Orth", "f/gamma")) > 5 * np.linalg.norm(wanted)


def test_numbers_of_beliefs_are_those_of_their_arrays():
    """Components of 2 and 3 values: two Cholesky factors hold 3 + 6 numbers, a rank of r 5 r, one factor of all 15."""
    numbers = {name: own[1:] for name, own in additive_numbers.beliefs([2, 3], ranks=(2,)).items()}
    assert numbers == {"mean field": (9, None), "structured(2)": (10, 2)}
    rows = [
        {"belief": "mean field", "inputs": inputs, "numbers": "9", "cholesky": "15", "below": below, "at_best": "1"}
        for inputs, own in (("uniform", "13"), ("correlated", "26"))
        for below in own
    ]
    last = additive_numbers.table(rows).splitlines()[-1]
    assert last == "| mean field | 9 | 0.60 | 2.000 ± 1.000 (1.000) | 4.000 ± 2.000 (1.000) |"


@pytest.mark.parametrize("rank", [None, 2])
def test_the_best_of_a_kind_is_where_a_search_ends(rank):
    """KL of covariances to a posterior of four values, minimised by SciPy from the start that does best of six."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 4))
    precision = np.eye(4) + half @ half.T

    def own(numbers):  # the precision of a belief: two blocks of two, or the identity and two directions
        if rank is not None:
            direction = numbers.reshape(4, rank)
            return np.eye(4) + direction @ direction.T
        blocks = [np.array([[a, 0.0], [b, c]]) for a, b, c in numbers.reshape(2, 3)]
        return np.block([[blocks[0] @ blocks[0].T, np.zeros((2, 2))], [np.zeros((2, 2)), blocks[1] @ blocks[1].T]])

    def divergence(numbers):
        ratio = np.linalg.solve(own(numbers) + 1e-12 * np.eye(4), precision)
        return (np.trace(ratio) - 4 - np.linalg.slogdet(ratio)[1]) / 2

    found = min(optimize.minimize(divergence, rng.normal(size=6 if rank is None else 8)).fun for _ in range(6))
    assert additive_numbers.at_best(precision, (2, 2), rank) == pytest.approx(found, abs=1e-6)


def test_sizes_of_gradients_are_without_the_noise_of_their_mean():
    """Of draws 1 and 3, a mean of 2 and a standard deviation of sqrt(2), half of whose square is the mean's own."""
    size, noise = gradient_noise.sizes(np.array([[1.0], [3.0]]))
    np.testing.assert_allclose((size, noise), (np.sqrt(3.0), np.sqrt(2.0)))
    np.testing.assert_allclose(gradient_noise.sizes(np.array([[-1.0], [1.0]])), (0.1, np.sqrt(2.0)))


def test_milestones_are_below_the_optimum_of_the_row():
    """From 1000 nats below, 1 % is 10 nats; without one nat by then the end is shown, 4 nats below after 50."""
    row = {"optimum": "-100", "final_bound": "-104", "gap_share": "0.004", "steps": "50"}
    row |= {"iterations_to_1_percent": "5", "iterations_to_10_nats": "5", "iterations_to_1_nat": ""}
    one, ten, nat = decoupled_convergence.REACHED
    assert decoupled_convergence.milestones(row) == {one: (6, 10.0), ten: (6, 10.0), "end": (50, 4.0)}
    assert decoupled_convergence.milestones(row | {nat: "9"}) == {one: (6, 10.0), ten: (6, 10.0), nat: (10, 1.0)}


@pytest.mark.parametrize("paper", recount.PAPERS, ids=lambda paper: paper.__name__)
def test_other_code_decides_the_same_verdicts_from_the_rows(paper):
    """And counts them as the index does."""
    lines = recount.recounted(paper)
    assert [line for line in lines if line[1] != line[2]] == []
    assert f"]({paper.__name__}.md) | {recount.counts(lines)} |" in (recount.PAGES / "index.md").read_text()


def test_a_recount_has_four_words():
    """Parts of a whole claim, of a part of it, and differences of three splits alone (t of 4.30 is needed)."""
    assert [recount.decided(*parts) for parts in ((True, True), (True, False), (False, False))] == list(
        recount.WORDS[:3]
    )
    assert recount.decided(True, whole=False) == "partly"
    assert recount.unless(2) == "not measured"
    assert [recount.sign(own) for own in ([1.0, 1.1, 1.2], [-1.0, -1.1, -1.2], [0.0, 1.0, 2.0], [1.0, 1.1])] == [
        1,
        -1,
        0,
        0,
    ]
