"""Each note of a summary: its fault is built, its cure applied, and the note is gone."""

import re

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.fit_checks import Finding
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.gam.answers.advice import advice, notes_on, on_normal_posterior
from numpyro_gp.gam.answers.row_densities import RowDraws
from numpyro_gp.gam.search import series_evidence

ROWS = 200


def about(model=None, is_stochastic=False, inside=0.9):
    """What advice depends on beside findings."""
    model = model or ngp.gam.model("y ~ linear(x)", {"x": np.arange(5.0), "y": np.arange(5.0) ** 2})
    return model, np.array([0.1, 0.0]), 100, is_stochastic, inside


def test_what_spoils_the_rest_is_cured_first():
    found = [Finding("inducing inputs", "", 0.1, 0.05, "a kernel"), Finding("calibration", "Data", 0.1, 0.05, "train")]
    first, second = advice(found, *about())
    assert first.endswith("linear(x) leaves most: write linear(x, num_inducing=24).")
    assert second == "Data: do first what the note above says."
    assert "negative_binomial" in advice(found[1:], *about(inside=0.7))[0]  # 0, 1, 4, 9, 16
    curve = ngp.gam.model("y ~ s(x)", {"x": np.arange(30.0), "y": np.sin(np.arange(30.0))})
    assert "s(x, num_inducing=48)" in advice(found[1:], *about(inside=0.97, model=curve))[0]
    assert "num_inducing" not in advice(found[1:], *about(inside=0.97))[0]  # of a line
    noise = Finding("noise", "through all", 1e-7, 1e-4, "")
    assert advice([noise, found[1]], *about())[1] == "Data: do first what the note above says."
    table = {"x": np.arange(5.0), "y": np.arange(5.0) ** 2, "w": np.full(5, 3)}
    weighted = ngp.gam.model("y ~ linear(x)", table, weights="w")  # "look for rows that repeat" cures nothing there
    assert advice([noise], *about(weighted))[0].endswith("leave weights= out where each is one datum.")


def test_more_steps_are_a_cure_where_steps_are_stochastic():
    pareto = Finding("Pareto k", "a tail", 0.8, 0.7, "train longer")
    assert "num_steps" not in advice([pareto], *about())[0]
    assert 'engine="nuts"' in advice([pareto], *about())[0]
    assert "num_steps=200" in advice([pareto], *about(is_stochastic=True))[0]
    stranded = advice([Finding("stranded particles", "3 of 9", 3.0, 0.0, "start with ngp.stein.auto")], *about())[0]
    assert stranded == '3 of 9: compare with engine="nuts", or take engine="svi".'  # which starts so by itself
    assert "num_steps=200" in advice([Finding("R-hat", "R-hat is 2", 2.0, 1.05, "")], *about())[0]


def test_a_posterior_that_is_not_normal_is_noted_where_it_moves_the_function():
    """By moments of two kinds of draws, by hand: 50 of variance 9 with one weight in 20, 50 of variance 1."""
    wide = np.arange(100) < 50
    variance = np.where(wide, 9.0, 1.0)[:, None] * np.ones(3)
    at = RowDraws(np.zeros((100, 3)), variance, *[np.zeros(0)] * 6)
    logs = np.where(wide, np.log(0.05), 0.0) + 0.01 * np.arange(100)[::-1] % 3
    share = np.exp(logs) / np.exp(logs).sum()
    (found,) = on_normal_posterior(at, Weights(np.repeat(logs, 4), 0.3))
    assert f"some {np.sqrt(5 / (share @ variance[:, 0])):.2f} times as wide" in found.sentence
    assert not on_normal_posterior(at, Weights(np.zeros(400), 0.9))
    assert not on_normal_posterior(at._replace(variance=np.ones((100, 3))), Weights(np.repeat(logs, 4), 0.9))
    moved = at._replace(mean=3.0 * wide[:, None] + np.zeros(3), variance=np.ones((100, 3)))
    assert "its mean is 0.7" in on_normal_posterior(moved, Weights(np.repeat(logs, 4), 0.3))[0].sentence
    one = Weights(np.append(np.zeros(396), [50.0] * 4), 1.4)  # what one draw says is no number, but for its k
    assert [finding.fault for finding in on_normal_posterior(at, one)] == ["Pareto k"]


def test_intervals_of_a_trend_of_counts_are_as_wide_as_a_chains(monkeypatch):
    """Counts that spread, whose ``f`` has intervals 0.65 times as wide in a chain as by the curvature at the mode.

    Pareto k of that fit is below 0.7, and it has a note; what weighted draws say has none.
    """
    rng = np.random.default_rng(31)
    rng.choice(4), rng.uniform(size=20), rng.choice(6)
    table = {"t": np.arange(20.0), "y": rng.poisson(rng.gamma(0.5, 4, 20))}
    found = ngp.gam("y ~ trend(t)", table, "negative_binomial")
    assert not [note for note in found.summary().notes if "no normal posterior" in note]
    monkeypatch.setattr(series_evidence, "weighted", lambda bound, free, root: (free, root))
    rough = ngp.gam("y ~ trend(t)", table, "negative_binomial")
    (note,) = [note for note in rough.summary().notes if "no normal posterior" in note]
    assert 1.4 < float(note.split("some ")[1].split()[0]) < 1.8
    own, other = (np.sqrt(one.predict(table).function_variance).mean() for one in (found, rough))
    np.testing.assert_allclose(own / other, 0.65, atol=0.1)


