import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor

data, new = pd.read_csv("train.csv"), pd.read_csv("test.csv")
names = ["x0", "x1", "x2", "x3"]
fit = ExplainableBoostingRegressor(interactions=0).fit(data[names], data["y"])
print(pd.Series(fit.term_importances(), fit.term_names_))
figure, axes = plt.subplots(1, len(names))
for term, axis in enumerate(axes):
    found = fit.explain_global().data(term)
    for key in ("scores", "lower_bounds", "upper_bounds"):
        axis.step(found["names"][:-1], found[key], where="post")
    axis.set_xlabel(names[term])
figure.savefig("terms.png")
np.savetxt("predicted.csv", fit.predict(new[names]), header="mean", comments="")
