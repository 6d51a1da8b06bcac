"""GPyTorch 1.15.2 as of November 2026, on PyTorch 2.13, in two ways: the report takes the faster one.

`VariationalStrategy`, and ``large batch``: `LargeBatchVariationalStrategy`, made for batches larger than M. Batches are
drawn by indexing. Natural steps are `NaturalVariationalDistribution` with `NGD`. Predictions are in `eval` mode, where
the strategy keeps what does not depend on the rows; each repeat clears that once.
"""

import gpytorch
import torch
from gpytorch import variational

from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.timing import Report


class Sparse(gpytorch.models.ApproximateGP):
    """One of its two strategies."""

    def __init__(self, problem, job, way):
        points = torch.as_tensor(problem.X[problem.order])
        Z, others = points[: job.size].clone(), points[job.size : job.size + job.mean_points].clone()
        if job.task in ("adam", "orthogonal"):
            belief = variational.CholeskyVariationalDistribution(job.size)
        else:
            belief = variational.NaturalVariationalDistribution(job.size)
        kind = variational.LargeBatchVariationalStrategy if way == "large batch" else variational.VariationalStrategy
        strategy = kind(self, Z, belief)
        if job.mean_points:
            mean = variational.DeltaVariationalDistribution(job.mean_points)
            strategy = variational.OrthogonallyDecoupledVariationalStrategy(strategy, others, mean)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        kernel = gpytorch.kernels.MaternKernel(2.5, ard_num_dims=problem.X.shape[1])
        kernel.lengthscale = torch.as_tensor(problem.lengthscale)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
        self.covar_module.outputscale = given.VARIANCE

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def steps_of(model, likelihood, problem, job):
    X, y = torch.as_tensor(problem.X), torch.as_tensor(problem.y)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    if job.task in ("adam", "orthogonal"):
        optimisers = [torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=given.ADAM)]
    else:
        own = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(X), lr=given.NATURAL)
        rest = [*model.hyperparameters(), *likelihood.parameters()]
        optimisers = [own, torch.optim.Adam(rest, lr=given.ADAM)]

    def run(steps):
        model.train(), likelihood.train()
        for _ in range(steps):
            rows = torch.randint(len(X), (job.batch,))
            for optimiser in optimisers:
                optimiser.zero_grad(set_to_none=True)
            (-bound(model(X[rows]), y[rows])).backward()
            for optimiser in optimisers:
                optimiser.step()

    return run


def prediction_of(model, likelihood):
    @torch.no_grad()
    def predict(X):
        model.eval(), likelihood.eval()
        found = likelihood(model(X))
        return found.mean.cpu().numpy(), found.variance.cpu().numpy()

    return model.variational_strategy._clear_cache, predict


def main():
    report = Report("GPyTorch", "gpytorch", "torch")
    job, problem = report.job, given.problem_of(report.job, report.folder)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, job.dtype))
    model, likelihood = Sparse(problem, job, report.way), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = given.NOISE_VARIANCE
    run, (forget, predict) = steps_of(model, likelihood, problem, job), prediction_of(model, likelihood)
    if job.task in ("adam", "natural", "orthogonal", "density"):
        test = torch.as_tensor(problem.X_test)
        return report.training(run, lambda: given.log_density(*predict(test), problem.y_test))
    run(10)
    if job.task == "latency":
        return report.one_row_at_a_time(problem.X_test, lambda row: predict(torch.as_tensor(row)))
    new = [torch.as_tensor(part) for part in given.parts(given.new_rows(job))]
    return report.repeated(lambda: (forget(), [predict(part) for part in new]))


if __name__ == "__main__":
    main()