def of(y, text="y ~ linear(x)", family="gaussian"):
    table = {"x": np.linspace(0, 1, len(y)), "z": np.arange(len(y)) % 5, "y": np.asarray(y)}
    return about(ngp.gam.model(text, table, family), inside=0.7)


def test_cures_are_of_the_data_and_of_the_terms_that_there_are():
    """log(y) of negative numbers, a pair of one column, and s(x) in place of a line that is not there cured nothing."""
    normal, spread = (Finding(fault, "", 9.0, 1.0, "") for fault in ("residuals not normal", "calibration"))
    for y, words, never in [
        (np.arange(9.0) - 4.5, '"student_t" for outliers', ("log", "gamma", "bernoulli")),
        (np.arange(9.0) + 0.5, "log(y)", ("bernoulli",)),
        (np.arange(9.0), '"negative_binomial" for counts', ("log",)),
    ]:
        for one in (normal, spread):
            (note,) = advice([one], *of(y))
            assert words in note
            assert not any(word in note for word in never)
    follow = Finding("residuals follow the inputs", "", 0.9, 0.2, "")
    assert advice([follow], *of(np.arange(9.0) / 3))[0] == (
        ": take s(x) in place of the straight line, or look for a column that is missing."
    )
    both = advice([follow], *of(np.arange(9.0) / 3, "y ~ s(x) + s(z)"))[0]
    assert "te(a, b)" in both
    assert "num_inducing=48)" in both
    assert "straight line" not in both


def test_a_curve_that_uses_all_of_its_inducing_inputs_is_told_to_take_more(rng):
    """Large counts say more of a curve than 24 inputs can follow, which looks as if they spread more than Poisson's."""
    x = rng.uniform(0, 10, 300)
    table = {"x": x, "y": rng.poisson(np.exp(11 + 0.5 * np.sin(2 * x)))}
    told = str(ngp.gam("y ~ s(x)", table, "poisson").summary(density=False))
    assert "24 inducing inputs, and may have more detail than they can follow: write s(x, num_inducing=72)" in told
    told = str(ngp.gam("y ~ s(x, num_inducing=72)", table, "poisson").summary(density=False))
    assert "note" not in told


def test_a_response_of_two_values_is_told_the_family_of_labels():
    """It was told "student_t", or "gamma" or log(y)."""
    (note,) = notes_on(of([0, 1] * 9)[0], [])
    assert note == 'The response y has two values, 0 and 1: take the family "bernoulli".'
    for fault in ("calibration", "residuals follow the inputs", "noise"):
        assert advice([Finding(fault, "Data", 9.0, 1.0, "")], *of([0, 1] * 9)) == (
            "Data: do first what the note above says.",
        )
    (note,) = notes_on(of([3, 9] * 9, family="gamma")[0], [])
    assert note.endswith('take the family "bernoulli", of data["y"] = data["y"] == 9.')
    for known in (of([0, 1] * 9, family="bernoulli"), of([0, 1] * 9, family="poisson"), of([0, 1, 2] * 9)):
        assert not notes_on(known[0], [])


def followed(note, formula, table, family):
    """The formula, the table and the family after each cure of a note that can be typed: one of them is right."""
    cures = note.rsplit(": ", 1)[1]
    if made := re.search(r'data\["(\w+)"\] = data\["\w+"\] == (\w+)', cures):
        table = table | {made[1]: table[made[1]] == float(made[2])}
    for own in re.findall(r'"(\w+)"', re.sub(r"data\[.*?\]", "", cures)):
        yield formula, table, own
    for own in re.findall(r"log\((\w+)\)", cures):
        yield formula.replace(f"{own} ~", f"log({own}) ~"), table, family
    for term, more in re.findall(r"(\w+\([\w, ]+), (num_inducing=\d+\))", cures):
        yield re.sub(re.escape(term) + r"[^)]*\)", f"{term}, {more}", formula), table, family
    if "te(a, b)" in cures:
        yield formula.replace("s(x) + s(z)", "te(x, z)"), table, family
    for column in re.findall(r"take s\((\w+)\) in place of the straight line", cures):
        yield formula.replace(f"linear({column})", f"s({column})"), table, family


