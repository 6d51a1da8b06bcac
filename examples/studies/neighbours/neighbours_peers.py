"""Large regressions by seconds of one core: neighbours, inducing inputs, GPBoost, GPyTorch (mathematics.md section 16).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.neighbours.neighbours_peers --data DATA --ways neighbours inducing
    PYTHON -m examples.studies.neighbours.neighbours_peers --data DATA --ways "GPBoost, Vecchia" "GPyTorch, VNNGP"
    python -m examples.studies.neighbours.neighbours_peers --data DATA --sets million --budgets 60 600

Each way gets so many seconds of the processor, in one thread, with the search, compilation and predictions, and the
kernels of `neighbours`; on the first split. What takes longer has no numbers. GPBoost makes as many iterations as it
can, found by shorter runs that are not counted, or stops where its own rule says so. VNNGP takes steps of 256 rows by
Adam, 0.01. This library's own fits are in single precision. ``million`` is a function of three columns of a unit cube,
a Matern 5/2 process of lengthscale 0.15 by features, with noise of 0.1. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.neighbours import neighbours
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save

SETS = ("kin40k", "protein", "power", "kin8nm", "pumadyn32nm")
BUDGETS = (15, 60, 600)
# Of neighbours: their number in the fit, and steps; inducing inputs of sparse fits; and the steps of many rows in 15 s.
STEPS = {15: (16, 500), 60: (32, 1500), 600: (64, 3000)}
MANY_ROWS, STEPS_OF_MANY = 30_000, 300
INDUCING = {15: 128, 60: 512, 600: 1024}
KERNELS = neighbours.SETS | {"million": ("Matern52", 64)}
# Of a million rows those whose neighbours are searched for; the steps of a fit visit no others.
ROWS_OF_MILLION = 100_000


def million(size=1_000_000, new=10_000):
    """Rows to fit and rows to test, standardised, of a function that features of its kernel make."""
    rng, features = np.random.default_rng(0), 500
    X = rng.uniform(size=(size + new, 3))
    spread = np.sqrt(5 / rng.chisquare(5, (features, 1)))  # frequencies of Matern 5/2 are of Student's t with 5
    frequencies = rng.standard_normal((features, 3)) / 0.15 * spread
    first, second = rng.standard_normal((2, features)) / np.sqrt(features)
    parts = [part @ frequencies.T for part in np.array_split(X, max(1, len(X) // 20_000))]
    y = np.concatenate([np.cos(part) @ first + np.sin(part) @ second for part in parts])
    y += 0.1 * rng.standard_normal(len(y))
    X, y = ((values - values[:size].mean(axis=0)) / values[:size].std(axis=0) for values in (X, y))
    return [part.astype(np.float32) for part in (X[:size], y[:size], X[size:], y[size:])]


def prepared(name, data):
    """Rows of a set in single precision, of its first split."""
    return million() if name == "million" else neighbours.prepared(name, data, 0, np.dtype("float32"))


def by_neighbours(name, budget, parts):
    """Of this library, as in `neighbours`."""
    X, y, X_test, _ = parts
    (kernel, count), (number, steps) = KERNELS[name], STEPS[budget]
    if budget == 15 and len(X) > MANY_ROWS:  # the search takes more of it
        steps = STEPS_OF_MANY
    rows = np.random.default_rng(0).permutation(len(X))[:ROWS_OF_MILLION] if name == "million" else None
    keep = {"kernel": kernel, "num_neighbours": number, "steps": steps, "batch": 256, "rate": 0.05, "seed": 0}
    posterior, _, arguments = neighbours.fitted(X, y, **keep, rows=rows)
    found = posterior.predict_at(jax.random.key(1), X_test, *arguments, kernel=kernel, neighbours=count)
    return jnp.asarray(found.mean), found.variance, f"{number} neighbours, {steps} steps"


def by_inducing_inputs(name, budget, parts):
    """Of this library: a coupled belief, natural steps, minibatches of 256 rows."""
    start = time.process_time()
    X, y, X_test, _ = parts
    kernel, number = getattr(ngp.kernels, KERNELS[name][0]), INDUCING[budget]

    def model(X, y=None, *, Z, batch=None):
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
        variance = numpyro.sample("variance", ngp.starting.variance_prior())
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        f = ngp.gp("f", kernel(variance, lengthscale), inducing=Z)
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])

    Z = ngp.inducing.kmeans(jax.random.key(0), X, number)
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.1), Trace_ELBO())
    X, y = jnp.asarray(X), jnp.asarray(y)
    state = jax.jit(lambda key: svi.init(key, X, y, Z=Z, batch=256))(jax.random.key(1))
    some = jax.jit(
        lambda state: jax.lax.fori_loop(0, 25, lambda _, state: svi.update(state, X, y, Z=Z, batch=256)[0], state)
    )
    state, steps = jax.block_until_ready(some(state)), 25
    while time.process_time() - start < 0.9 * budget - 1:
        state, steps = jax.block_until_ready(some(state)), steps + 25
    found = ngp.Posterior.from_svi(model, guide, svi.get_params(state)).predict(jax.random.key(2), X_test, Z=Z)
    return found.mean, found.variance, f"{number} inducing inputs, {steps} steps"


def by_gpboost(name, budget, parts, approximation="vecchia", **options):
    """GPBoost's own optimiser, as many iterations as fit."""
    import gpboost

    X, y, X_test, _ = (np.asarray(part, float) for part in parts)
    is_smooth = KERNELS[name][0] == "RBF"
    shape = {"cov_function": "gaussian_ard"} if is_smooth else {"cov_function": "matern_ard", "cov_fct_shape": 2.5}

    def run(iterations):
        start = time.process_time()
        model = gpboost.GPModel(
            gp_coords=X, gp_approx=approximation, num_neighbors=20, vecchia_ordering="random", likelihood="gaussian",
            num_parallel_threads=1, **shape, **options,
        )  # fmt: skip
        model.fit(y=y, params={"maxit": iterations, "trace": False})
        middle = time.process_time()
        model.set_prediction_data(vecchia_pred_type="order_obs_first_cond_obs_only", num_neighbors_pred=64)
        found = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
        return found, middle - start, time.process_time() - middle

    first = run(1)
    if first[1] + first[2] > budget:
        return None
    second = run(3)
    each = max((second[1] - first[1]) / 2, 1e-3)
    iterations = int(min(200, 1 + (0.9 * budget - first[1] - first[2]) / each))
    if iterations < 1:
        return None
    while True:  # the first iterations take longer than later ones
        start = time.process_time()
        found, _, _ = run(iterations)
        used = time.process_time() - start
        more = min(200, int(iterations * 0.9 * budget / used))
        if more <= iterations or used > 0.7 * budget:
            return found["mu"], found["var"], f"20 neighbours, {iterations} iterations", used
        iterations = more


