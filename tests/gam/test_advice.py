"""Each note of a summary: its fault is built, its cure applied, and the note is gone."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism.finding import Finding
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.gam.advice import AdviceContext, advice, is_even

ROWS, WAVES = 200, "waves ~ s(x, num_inducing="


def data():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-2, 2, (2, ROWS))
    many = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(1 + np.sin(x))))
    heavy = np.sin(x) + 0.3 * rng.standard_t(1.5, ROWS)
    return {
        "x": x,
        "z": z,
        "many": many,
        "heavy": heavy,
        "pair": 0.8 * x * np.tanh(2 * z) + 0.2 * rng.normal(size=ROWS),
        "waves": rng.poisson(np.exp(2 + 1.5 * np.sin(5 * x))),
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "family", "said", "cure", "right", "other"),
    [
        ("many ~ s(x)", "poisson", "Data at y do not fall", '"negative_binomial"', "many ~ s(x)", "negative_binomial"),
        ("heavy ~ s(x)", "gaussian", "are not normal", '"student_t"', "heavy ~ s(x)", "student_t"),
        ("pair ~ s(x) + s(z)", "gaussian", "are correlated", "te(a, b)", "pair ~ te(x, z)", "gaussian"),
        (WAVES + "5)", "poisson", "inducing inputs leave", "write s(x, num_inducing=24)", WAVES + "24)", "poisson"),
    ],
)
def test_a_cure_cures(wrong, family, said, cure, right, other):
    table = data()
    notes = ngp.gam(wrong, table, family).summary().notes
    (note,) = [note for note in notes if said in note]
    assert cure in note
    assert not any(word in text for text in notes for word in ("kernel", "X)", "train", "guide"))
    assert not any(said in note for note in ngp.gam(right, table, other).summary().notes)


def about(**changed):
    model = ngp.gam.model("y ~ linear(x)", {"x": np.arange(5.0), "y": np.arange(5.0) ** 2})
    return AdviceContext(model, np.array([0.1, 0.0]), 100, False)._replace(**changed)


def test_what_spoils_the_rest_is_cured_first():
    found = [Finding("inducing inputs", "", 0.1, 0.05, "a kernel"), Finding("calibration", "Data", 0.1, 0.05, "train")]
    first, second = advice(found, about())
    assert first.endswith("linear(x) leaves most: write linear(x, num_inducing=24).")
    assert second == "Data: do first what the note above says."
    assert "student_t" in advice(found[1:], about(inside=0.7))[0]
    assert "num_inducing=48" in advice(found[1:], about(inside=0.97))[0]


def test_more_steps_are_a_cure_where_steps_are_stochastic():
    pareto = Finding("Pareto k", "a tail", 0.8, 0.7, "train longer")
    assert "num_steps" not in advice([pareto], about())[0]
    assert 'engine="nuts"' in advice([pareto], about())[0]
    assert "num_steps=200" in advice([pareto], about(is_stochastic=True))[0]
    assert "num_steps=200" in advice([Finding("R-hat", "R-hat is 2", 2.0, 1.05, "")], about())[0]


def test_weights_that_are_nearly_equal_are_of_no_consequence():
    assert is_even(Weights(0.1 * np.arange(10.0), 0.9))
    assert not is_even(Weights(np.array([0.0] * 9 + [9.0]), 0.9))
