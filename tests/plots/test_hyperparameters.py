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
    for wrong in ({}, 3):
        with pytest.raises(TypeError, match="posteriors must be a dictionary of posteriors or draws by name, but got"):
            plots.hyperparameters(wrong, "noise", ax=ax)
    with pytest.raises(ValueError, match=r"posteriors\['SVI'\] must be finite, but got 1 NaN or infinite draws of 3"):
        plots.hyperparameters({"SVI": np.array([1.0, np.nan, 2.0])}, "noise", ax=ax)
