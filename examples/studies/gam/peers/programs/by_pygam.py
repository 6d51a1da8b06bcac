import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from pygam import LinearGAM, s

data, new = pd.read_csv("train.csv"), pd.read_csv("test.csv")
names = ["x0", "x1", "x2", "x3"]
X, at = data[names].to_numpy(), new[names].to_numpy()
fit = LinearGAM(s(0) + s(1) + s(2) + s(3)).gridsearch(X, data["y"].to_numpy(), progress=False)
fit.summary()
figure, axes = plt.subplots(1, len(names))
for term, axis in enumerate(axes):
    grid = fit.generate_X_grid(term=term)
    mean, band = fit.partial_dependence(term=term, X=grid, width=0.9)
    axis.plot(grid[:, term], np.column_stack([mean, band]))
    axis.set_xlabel(names[term])
figure.savefig("terms.png")
table = np.column_stack([fit.predict(at), fit.prediction_intervals(at, width=0.9)])
np.savetxt("predicted.csv", table, delimiter=",", header="mean,low,high", comments="")
