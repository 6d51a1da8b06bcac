"""Hyper-parameters side by side: what is drawn and labelled, and what is refused."""

import numpy as np
import numpyro.distributions as dist
import pytest

from numpyro_gp import plots


def test_hyperparameters_have_a_row_each(ax, rng):
    rows = {"SVI": rng.gamma(9.0, size=300), "SVGD": rng.gamma(9.0, size=20)}
    plots.hyperparameters(rows, "noise", truth=9.0, prior=dist.LogNormal(2.0, 1.0), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SVI", "SVGD", "prior"]
    assert ax.get_xlabel() == "noise"


def test_errors(ax):
    with pytest.raises(ValueError, match="one number for each draw"):
        plots.hyperparameters({"SVI": np.zeros((3, 2))}, "lengthscale", ax=ax)
