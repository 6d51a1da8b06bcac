import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.gam.api import BSplines, GLMGam

data, new = pd.read_csv("train.csv"), pd.read_csv("test.csv")
names = ["x0", "x1", "x2", "x3"]
splines = BSplines(data[names], df=[10] * 4, degree=[3] * 4)
model = GLMGam(data["y"], exog=np.ones(len(data)), smoother=splines, alpha=np.ones(4))
model.fit()
model.alpha = model.select_penweight(method="minimize")[0]
fit = model.fit()
print(fit.summary())
figure, axes = plt.subplots(1, len(names))
for term, axis in enumerate(axes):
    fit.plot_partial(term, cpr=True, ax=axis)
figure.savefig("terms.png")
at = new[names].clip(data[names].min(), data[names].max(), axis=1)
found = fit.get_prediction(exog=np.ones((len(new), 1)), exog_smooth=at)
half = stats.norm.ppf(0.95) * np.sqrt(found.se_mean**2 + fit.scale)
table = np.column_stack([found.predicted_mean, found.predicted_mean - half, found.predicted_mean + half])
np.savetxt("predicted.csv", table, delimiter=",", header="mean,low,high", comments="")
