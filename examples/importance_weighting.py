"""Does the gain of importance weights survive a valid bound? The letters, three splits (Salimbeni et al. 2019).

    OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python -m examples.importance_weighting

A process, one with a latent input, and two layers above a latent input, trained by the variational bound (VI) and by K
importance samples (IW). Two layers are also trained as the paper's released code does, with the values of the inner
layer drawn independently for the samples of a datum, which bounds nothing. Every row has the test log density, and the
valid bounds of K = 1 and of K samples at its parameters. Then the signal-to-noise ratio of the encoder's gradient at
the fits of VI: median over parameters of |mean| / standard deviation, plain and doubly reparametrised.
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
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp
from examples import dgp_letters
from examples.run_queue import version
from examples.tables import markdown, mean_and_error, of_mean, read, save, with_error

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


def one(way, split, training, held_out, options):
    """Fit and score one model on one split: its row, and what was fitted."""
    layers, drawn = WAYS[way]
    began = time.process_time()
    guide, Z = start(layers, jnp.asarray(training[0]), options)
    objective = ngp.ImportanceWeightedELBO(options.samples) if "VI" not in way else TraceMeanField_ELBO()
    rate = optax.cosine_decay_schedule(0.005, options.steps, 0.05)
    step = ngp.optim.natural_gradient(optax.adam(rate), ngp.optim.ramp(1e-3, 0.1, max(1, options.steps // 4)))
    keywords = {"Z": Z, "layers": layers}
    own = keywords | ({"drawn": drawn} if drawn != "jointly" else {})
    svi = SVI(model, guide, step, objective)
    arrays = tuple(map(jnp.asarray, training))
    result = ngp.fit(jax.random.key(split), svi, options.steps, *arrays, **own, batch=options.batch, progress=False)
    seconds, losses = time.process_time() - began, np.asarray(result.losses)
    posterior = ngp.Posterior.from_svi(model, guide, result.params)
    prediction = posterior.predict(jax.random.key(1), jnp.asarray(held_out[0]), num_samples=options.draws, **keywords)
    density = float(jnp.mean(prediction.log_density(jnp.asarray(held_out[1]))))
    fitted = (guide, result.params, arrays, keywords)
    row = {"way": way, "split": split, "log_density": f"{density:.4f}"}
    row |= {f"bound_{k}": f"{bound(k, *fitted, options):.4f}" for k in (1, options.samples)}
    row |= {"last_losses": f"{-losses[-len(losses) // 10 :].mean() / len(arrays[0]):.4f}", "seconds": f"{seconds:.1f}"}
    return row, fitted


def bound(samples, guide, params, arrays, keywords, options):
    """The valid bound of so many samples, per row."""
    loss = ngp.ImportanceWeightedELBO(samples).loss
    draw = jax.jit(lambda key, params, arrays: loss(key, params, model, guide, *arrays, **keywords))
    losses = [float(draw(key, params, arrays)) for key in jax.random.split(jax.random.key(2), options.bounds)]
    return -np.mean(losses) / len(arrays[0])


def signal_to_noise(samples, doubly, guide, params, arrays, keywords, options):
    """Median over the encoder's parameters of |mean| / standard deviation of their gradient."""
    objective = ngp.ImportanceWeightedELBO(samples, doubly_reparametrised=doubly)
    encoder = {name: value for name, value in params.items() if name.startswith("w/")}

    def gradient(encoder, key, params, arrays):
        loss = lambda own: objective.loss(key, params | own, model, guide, *arrays, **keywords, batch=options.batch)  # noqa: E731
        return ravel_pytree(jax.grad(loss)(encoder))[0]

    each = jax.jit(gradient)
    keys = jax.random.split(jax.random.key(3), options.gradients)
    found = np.array([each(encoder, key, params, arrays) for key in keys])
    return float(np.median(np.abs(found.mean(0)) / found.std(0, ddof=1)))


def table(rows):
    """Markdown: ways against test log density and valid bounds, mean and error over splits."""
    metrics = {"log_density": "test log density", "bound_1": "bound, K = 1", "bound_5": "bound, K = 5"}
    rows = [row | {name: float(row[name]) for name in metrics} for row in rows if row["way"] in WAYS]
    found = mean_and_error(rows, ("way",), metrics)
    lines = [[way, *(with_error(*own[name]) for name in metrics)] for (way,), own in found.items()]
    return markdown(["trained by", *metrics.values()], lines)


def differences(rows):
    """Paired differences of test log density, ``{(first, second): (mean, error)}``."""
    known = {(row["way"], row["split"]): float(row["log_density"]) for row in rows}
    splits = sorted({split for _, split in known})
    found = {pair: [known[pair[0], s] - known[pair[1], s] for s in splits] for pair in PAIRS}
    return {pair: of_mean(own) for pair, own in found.items()}


def pairs(rows):
    """Markdown: `differences`."""
    lines = [[f"{a} - {b}", with_error(*own)] for (a, b), own in differences(rows).items()]
    return markdown(["difference of test log density", "mean"], lines)


def ratios(rows):
    """Markdown: signal-to-noise by the number of samples, mean and error over splits."""
    rows = [row | {"ratio": float(row["ratio"])} for row in rows]
    found = mean_and_error(rows, ("gradient", "samples"), ["ratio"])
    samples = list(dict.fromkeys(row["samples"] for row in rows))
    lines = [
        [name, *(with_error(*found[name, k]["ratio"]) if (name, k) in found else "" for k in samples)]
        for name in dict.fromkeys(row["gradient"] for row in rows)
    ]
    return markdown(["gradient of the encoder", *(f"K = {k}" for k in samples)], lines)


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
    parser.add_argument("--draws", type=int, default=500, help="of the predictive mixture")
    parser.add_argument("--bounds", type=int, default=20, help="draws of a bound on all rows")
    parser.add_argument("--gradients", type=int, default=200)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "dgp_letters.csv.gz")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.inducing, options.draws, options.bounds, options.gradients = 4, 6, 5, 1, 2
        options.splits, options.batch = 1, 32
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path, noise_path = options.out / "importance_weighting.csv", options.out / "importance_weighting_gradients.csv"
    rows, gradients, code = read(path), read(noise_path), version()
    data = dgp_letters.load(options.data)
    for split in range(options.splits):
        test = np.isin(np.arange(len(data)), np.random.default_rng(split).permutation(len(data))[: len(data) // 10])
        training, held_out = ((data[rows, :1], data[rows, 1]) for rows in (~test, test))
        for way in list(WAYS)[-1:] if options.smoke else WAYS:
            if any((row["way"], row["split"]) == (way, split) for row in rows):
                continue
            row, fitted = one(way, split, training, held_out, options)
            rows.append(row | {"steps": options.steps, "inducing": options.inducing, "version": code})
            save(path, rows)
            print(*rows[-1].values(), flush=True)
            for samples in (1, 5, 50) if way == "LV-GP, VI" and not options.smoke else ():
                for name, doubly in (("plain", False), ("doubly reparametrised", True)):
                    ratio = signal_to_noise(samples, doubly, *fitted, options)
                    own = {"gradient": name, "samples": samples, "split": split, "ratio": f"{ratio:.4f}"}
                    gradients.append(own | {"draws": options.gradients, "version": code})
                    save(noise_path, gradients)
                    print(*own.values(), flush=True)
    if not options.smoke:
        print(table(rows), pairs(rows), ratios(gradients), sep="\n")
        figure(rows, options.out / "importance_weighting.png")


if __name__ == "__main__":
    main()