def faulty():
    """Formulas whose summary has a note, with the words that it begins with."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-2, 2, (2, ROWS))
    table = {"x": x, "z": z, "many": rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(1 + np.sin(x))))}
    table["heavy"] = np.sin(x) + 0.3 * rng.standard_t(1.5, ROWS)
    table["product"] = 0.8 * x * np.tanh(2 * z) + 0.2 * rng.normal(size=ROWS)
    table["waves"] = rng.poisson(np.exp(2 + 1.5 * np.sin(5 * x)))
    rng = np.random.default_rng(3)
    table["label"], table["pair"] = rng.normal(size=(2, ROWS)) + x > 0
    table |= {"label": 1 * table["label"], "pair": np.where(table["pair"], 9, 3)}
    table |= {"bent": np.sin(3 * x) + 0.3 * rng.normal(size=ROWS), "time": np.exp(1 + x + 0.8 * rng.normal(size=ROWS))}
    # Of 250 places of a rough field 60 leave an error of 0.375 of the surface, and 200 0.264.
    rng = np.random.default_rng(8)
    lon, lat = places = rng.uniform((5, 47), (15, 55), (250, 2)).T
    apart = np.sqrt(((places[:, :, None] - places[:, None]) ** 2 / np.array([2.0, 1.2])[:, None, None] ** 2).sum(0))
    matern = (1 + np.sqrt(3) * apart) * np.exp(-np.sqrt(3) * apart) + 1e-8 * np.eye(250)
    y = np.linalg.cholesky(matern) @ rng.normal(size=250) + 0.25 * rng.normal(size=250)
    return [
        ("label ~ s(x)", table, "gaussian", "The response label has two values"),
        ("pair ~ s(x)", table, "gaussian", "The response pair has two values"),
        ("many ~ s(x)", table, "poisson", "Data at y do not fall"),
        ("many ~ s(x)", table, "gaussian", "Residuals of y are not normal"),
        ("heavy ~ s(x)", table, "gaussian", "Residuals of y are not normal"),
        ("time ~ s(x)", table, "gaussian", "Residuals of y are not normal"),
        ("bent ~ linear(x)", table, "gaussian", "Residuals of y at neighbouring inputs"),
        ("product ~ s(x) + s(z)", table, "gaussian", "Residuals of y at neighbouring inputs"),
        ("waves ~ s(x, num_inducing=5)", table, "poisson", "The inducing inputs leave"),
        ("y ~ te(lon, lat, num_inducing=60)", {"lon": lon, "lat": lat, "y": y}, "gaussian", "te(lon, lat) uses "),
    ]


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_a_note_vanishes_when_its_cure_is_typed_as_it_stands(number):
    formula, table, family, words = faulty()[number]
    notes = ngp.gam(formula, table, family).summary().notes
    assert not any(word in text for text in notes for word in ("kernel", "X)", "train", "guide"))
    (note,) = [note for note in notes if note.startswith(words)]
    tried = list(followed(note, formula, table, family))
    assert tried, note
    after = {own[::2]: ngp.gam(*own).summary().notes for own in tried}
    assert any(not any(note.startswith(words) for note in notes) for notes in after.values()), (note, after)


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_copies_of_rows_are_no_neighbours_of_one_another(family):
    """Each copy of a count has its own place among equal counts, and the same inputs: its neighbour is the other copy."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 60)
    y = {"poisson": rng.poisson(np.exp(0.3 + 0.5 * x)), "bernoulli": rng.uniform(size=60) < 1 / (1 + np.exp(-x))}[
        family
    ]
    rows = np.repeat(np.arange(60), 3)
    notes = ngp.gam("y ~ linear(x)", {"x": x[rows], "y": y[rows].astype(float)}, family).summary().notes
    assert not any("neighbouring" in note for note in notes)


@pytest.mark.long
def test_cutpoints_that_are_sampled_go_no_further_than_f_follows(rng):
    """Draws of their level had the ``f`` of another one: 0.22 nats a row below the truth, of which 0.03 are left."""

    def rating(width, number):
        normal = dist.Normal(0.0, width).expand([number]).to_event(1)
        steps = dist.transforms.OrderedTransform()
        return lambda: ngp.likelihoods.Ordinal(numpyro.sample("cut", dist.TransformedDistribution(normal, steps)))

    curve, ends = lambda x: 2 * np.sin(2 * x), np.array([-np.inf, *np.linspace(-2, 3, 6), np.inf])
    x, new = rng.uniform(-2, 2, 200), np.linspace(-2, 2, 100)
    table = {"x": x, "y": np.searchsorted(ends[1:-1], curve(x) + rng.normal(size=200)).astype(float)}
    prediction = ngp.gam("y ~ s(x)", table, rating(2.0, 6)).predict({"x": new})
    share = np.diff(stats.norm.cdf(ends - curve(new)[:, None]), axis=1)
    found = np.stack([prediction.log_density(np.full(100, float(label))) for label in range(7)], axis=1)
    assert np.mean(np.sum(share * (np.log(share) - found), axis=1)) < 0.06
    x = x[:80]
    table = {"x": x, "y": np.searchsorted([-2.0, 2.0, 6.0], 0.75 * curve(x) + 4 + rng.normal(size=80)).astype(float)}
    notes = ngp.gam("y ~ s(x)", table, rating(10.0, 3)).summary().notes  # also equal cutpoints, in single precision
    assert not any("num_inducing" in note for note in notes)
    assert any('compare with engine="nuts"' in note for note in notes)
