"""Findings as sentences, and the labels of the numbers that they are about."""

import numpy as np

from numpyro_gp.criticism.fit_checks import Finding, entries


def test_a_finding_is_a_sentence_with_its_cure_and_every_number_has_a_label():
    assert str(Finding("R-hat", "R-hat is 1.2", 1.2, 1.05, "warm up longer")) == "R-hat is 1.2: warm up longer."
    found = dict(entries({"noise": np.arange(3.0), "scale": np.arange(6.0).reshape(3, 2)}))
    assert list(found) == ["noise", "scale[0]", "scale[1]"]
    np.testing.assert_array_equal(found["scale[1]"], [1.0, 3.0, 5.0])
