"""GPyTorch's ``RBFKernelGrad`` on the eight inputs of ``examples/functionals.py``: ``functionals_eight_gpytorch.csv``.

    python -m examples.studies.peers.libraries.eight_inputs_gpytorch    # where gpytorch is installed; JAX need not be

The same points, kernel, one noise for values and slopes, priors, and Adam to the mode of the hyper-parameters. It takes
the whole gradient at every point and a normal noise, for that is what the kernel is for.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from examples.tools.eight_inputs import row_of, simulate
from examples.tools.tables import save

RESULTS = Path(__file__).parents[3] / "results"


def model_of(gpytorch, X, y, likelihood):
    """An exact process of values and gradients, ``y`` of shape ``(N, 9)``."""
    prior = gpytorch.priors.LogNormalPrior

    class Slopes(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMeanGrad()
            self.mean_module.constant.requires_grad_(False)
            inner = gpytorch.kernels.RBFKernelGrad(ard_num_dims=8, lengthscale_prior=prior(0.5, 1.0))
            self.covar_module = gpytorch.kernels.ScaleKernel(inner, outputscale_prior=prior(0.0, 1.0))
            inner.lengthscale, self.covar_module.outputscale = np.exp(0.5), 1.0

        def forward(self, x):
            covariance = self.covar_module(x)
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), covariance)

    return Slopes()


def fitted(gpytorch, torch, X, y, steps):
    """Model and likelihood at the mode."""
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=9, has_task_noise=False, noise_prior=gpytorch.priors.LogNormalPrior(-5.0, 2.0)
    )
    likelihood.noise = np.exp(-5.0)
    model = model_of(gpytorch, X, y, likelihood)
    model.train(), likelihood.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        (-objective(model(X), y)).backward()
        optimiser.step()
    return model.eval(), likelihood.eval()


def main():
    """A row for each seed."""
    import gpytorch
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1), torch.set_default_dtype(torch.float64)
    rows = []
    for seed in range(options.seeds):
        X, y, slopes, X_test, y_test = simulate(seed)
        start = time.process_time()
        every = torch.tensor(np.concatenate([y[:, None], slopes], axis=1))
        model, likelihood = fitted(gpytorch, torch, torch.tensor(X), every, options.steps)
        with torch.no_grad():
            found = model(torch.tensor(X_test))
            noise = float(likelihood.noise)
            mean, variance = found.mean[:, 0].numpy(), found.variance[:, 0].numpy()
        seconds, name = time.process_time() - start, "GPyTorch, values and gradients"
        rows.append(row_of(seed, name, mean, np.sqrt(variance + noise), y_test, noise**0.5, seconds))
        rows[-1]["versions"] = f"gpytorch {gpytorch.__version__}, torch {torch.__version__}"
        print(*rows[-1].values(), flush=True)
        save(options.out / "functionals_eight_gpytorch.csv", rows)


if __name__ == "__main__":
    main()
