"""Values as text and arrays: what is written comes back as the same types, and what is refused says what to do."""

import dataclasses
import datetime

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.answers.saved import CLASSES, KERNEL_OF, decoded, encoded
from numpyro_gp.gam.table import terms
from tests.gam.test_result import DATA


def test_values_that_a_file_cannot_hold_are_refused_with_the_cure(tmp_path):
    class Interval:  # as pandas.cut makes
        def __lt__(self, other):
            return id(self) < id(other)

    few = [Interval(), Interval()]
    table = {"y": np.arange(20.0) % 7, "g": np.array(few * 10, object)}
    with pytest.raises(TypeError, match=r'a file can hold, but got .*data\["group"\]\.astype\(str\)'):
        ngp.gam("y ~ factor(g)", table).save(tmp_path / "fit.npz")
    uniform = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform())
    with pytest.raises(ValueError, match=r"a prior of a fit to save must be a class of NumPyro .*pickle\.dump"):
        ngp.gam(ngp.gam.linear("x", scale=uniform), DATA, response="n").save(tmp_path / "fit.npz")


def test_levels_of_all_kinds_come_back():
    levels = ("a", 1, 2.5, True, datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3, 4), None)
    arrays: list = []
    found = decoded(encoded({"levels": levels, 3: [np.float64(0.1), np.arange(2)]}, arrays), arrays)
    assert found["levels"] == levels
    assert [type(one) for one in found["levels"]] == [type(one) for one in levels]
    assert found[3][0] == 0.1
    assert found[3][1] is arrays[0]


@pytest.mark.parametrize("measure", ["empirical", "uniform", "gaussian"])
def test_models_of_all_terms_come_back(measure):
    """A class that a model holds and that files do not know would be refused here."""
    table = {"t": np.arange(30.0), "x": np.arange(30) % 7, "g": np.array(list("ab") * 15), "y": np.arange(30) % 4}
    text = "y ~ s(x, cyclic=(0, 7), by=g) + te(x, t) + re(g, by=x) + trend(t) + season(t, period=12) + cycle(t)"
    text = text if measure == "empirical" else "y ~ s(x, kernel=RBF) + ti(x, t) + factor(g) + x"
    model, arrays = ngp.gam.model(text, table, measure=measure), []
    again = decoded(encoded(model, arrays), arrays)
    assert again.terms == model.terms
    assert again.layout == model.layout
    for name, points in model.kernel_data.inducing.items():
        np.testing.assert_array_equal(points, again.kernel_data.inducing[name])
    assert again.kernel_data.time_priors == model.kernel_data.time_priors
    leaves, others = (jax.tree.leaves(one.kernel_data.measures) for one in (model, again))
    for one, other in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_words_of_files_stand_for_all_that_a_class_holds():
    """A field that is added, or one that is renamed, is seen here, before files lack it."""
    for kind, words in CLASSES.values():
        fields = getattr(kind, "_fields", None) or [one.name for one in dataclasses.fields(kind)]
        assert sorted(words.split()) == sorted(fields)
    assert set(KERNEL_OF.values()) == set(terms.KERNELS.values())


def test_words_that_are_not_known_are_refused_with_the_cure():
    cure = r".* Load it with the version of numpyro_gp that wrote it, or fit anew and save that: fit\.save\(path\)"
    for stored, words in [
        ({"class": "Start", "fields": {"dict": [["constant", 0.0], ["size", 1.0]]}}, r"fields of Start .*\['noise'\]"),
        ({"class": "Start", "fields": {"dict": [["slope", 0.0]]}}, "fields of Start in a file of a fit must be const"),
        ({"class": "Spline", "fields": {"dict": []}}, "class in a file of a fit must be Column, .*, but got Spline"),
        ({"complex": "1"}, "kind of value in a file of a fit must be date, datetime, but got complex"),
        ({"kernel": "Uniform"}, r"kernel in a file of a fit must be RBF, Matern12, .*, but got Uniform"),
        # A file names no class but those it may.
        (
            {"prior": "biject_to", "parameters": {"dict": []}},
            r"prior in a file .* be a distribution of numpyro.*got biject",
        ),
    ]:
        with pytest.raises(ValueError, match=words + cure):
            decoded(stored, [])
