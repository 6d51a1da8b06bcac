"""What a user of scikit-learn, statsmodels or SciPy writes for the eleven tasks; rows are kept, libraries optional.

A prediction is a distribution of SciPy for each held-out row. Splines have the range of the rows as their ends.
"""

import numpy as np
from scipy import optimize, stats


class Predicted:
    """A distribution of SciPy, asked as ours are."""

    def __init__(self, distribution):
        self.distribution = distribution

    def quantiles(self, levels):
        return np.stack([self.distribution.ppf(level) for level in levels])

    def log_density(self, y):
        is_count = hasattr(self.distribution.dist, "logpmf")
        return self.distribution.logpmf(y) if is_count else self.distribution.logpdf(y)


def normal(mean, sd):
    return Predicted(stats.norm(np.asarray(mean), np.asarray(sd)))


def _framed(train, new, *columns):
    """Tables of pandas, the numbers of new rows inside of the range of the others."""
    import pandas as pd

    train, new = pd.DataFrame(train), pd.DataFrame(new)
    for name in columns:
        new[name] = new[name].clip(train[name].min(), train[name].max())
    return train, new


def _observed(fitted, new):
    """Mean and standard deviation of new data, of least squares."""
    frame = fitted.get_prediction(new).summary_frame(alpha=0.1)
    return normal(frame["mean"], (frame["obs_ci_upper"] - frame["obs_ci_lower"]) / (2 * stats.norm.ppf(0.95)))


def houses_by_splines(train, new):
    """Least squares of splines."""
    import statsmodels.formula.api as smf

    train, new = _framed(train, new, "income", "age")
    return _observed(smf.ols("price ~ bs(income, df=6) + bs(age, df=6) + C(region)", train).fit(), new)


def birds_by_splines(train, new):
    """A negative binomial regression on splines."""
    import statsmodels.formula.api as smf

    train, new = _framed(train, new, "elevation", "canopy")
    formula, offset = "birds ~ bs(elevation, df=6) + bs(canopy, df=4)", np.log(train["hours"])
    found = smf.negativebinomial(formula, train, offset=offset).fit(disp=0, maxiter=500)
    mean, r = found.predict(new, offset=np.log(new["hours"])).to_numpy(), 1 / found.params["alpha"]
    return Predicted(stats.nbinom(r, r / (r + mean)))


def _columns(train, new, target):
    """Arrays of the rows, and of what is to be explained."""
    return *(np.column_stack([one[name] for name in train if name != target]) for one in (train, new)), train[target]


def blood_by_splines(train, new):
    """Logistic regression on splines."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    X, X_new, y = _columns(train, new, "gave")
    found = make_pipeline(SplineTransformer(5), LogisticRegression(max_iter=5000)).fit(X, y)
    return Predicted(stats.bernoulli(found.predict_proba(X_new)[:, 1]))


def blood_by_boosting(train, new):
    """Boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, X_new, y = _columns(train, new, "gave")
    found = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.05, random_state=0).fit(X, y)
    return Predicted(stats.bernoulli(found.predict_proba(X_new)[:, 1]))


def co2_by_components(train, new):
    """A local linear trend and a season."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = UnobservedComponents(train["co2"], "lltrend", freq_seasonal=[{"period": 12, "harmonics": 6}])
    found = model.fit(disp=0, maxiter=200).get_forecast(len(new["co2"]))
    return normal(found.predicted_mean, found.se_mean)


def co2_by_sarimax(train, new):
    """The airline model."""
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    found = SARIMAX(train["co2"], order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit(disp=0)
    found = found.get_forecast(len(new["co2"]))
    return normal(found.predicted_mean, found.se_mean)


def _process(train, new, columns, target):
    """A process of scikit-learn at its best hyper-parameters."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    X, X_new = (np.column_stack([one[name] for name in columns]) for one in (train, new))
    centre, spread, m, s = X.mean(axis=0), X.std(axis=0), train[target].mean(), train[target].std()
    kernel = ConstantKernel(1.0) * Matern(np.ones(len(columns)), nu=2.5) + WhiteKernel(0.3)
    found = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0)
    found.fit((X - centre) / spread, (train[target] - m) / s)
    mean, sd = found.predict((X_new - centre) / spread, return_std=True)
    return normal(m + s * mean, s * sd)


