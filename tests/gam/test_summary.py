"""Deviances against log densities of SciPy, and the table as text and HTML; what it holds is in test_shares."""

import numpy as np
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.summary import Row, Summary, deviance_explained, unit_deviance


def test_deviances_are_twice_the_log_density_that_is_lost():
    y, mean = np.array([0.0, 2.0, 7.0]), np.array([0.5, 2.5, 4.0])
    poisson = 2 * (stats.poisson(np.maximum(y, 1e-300)).logpmf(y) - stats.poisson(mean).logpmf(y))
    np.testing.assert_allclose(unit_deviance("poisson", y, mean), poisson, rtol=1e-9)
    r = 3.0
    density = lambda m: stats.nbinom(r, r / (r + np.maximum(m, 1e-300))).logpmf(y)  # noqa: E731
    np.testing.assert_allclose(
        unit_deviance("negative_binomial", y, mean, r), 2 * (density(y) - density(mean)), rtol=1e-9
    )
    scale = lambda m: stats.gamma(1.0, scale=m).logpdf(y[1:])  # noqa: E731
    np.testing.assert_allclose(unit_deviance("gamma", y[1:], mean[1:]), 2 * (scale(y[1:]) - scale(mean[1:])), rtol=1e-9)
    labels, share = np.array([0.0, 1.0]), np.array([0.2, 0.3])
    np.testing.assert_allclose(unit_deviance("bernoulli", labels, share), -2 * stats.bernoulli(share).logpmf(labels))
    assert np.isnan(unit_deviance("beta", y, mean)).all()


def test_deviance_explained_of_gaussian_data_is_r_squared():
    y = np.random.default_rng(0).normal(size=12)
    model = ngp.gam.model("y ~ linear(x)", {"x": np.arange(12.0), "y": y})
    fitted_values = 0.5 * y
    wanted = 1 - np.sum((y - fitted_values) ** 2) / np.sum((y - y.mean()) ** 2)
    np.testing.assert_allclose(deviance_explained(model, fitted_values, np.nan), wanted, rtol=1e-12)


def test_text_and_html():
    row = Row("s(a<b)", 0.5, 0.25, 0.75, 3.14, 0.0, -0.5, "s(c)")
    table = Summary("y ~ s(a<b)", (row,), {"rows": 3, "deviance explained": 0.123456}, ("look at it",))
    assert "0.50 (0.25 to 0.75)  3.1" in str(table)
    assert "deviance explained  0.1235" in str(table)
    assert str(table).endswith("note: look at it")
    html = table._repr_html_()
    assert "s(a&lt;b)" in html
    assert html.count("<tr>") == 4
