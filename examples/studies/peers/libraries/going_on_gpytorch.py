"""GPyTorch's ``get_fantasy_model`` on the ten parts of ``going_on.py``: rows in ``going_on_gpytorch.csv``.

    python -m examples.studies.peers.libraries.going_on_gpytorch    # where gpytorch is installed beside this library

A sparse model with the inducing inputs, kernel, level and priors of the example is fitted to the first part, by Adam
on a Cholesky factor, the only one that it takes there. Each later part is then conditioned on (Maddox et al. 2021):
hyper-parameters stay, for it has no others, and the noise has to be normal. The same is done with an exact process,
which keeps all rows.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from examples.studies.peers.going_on import PARTS, Z, simulate
from examples.tools.tables import save

RESULTS = Path(__file__).parents[1]


def modules(gpytorch, torch):
    """A sparse model and an exact one."""
    prior = gpytorch.priors.LogNormalPrior

    def parts(model):
        model.mean_module = gpytorch.means.ConstantMean()
        model.mean_module.initialize(constant=0.5)
        model.mean_module.raw_constant.requires_grad_(False)
        inner = gpytorch.kernels.MaternKernel(nu=2.5, lengthscale_prior=prior(0.0, 0.7))
        model.covar_module = gpytorch.kernels.ScaleKernel(inner, outputscale_prior=prior(0.0, 0.7))
        model.covar_module.base_kernel.lengthscale, model.covar_module.outputscale = 1.0, 1.0

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.tensor(Z)
            values = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            strategy = gpytorch.variational.VariationalStrategy(self, points, values, learn_inducing_locations=False)
            super().__init__(strategy)
            parts(self)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, X, y, likelihood):
            super().__init__(X, y, likelihood)
            parts(self)

    Sparse.forward = Exact.forward = forward
    return Sparse, Exact


def fitted(gpytorch, torch, X, y, is_sparse, steps):
    """A model of the first part, and its likelihood."""
    Sparse, Exact = modules(gpytorch, torch)
    prior = gpytorch.priors.LogNormalPrior(-2.0, 1.4)  # of the variance: log-normal at -1 and 0.7 for its root
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=prior)
    likelihood.noise = np.exp(-2.0)
    model = Sparse() if is_sparse else Exact(X, y, likelihood)
    model.likelihood = likelihood  # which fantasies of a sparse model look for
    model.train(), likelihood.train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    if is_sparse:
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    else:
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimiser.zero_grad()
        (-objective(model(X), y)).backward()
        optimiser.step()
    return model.eval(), likelihood.eval()


def stream(gpytorch, torch, is_sparse, rows, steps):
    """A row for each part."""
    X, y = (torch.tensor(np.asarray(values)) for values in simulate(rows, False))
    held = np.arange(rows) % 4 == 3
    X_test, y_test, found, model = X[held], y[held], [], None
    for number, piece in enumerate(np.array_split(np.flatnonzero(~held), PARTS), 1):
        start = time.perf_counter()
        if number == 1:
            first, likelihood = fitted(gpytorch, torch, X[piece], y[piece], is_sparse, steps)
            model = first
        elif number == 2 and is_sparse:
            model = first.variational_strategy.get_fantasy_model(X[piece], y[piece])
        else:
            model = model.get_fantasy_model(X[piece], y[piece])
        seen = X_test[:, 0] <= X[piece].max()
        with torch.no_grad():
            function = model(X_test[seen])
            noise = likelihood.noise.item()
        seconds = time.perf_counter() - start
        normal = torch.distributions.Normal(function.mean, (function.variance + noise).sqrt())
        kernel = first.covar_module
        way = "GPyTorch, sparse" if is_sparse else "GPyTorch, exact"
        row = {"data": "Gaussian", "part": number, "way": way, "rows": len(piece)}
        row["log_density"] = round(normal.log_prob(y_test[seen]).mean().item(), 4)
        row["lengthscale"] = round(kernel.base_kernel.lengthscale.item(), 4)
        row["variance"] = round(kernel.outputscale.item(), 4)
        row |= {"seconds": round(seconds, 3), "versions": f"gpytorch {gpytorch.__version__}, torch {torch.__version__}"}
        found.append(row)
        print(*row.values(), flush=True)
    return found


def main():
    """Both models, and their rows."""
    import gpytorch
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.manual_seed(0), torch.set_num_threads(1), torch.set_default_dtype(torch.float64)
    rows = [row for sparse in (True, False) for row in stream(gpytorch, torch, sparse, options.rows, options.steps)]
    save(options.out / "going_on_gpytorch.csv", rows)


if __name__ == "__main__":
    main()
