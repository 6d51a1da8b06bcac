"""What the experiments behind the verdicts compute: ratios of times, gaps paired by split, and draws that bound nothing."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import optimize

import numpyro_gp as ngp
from examples.studies.additive import additive_numbers
from examples.studies.importance import importance_weighting, latent_scores
from examples.studies.orthogonal import decoupled_convergence
from examples.studies.tables import recount

pytestmark = pytest.mark.experiments


def test_an_estimate_of_draws_bounds_the_loss_where_a_mixture_does_not(rng):
    """Of draws at 0 and 1 alone a row at 0.5 has 1 / sqrt(2 pi) h exp(-1 / 8 h^2), h from Scott's rule."""
    draws = np.repeat([0.0, 1.0], 50)[:, None]
    width = draws.std(ddof=1) * 100**-0.2
    found = latent_scores.estimated(draws, np.array([0.5]))
    np.testing.assert_allclose(found, -0.5 * np.log(2 * np.pi * width**2) - 0.125 / width**2, rtol=1e-12)


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
