"""Does the gain of importance weights survive a valid bound? The letters, three splits (Salimbeni et al. 2019).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.importance.importance_weighting [--picture]

A process, one with a latent input, and two layers above a latent input, trained by the variational bound (VI) and by K
importance samples (IW). Two layers are also trained as the paper's released code does, with the values of the inner
layer drawn independently for the samples of a datum, which bounds nothing. Every row has the test log density, and the
valid bounds of K = 1 and of K samples at its parameters. `importance_gradients` measures the gradients of such fits.
``--picture`` fits the first split once more and draws its densities, VI beside IW.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp
from examples import dgp_letters
from examples.tools.run_queue import version
from examples.tools.tables import judged, markdown, mean_and_error, read, save, with_error
from numpyro_gp.criticism.conditional_density import density_on_grid

HERE = Path(__file__).parent
WAYS = {  # layers, and how samples of the inner layer are drawn
    "GP, VI": ("GP", "jointly"),
    "LV-GP, VI": ("LV-GP", "jointly"),
    "LV-GP, IW": ("LV-GP", "jointly"),
    "LV-GP-GP, VI": ("LV-GP-GP", "jointly"),
    "LV-GP-GP, IW": ("LV-GP-GP", "jointly"),
    "LV-GP-GP, independent draws": ("LV-GP-GP", "independently"),
}
PAIRS = (
    ("LV-GP, VI", "GP, VI"),
    ("LV-GP, IW", "LV-GP, VI"),
    ("LV-GP-GP, VI", "LV-GP, VI"),
    ("LV-GP-GP, IW", "LV-GP-GP, VI"),
    ("LV-GP-GP, independent draws", "LV-GP-GP, VI"),
    ("LV-GP-GP, independent draws", "LV-GP-GP, IW"),
)
PICTURED = list(WAYS)[:5]


def independently(f, site, inputs):
    """Values of a layer with noise of its own for every sample: the released code, and no draw of a function."""
    value = f(inputs).base_dist
    normal = dist.Normal(0.0, 1.0).expand((*inputs.shape[:-1], f.outputs)).to_event(1)
    noise = numpyro.sample(site, normal, infer={"numpyro_gp": "noise"})
    return value.mean + jnp.sqrt(value.variance) * noise


def model(X, y=None, *, Z, layers, drawn="jointly", batch=None):
    """One column x: ``GP`` of x, ``LV-GP`` of x and a latent input, ``LV-GP-GP`` of a residual layer above them."""

    def process(name, Z, **options):
        lengthscale = numpyro.sample(f"{name}_lengthscale", ngp.starting.lengthscale_prior(Z))
        variance = numpyro.sample(f"{name}_variance", ngp.starting.variance_prior())
        points = numpyro.param(f"{name}_inducing", Z)
        return ngp.gp(name, ngp.kernels.RBF(variance, lengthscale), points, **options)

    noise = numpyro.sample("noise", dist.LogNormal(jnp.log(0.3), 1.0))
    inner = process("g", Z, outputs=2) if layers == "LV-GP-GP" else None
    f = process("f", Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as index:
        inputs = ngp.latent_inputs("w", X[index]) if layers != "GP" else X[index]
        if inner is not None:
            draw = inner.draw if drawn == "jointly" else functools.partial(independently, inner)
            inputs = inputs + draw("g_draw", inputs)
        ngp.observe("y", f(inputs), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[index])


def start(layers, X, options):
    """The guide, and inducing inputs: k-means of x, beside draws of the latent input's prior."""
    key = jax.random.key(0)
    Z = ngp.inducing.kmeans(key, X, options.inducing)
    if layers != "GP":
        Z = jnp.concatenate([Z, jax.random.normal(key, Z.shape)], axis=1)
    recipes = {"f": ngp.guides.coupled(natural=True)}
    recipes |= {"g": ngp.guides.coupled(scale=ngp.deep.INNER_SCALE)} if layers == "LV-GP-GP" else {}
    recipes |= {"w": ngp.guides.amortised()} if layers != "GP" else {}
    return ngp.AutoGP(model, recipes), Z


