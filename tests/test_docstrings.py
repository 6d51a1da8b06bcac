"""Every ``>>>`` line of the package runs and prints what it says, in single precision, which is what users have.

Numbers are compared as numbers, to the digits that the docstring prints or to five. That single and double precision
agree is what ``tests/contracts`` asks of the functions themselves; here it would compile every program twice.
"""

import copy
import doctest
import importlib
import math
import pkgutil
import re

import matplotlib.pyplot as plt
import pytest

import numpyro_gp as ngp
from tests.precision import x64

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
# Seconds of compiling each: in the second stage.
LONG = {
    "additive.sobol.each_draw",
    "additive.effects.effects",
    *(f"additive.sobol.{name}" for name in ("Indices", "draws", "expected", "plug_in", "sample", "totals")),
    "beliefs.optimum.additive_optimum",
    "criticism.compare.Comparison",
    "criticism.compare.compare",
    "criticism.conditional_density.latent_posterior",
    "criticism.conditional_density.log_density",
    "criticism.diagnose.sbc",
    "criticism.weights.importance_weights",
    "gam.result.fit",
    "gam.model.model.Model",
    "gam.result.Fit",
    "gam.screening.screen",
    "guides.decoupled.orthogonal",
    "kernels.zero_mean.ZeroMean",
    "likelihoods.classes.RobustMax",
    "objectives.ImportanceWeightedELBO",
    "plots.terms.plot_effects",
    "stein.diagnostics.Paths",
    "stein.svgd.SVGD",
    "stein.auto.auto",
}


def examples():
    """All docstrings with examples, by name."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {}
    for info in pkgutil.walk_packages(ngp.__path__, "numpyro_gp."):
        for test in finder.find(importlib.import_module(info.name)):
            if test.examples:
                found[test.name] = test
    return found


class Checker(doctest.OutputChecker):
    """Numbers to the digits printed, ``relative`` beside them; the rest word for word, but for ``dtype``."""

    def __init__(self, relative):
        self.relative = relative

    def check_output(self, want, got, optionflags):
        want, got = (re.sub(r",?\s*dtype=\w+", "", text) for text in (want, got))
        if "..." not in want:
            pairs = list(zip(NUMBER.findall(want), NUMBER.findall(got)))
            same = len(NUMBER.findall(want)) == len(NUMBER.findall(got))
            if same and all(self.close(*pair) for pair in pairs):
                want, got = ("".join(NUMBER.sub("#", text).split()) for text in (want, got))
        return super().check_output(want, got, optionflags)

    def close(self, want, got):
        digits = want.lower().split("e")[0].partition(".")[2]
        exponent = int(want.lower().partition("e")[2] or 0)
        unit = 10.0 ** (exponent - len(digits)) if digits or exponent else 0.0
        return math.isclose(float(want), float(got), rel_tol=self.relative, abs_tol=unit)


EXAMPLES = examples()


# Written for readers of the file: names of the module are there. All others can be pasted into a session as they are.
AT_HOME = {
    "arrays.value_type",
    "likelihoods.expectations.expect",
    *(f"likelihoods.quadrature.{name}" for name in ("composite_rule", "gauss_hermite", "graded_rule")),
}


def rows():
    """Names of docstrings, the long ones marked."""
    missing = LONG - {name.removeprefix("numpyro_gp.") for name in EXAMPLES}
    assert not missing, missing
    for name in EXAMPLES:
        yield pytest.param(name, marks=[pytest.mark.long] * (name.removeprefix("numpyro_gp.") in LONG))


@pytest.mark.parametrize("name", [*rows()])
def test_examples_print_what_they_say(name):
    said = []
    runner = doctest.DocTestRunner(Checker(2e-5), verbose=False, optionflags=OPTIONS)
    test = copy.copy(EXAMPLES[name])
    test.globs = dict(test.globs) if name.removeprefix("numpyro_gp.") in AT_HOME else {}
    with x64(False):
        runner.run(test, out=said.append)
    plt.close("all")
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.mark.parametrize(
    ("want", "got", "close"), [("26.4345", "26.4493", False), ("0.61", "0.6065", True), ("3", "4", False)]
)
def test_a_wrong_number_is_seen(want, got, close):
    assert Checker(2e-5).check_output(f"{want}\n", f"{got}\n", OPTIONS) == close
