"""Effect plots: every panel is there, with its labels."""

import jax
import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

import numpyro_gp as ngp
from tests.oracles.additive import design_posterior


@pytest.mark.long
def test_one_call_draws_every_panel():
    X, layout, model, stored = design_posterior()
    posterior, options = ngp.Posterior.from_mcmc(model, stored), {"grid": 6, "num_samples": 6, "truth": {"age": np.sin}}
    key, words = jax.random.key(1), {"response": "y", "title": "all of it"}
    figure = ngp.plot_effects(posterior, key, X, design=layout, **options, **words)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert {"age", "sex", "dose", "age:dose", "age:sex", "Sobol indices"} <= set(titles)
    age, sex = (figure.axes[titles.index(name)] for name in ("age", "sex"))
    assert (age.get_xlabel(), age.get_ylabel()) == ("age", "y\n(mean 0 over an interval)")
    assert figure.legends[0].get_title().get_text() == "all of it"
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"90 %, each value", "90 %, each level", "truth", "values in the data"} <= words
    shares = [f"{level}\n{100 * np.mean(X[:, 1] == level):.0f} %" for level in (2, 5)]
    assert [text.get_text() for text in sex.get_xticklabels()] == shares
    figure.canvas.draw()
    plt.close(figure)
    with pytest.raises(ValueError, match="names must be 3 names, one for each column of X"):
        ngp.plot_effects(posterior, key, X, names=["u"], indices=False)
    with pytest.raises(ValueError, match="level must be less than 1"):
        ngp.plot_effects(posterior, key, X, design=layout, level=90)