def halves(data, split):
    """Training and held-out rows of a split, a tenth of them, each as inputs and targets."""
    test = np.isin(np.arange(len(data)), np.random.default_rng(split).permutation(len(data))[: len(data) // 10])
    return tuple((data[rows, :1], data[rows, 1]) for rows in (~test, test))


def fitted(layers, objective, split, training, options, **drawn):
    """Fit one model on one split: its guide, parameters, arrays and keywords of the model, and the losses."""
    guide, Z = start(layers, jnp.asarray(training[0]), options)
    rate = optax.cosine_decay_schedule(0.005, options.steps, 0.05)
    step = ngp.optim.natural_gradient(optax.adam(rate), ngp.optim.ramp(1e-3, 0.1, max(1, options.steps // 4)))
    keywords, arrays = {"Z": Z, "layers": layers}, tuple(map(jnp.asarray, training))
    svi = SVI(model, guide, step, objective)
    own = keywords | drawn | {"batch": options.batch}
    result = ngp.fit(jax.random.key(split), svi, options.steps, *arrays, **own, progress=False)
    return (guide, result.params, arrays, keywords), np.asarray(result.losses)


def fitted_by(way, split, training, options):
    """`fitted` by one of the `WAYS`."""
    layers, drawn = WAYS[way]
    objective = ngp.ImportanceWeightedELBO(options.samples) if "VI" not in way else TraceMeanField_ELBO()
    return fitted(layers, objective, split, training, options, **({"drawn": drawn} if drawn != "jointly" else {}))


def predicted(fit, X, options):
    """The predictive mixture of a fit at some inputs."""
    guide, params, _, keywords = fit
    posterior = ngp.Posterior.from_svi(model, guide, params)
    return posterior.predict(jax.random.key(1), jnp.asarray(X), num_samples=options.draws, **keywords)


def mean_density(fit, held_out, options):
    """Test log density, with latent inputs from the guide where there are some."""
    guide, params, _, keywords = fit
    X, y = map(jnp.asarray, held_out)
    if keywords["layers"] == "GP":
        return float(jnp.mean(predicted(fit, X, options).log_density(y)))
    posterior, key = ngp.Posterior.from_svi(model, guide, params), jax.random.key(1)
    found = ngp.conditional_density.log_density(key, posterior, X, y, num_samples=options.draws, **keywords)
    return float(jnp.mean(found))


def one(way, split, training, held_out, options):
    """Fit and score one model on one split: its row."""
    began = time.process_time()
    fit, losses = fitted_by(way, split, training, options)
    seconds = time.process_time() - began
    row = {"way": way, "split": split, "log_density": f"{mean_density(fit, held_out, options):.4f}"}
    row |= {f"bound_{k}": f"{bound(k, *fit, options):.4f}" for k in (1, options.samples)}
    row |= {"last_losses": f"{-losses[-len(losses) // 10 :].mean() / len(training[0]):.4f}"}
    return row | {"seconds": f"{seconds:.1f}"}


def picture(data, options, path):
    """The densities of the first split, VI beside IW, fitted once more."""
    training, held_out = halves(data, 0)
    x, y = dgp_letters.grid_of(data[:, 0])
    results = []
    for way in PICTURED:
        fit, _ = fitted_by(way, 0, training, options)
        results.append({"model": way, "log_density": mean_density(fit, held_out, options)})
        results[-1]["density"] = np.asarray(density_on_grid(predicted(fit, x[:, None], options), y))
        print(way, f"{results[-1]['log_density']:.4f}", flush=True)
    dgp_letters.picture(path, data, results, x, y, dgp_letters.HEADING)


def bound(samples, guide, params, arrays, keywords, options):
    """The valid bound of so many samples, per row."""
    loss = ngp.ImportanceWeightedELBO(samples).loss
    draw = jax.jit(lambda key, params, arrays: loss(key, params, model, guide, *arrays, **keywords))
    losses = [float(draw(key, params, arrays)) for key in jax.random.split(jax.random.key(2), options.bounds)]
    return -np.mean(losses) / len(arrays[0])


def table(rows):
    """Markdown: ways against test log density and valid bounds, mean and error over splits."""
    metrics = {"log_density": "test log density", "bound_1": "bound, K = 1", "bound_5": "bound, K = 5"}
    rows = [row | {name: float(row[name]) for name in metrics} for row in rows if row["way"] in WAYS]
    found = mean_and_error(rows, ("way",), metrics)
    lines = [[way, *(with_error(*own[name]) for name in metrics)] for (way,), own in found.items()]
    return markdown(["trained by", *metrics.values()], lines)


def differences(rows):
    """Differences of test log density, ``{(first, second): [that of a split]}``."""
    known = {(row["way"], row["split"]): float(row["log_density"]) for row in rows}
    splits = sorted({split for _, split in known})
    return {pair: [known[pair[0], s] - known[pair[1], s] for s in splits] for pair in PAIRS}


def pairs(rows):
    """Markdown: `differences`."""
    lines = [[f"{a} - {b}", judged(own)] for (a, b), own in differences(rows).items()]
    return markdown(["difference of test log density", "mean"], lines)


def figure(rows, path):
    """Test log density of every split, by the way it was trained."""
    import matplotlib.pyplot as plt

    drawn, axis = plt.subplots(figsize=(7.0, 2.8), layout="constrained")
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    for line, way in enumerate(reversed(ways)):
        values = [float(row["log_density"]) for row in rows if row["way"] == way]
        axis.plot(values, [line] * len(values), "o", color="C0", alpha=0.5)
        axis.plot(np.mean(values), line, "|", color="black", markersize=16)
    axis.set(yticks=range(len(ways)), xlabel="test log density of each split, and their mean, nats per row")
    axis.set_yticklabels(reversed(ways))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--inducing", type=int, default=40)
    parser.add_argument("--draws", type=int, default=1000, help="of the predictive mixture")
    parser.add_argument("--bounds", type=int, default=20, help="draws of a bound on all rows")
    parser.add_argument("--picture", action="store_true", help="draw the densities of the first split: no rows")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "data" / "dgp_letters.csv.gz")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.inducing, options.draws, options.bounds = 4, 6, 5, 1
        options.splits, options.batch = 1, 32
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "importance_weighting.csv"
    rows, code, data = read(path), version(), dgp_letters.load(options.data)
    if options.picture:
        picture(data, options, options.out / "importance_weighting_letters.png")
        return
    for split in range(options.splits):
        training, held_out = halves(data, split)
        for way in list(WAYS)[-1:] if options.smoke else WAYS:
            if any((row["way"], row["split"]) == (way, split) for row in rows):
                continue
            row = one(way, split, training, held_out, options)
            rows.append(row | {"steps": options.steps, "inducing": options.inducing, "version": code})
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    if not options.smoke:
        print(table(rows), pairs(rows), sep="\n")
        figure(rows, options.out / "importance_weighting.png")


if __name__ == "__main__":
    main()