def by_vnngp(name, budget, parts):
    """GPyTorch's: every row an inducing input, a mean-field belief, 32 neighbours."""
    import gpytorch
    import torch
    from gpytorch.variational import MeanFieldVariationalDistribution
    from gpytorch.variational.nearest_neighbor_variational_strategy import NNVariationalStrategy

    start = time.process_time()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y, X_test, _ = (torch.as_tensor(part, dtype=torch.float32) for part in parts)
    columns, kernels = X.shape[1], gpytorch.kernels
    of_set = kernels.RBFKernel if KERNELS[name][0] == "RBF" else kernels.MaternKernel

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            belief = MeanFieldVariationalDistribution(len(X))
            super().__init__(NNVariationalStrategy(self, X, belief, k=32, training_batch_size=256))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = kernels.ScaleKernel(of_set(ard_num_dims=columns))
            self.covar_module.base_kernel.lengthscale = columns**0.5

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        def __call__(self, x, **kwargs):
            return self.variational_strategy(x=x, **{**kwargs, "prior": False})

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optim, steps = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01), 0
    while time.process_time() - start < 0.85 * budget:
        optim.zero_grad()
        output = model(x=None)
        loss = -bound(output, y[model.variational_strategy.current_training_indices])
        loss.backward()
        optim.step()
        steps += 1
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = [likelihood(model(X_test[at : at + 500])) for at in range(0, len(X_test), 500)]
    mean, variance = (torch.cat([getattr(one, kind) for one in found]).numpy() for kind in ("mean", "variance"))
    return mean, variance, f"32 neighbours, {steps} steps"


WAYS = {
    "neighbours": by_neighbours,
    "inducing": by_inducing_inputs,
    "GPBoost, Vecchia": by_gpboost,
    "GPBoost, full-scale": lambda *of: by_gpboost(*of, approximation="full_scale_vecchia", num_ind_points=50),
    "GPyTorch, VNNGP": by_vnngp,
}


def scored(name, way, budget, parts):
    """A row, of which the numbers are missing where there was no time for them."""
    start = time.process_time()
    made = WAYS[way](name, budget, parts)
    seconds = made[3] if made is not None and len(made) > 3 else time.process_time() - start
    about = {"set": name, "way": way, "budget": budget, "seconds": f"{seconds:.1f}"}
    if made is None or seconds > 1.1 * budget:
        late = "in no time" if made is None else made[2]
        return about | {"log_density": "", "rmse": "", "cover": "", "what": f"not in time: {late}"}
    mean, variance, y = np.asarray(made[0], float), np.asarray(made[1], float), np.asarray(parts[3], float)
    density = -0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
    inside = np.abs(y - mean) < 1.6448536 * np.sqrt(variance)
    numbers = {"log_density": density.mean(), "rmse": np.sqrt(np.mean((y - mean) ** 2)), "cover": inside.mean()}
    return about | {key: f"{value:.4f}" for key, value in numbers.items()} | {"what": made[2]}


def table(rows):
    """Markdown: sets and seconds against ways, the best of a line in bold."""
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    lines = []
    for name, budget in dict.fromkeys((row["set"], row["budget"]) for row in rows):
        own = {r["way"]: r["log_density"] for r in rows if (r["set"], r["budget"]) == (name, budget)}
        best = max((float(value) for value in own.values() if value), default=None)
        cells = [f"{float(own[way]):.3f}" if own.get(way) else "-" if way in own else "" for way in ways]
        cells = [
            f"**{cell}**" if cell not in ("", "-") and float(own[way]) == best else cell
            for way, cell in zip(ways, cells, strict=True)
        ]
        lines.append([f"{name}, {budget} s", *cells])
    return markdown(["set", *ways], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=[*SETS])
    parser.add_argument("--ways", nargs="+", default=["neighbours", "inducing"], choices=[*WAYS])
    parser.add_argument("--budgets", nargs="+", type=int, default=[*BUDGETS])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.budgets = ["yacht"], [1]
        KERNELS["yacht"], STEPS[1], INDUCING[1] = ("Matern52", 16), (4, 10), 10
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "neighbours_peers.csv"
    rows, code = read(path), version()
    for budget in options.budgets:
        for name in options.sets:
            for way in options.ways:
                if any((row["set"], row["way"], int(row["budget"])) == (name, way, budget) for row in rows):
                    continue
                parts = prepared(name, options.data)
                rows.append(scored(name, way, budget, parts) | {"version": code})
                print(*rows[-1].values(), flush=True)
                rows.sort(key=lambda row: int(row["budget"]))
                save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