def soil_by_process(train, new):
    """A process of two columns."""
    return _process(train, new, ("lon", "lat"), "ph")


def sunspots_by_process(train, new):
    """A process of one column."""
    return _process(train, new, ("year",), "spots")


def lakes_by_mixed_model(train, new):
    """Splines, random levels and random slopes."""
    import statsmodels.formula.api as smf

    train, new = _framed(train, new, "depth")
    found = smf.mixedlm("chl ~ bs(depth, df=8)", train, groups="lake", re_formula="~depth").fit()
    own = [found.random_effects[one] for one in new["lake"]]
    mean = np.asarray(found.predict(new)) + [a.iloc[0] + a.iloc[1] * d for a, d in zip(own, new["depth"], strict=True)]
    return normal(mean, np.full(len(new), np.sqrt(found.scale)))


def trial_by_weibull(train, new):
    """Weibull regression by maximum likelihood, on a spline of the dose."""
    from patsy import dmatrix

    train, new = _framed(train, new, "dose")
    design = dmatrix("age + arm + bs(dose, df=5)", train)
    months, is_event = train["months"].to_numpy(), ~train["open"].to_numpy()

    def loss(numbers):
        shape, scale = np.exp(numbers[-1]), np.exp(np.asarray(design) @ numbers[:-1])
        z = months / scale
        return -np.sum(is_event * (np.log(shape / scale) + (shape - 1) * np.log(z)) - z**shape)

    start = np.r_[np.log(months.mean()), np.zeros(design.shape[1])]
    numbers = optimize.minimize(loss, start, method="BFGS").x
    from patsy import build_design_matrices

    (at,) = build_design_matrices([design.design_info], new)
    return Predicted(stats.weibull_min(np.exp(numbers[-1]), scale=np.exp(np.asarray(at) @ numbers[:-1])))


def concrete_by_splines(train, new):
    """Least squares of splines."""
    import statsmodels.formula.api as smf

    names = [name for name in train if name != "strength"]
    train, new = _framed(train, new, *names)
    return _observed(smf.ols("strength ~ " + " + ".join(f"bs({name}, df=6)" for name in names), train).fit(), new)


def _by_boosting(train, new, target, **settings):
    """Boosted trees; their spread is that of a fifth of the rows that a first fit does not see."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, X_new, y = _columns(train, new, target)
    own = np.arange(len(y)) % 5 > 0
    first = HistGradientBoostingRegressor(random_state=0, **settings).fit(X[own], y[own])
    sd = np.std(y[~own] - first.predict(X[~own]))
    return normal(HistGradientBoostingRegressor(random_state=0, **settings).fit(X, y).predict(X_new), sd)


def concrete_by_boosting(train, new):
    """Boosted trees."""
    return _by_boosting(train, new, "strength")


def big_by_boosting(train, new):
    """Boosted trees, with the pair that our formula is given and no other."""
    return _by_boosting(train, new, "y", max_iter=300, interaction_cst=[[0], [1], [2], [3, 4], [5]])


houses = {"statsmodels, splines": houses_by_splines}
birds = {"statsmodels, splines": birds_by_splines}
blood = {"scikit-learn, splines": blood_by_splines, "scikit-learn, boosting": blood_by_boosting}
co2 = {"statsmodels, components": co2_by_components, "statsmodels, SARIMAX": co2_by_sarimax}
soil = {"scikit-learn, a process": soil_by_process}
lakes = {"statsmodels, mixed model": lakes_by_mixed_model}
trial = {"SciPy, Weibull by hand": trial_by_weibull}
concrete = {"statsmodels, splines": concrete_by_splines, "scikit-learn, boosting": concrete_by_boosting}
big = {"scikit-learn, boosting": big_by_boosting}
sunspots = {"scikit-learn, a process": sunspots_by_process}
