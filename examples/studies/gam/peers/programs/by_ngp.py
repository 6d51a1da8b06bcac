import numpy as np

import numpyro_gp as ngp

data, new = (np.genfromtxt(f"{name}.csv", delimiter=",", names=True) for name in ("train", "test"))
fit = ngp.gam("y ~ s(x0) + s(x1) + s(x2) + s(x3)", data)
print(fit.summary())
fit.plot(path="terms.png")
found = fit.predict(new)
table = np.column_stack([found.mean, found.quantiles([0.05, 0.95]).T])
np.savetxt("predicted.csv", table, delimiter=",", header="mean,low,high", comments="")
