"""Six bases on regression and classification sets, beside the published numbers.

    python -m examples.studies.orthogonal.decoupled_comparison --data ../shared/data --sets kin40k magic --steps 20000

Settings of the paper's appendix: the sum of a Matern-5/2 and an RBF kernel with one lengthscale for each
input, inducing inputs of the covariance from k-means and mean points from random rows, all learnt with
Adam (0.001); natural steps up to 0.005, reached linearly within 100 steps; batch 1024 and 64 columns. Inputs
and regression targets are standardised over the whole set. Classes: Bernoulli for two, RobustMax for more.
"""

import argparse
import csv
import math
import time
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.datasets import KINDS, load, split_mask, standardise
from examples.tools.run_queue import Problem, version
from examples.tools.tables import save

MANY = {"robustmax": ngp.likelihoods.RobustMax, "softmax": ngp.likelihoods.Softmax}
METHODS = ("Coupled", "CoupledNat", "Orth", "OrthNat", "Hybrid", "Decoupled")
PUBLISHED = {
    ("regression", "log_density"): ("seed000_regression_test_loglik.csv", 1.0),
    ("regression", "error"): ("seed000_regression_test_mae.csv", 1.0),
    ("classification", "log_density"): ("seed000_classification_test_loglik.csv", 1.0),
    ("classification", "error"): ("seed000_classification_test_accuracy.csv", 0.01),
}


def model(X, y=None, *, inducing, classes=0, many="robustmax", batch=None):
    """Regression (``classes=0``) or classification with a kernel, noise and inducing inputs that are learnt.

    ``many`` is the likelihood of more than two classes.
    """
    columns = X.shape[-1]
    wide = dist.LogNormal(0.5 * math.log(columns), 1.0).expand([columns]).to_event(1)
    kernel = ngp.kernels.Matern52(
        numpyro.sample("matern_variance", dist.LogNormal(0.0, 1.0)), numpyro.sample("matern_lengthscale", wide)
    ) + ngp.kernels.RBF(
        numpyro.sample("rbf_variance", dist.LogNormal(0.0, 1.0)), numpyro.sample("rbf_lengthscale", wide)
    )
    Z = numpyro.param("inducing", inducing)
    f = ngp.gp("f", kernel, Z, outputs=classes if classes > 2 else None)
    if classes == 0:
        likelihood = ngp.likelihoods.Gaussian(numpyro.sample("noise", dist.LogNormal(-1.0, 1.0)))
    else:
        likelihood = MANY[many](classes) if classes > 2 else ngp.likelihoods.Bernoulli("probit")
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as index:
        ngp.observe("y", f(X[index]), likelihood, obs=None if y is None else y[index])


def recipe(method, gamma, beta, columns):
    """The belief of each method; the decoupled mean has the points of both bases."""
    columns = min(columns, len(gamma))
    return {
        "Coupled": lambda: ngp.guides.coupled(),
        "CoupledNat": lambda: ngp.guides.coupled(natural=True),
        "Orth": lambda: ngp.guides.orthogonal(gamma, columns, train_inputs=True),
        "OrthNat": lambda: ngp.guides.orthogonal(gamma, columns, natural=True, train_inputs=True),
        "Hybrid": lambda: ngp.guides.hybrid(gamma, columns, train_inputs=True),
        "Decoupled": lambda: ngp.guides.decoupled(jnp.concatenate([gamma, beta]), columns, train_inputs=True),
    }[method]()


def kind_of(name, folder):
    """Regression or classification: the folder in which `load` finds a set first, of two with the same name."""
    if name == "blood" or name.startswith("classification/"):
        return "classification"
    known = {kind for kind in KINDS if (Path(folder) / kind / f"{name}.csv.gz").exists()}
    return "classification" if known == {"classification"} else "regression"


def prepare(name, folder):
    """Inputs, targets, masks, and the number of classes (0 for regression)."""
    X, y, splits = load(name, folder)
    if kind_of(name, folder) == "regression":
        return standardise(X), standardise(y[:, None])[:, 0], splits, 0
    labels = np.unique(y, return_inverse=True)[1]
    return standardise(X), labels, splits, int(labels.max()) + 1


def problem(method, data, options, seed):
    """One method on the training rows of one split, ready for ``ngp.fit``."""
    X, y, test, classes = data
    dtype = jnp.float32 if options.single else jnp.float64
    Xt = jnp.asarray(X[~test], dtype)
    yt = jnp.asarray(y[~test], dtype if classes == 0 else jnp.int32)
    key_beta, key_gamma, key_fit, key_predict = jax.random.split(jax.random.key(seed), 4)
    beta = ngp.inducing.kmeans(key_beta, Xt, min(options.beta, len(Xt) // 4), num_iterations=10)
    gamma = ngp.inducing.random_subset(key_gamma, Xt, min(options.gamma, len(Xt) // 2))
    guide = ngp.AutoGP(model, {"f": recipe(method, gamma, beta, options.columns)})
    optimiser = optax.adam(options.learning_rate)
    if method.endswith("Nat"):
        step = ngp.optim.ramp(options.natural_step / 50, options.natural_step, 100, kind="linear")
        optimiser = ngp.optim.natural_gradient(optimiser, step)
    kind = {"classes": classes, "many": options.many}
    keywords = {"inducing": beta, **kind, "batch": min(options.batch, len(Xt))}

    def score(params):
        posterior = ngp.Posterior.from_svi(model, guide, params)
        new, target = jnp.asarray(X[test], dtype), np.asarray(y[test])
        prediction = posterior.predict(key_predict, new, inducing=params["inducing"], **kind)
        density = float(np.mean(np.asarray(prediction.log_density(jnp.asarray(target, yt.dtype)))))
        return {"log_density": density, **errors(np.asarray(prediction.mean), target, classes)}

    return Problem(SVI(model, guide, optimiser, Trace_ELBO()), key_fit, (Xt, yt), keywords, score)


def errors(mean, target, classes):
    """Mean absolute error and RMSE of a regression; accuracy and RMSE of the probabilities of a classification."""
    if classes == 0:
        residual = mean - target
        return {"error": float(np.mean(np.abs(residual))), "rmse": float(np.sqrt(np.mean(residual**2)))}
    probabilities = mean if classes > 2 else np.stack([1 - mean, mean], axis=-1)
    squares = (probabilities - np.eye(max(classes, 2))[target]) ** 2
    accuracy = np.mean(probabilities.argmax(-1) == target)
    return {"error": float(accuracy), "rmse": float(np.sqrt(np.mean(squares)))}


def run(method, data, options, seed):
    """Fit one method on one split and score it on the held-out rows."""
    own = problem(method, data, options, seed)
    start = time.perf_counter()
    fit = ngp.fit(own.key, own.svi, options.steps, *own.arguments, **own.keywords, progress=False)
    seconds = time.perf_counter() - start
    scores = own.score(fit.params)
    return {
        "log_density": scores["log_density"],
        "error": scores["error"],
        "final_loss": float(fit.losses[-min(50, len(fit.losses)) :].mean()),
        "seconds": seconds,
        "beta": len(own.keywords["inducing"]),
        "gamma": 0 if method.startswith("Coupled") else min(options.gamma, len(own.arguments[0]) // 2),
    }


def published(folder):
    """Printed values by (kind, score, set, method)."""
    found = {}
    for (kind, score), (file, unit) in PUBLISHED.items():
        path = Path(folder) / "published" / file
        if path.exists():
            with path.open() as lines:
                for row in csv.DictReader(lines):
                    if row["value"]:
                        found[kind, score, row["dataset"], row["method"]] = unit * float(row["value"])
    return found


def summarise(rows, paper):
    """Print our scores beside the printed ones, then mean, median and mean rank of each method, ours / published."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        part = [row for row in rows if row["kind"] == kind]
        sets, methods = (list(dict.fromkeys(row[key] for row in part)) for key in ("set", "method"))
        for score in ("log_density", "error"):
            name = {"log_density": "test log density", "error": "MAE" if kind == "regression" else "accuracy"}[score]
            found = defaultdict(list)
            for row in part:
                found[row["set"], row["method"]].append(row[score])
            ours = np.array([[np.mean(found[s, m]) if found[s, m] else np.nan for m in methods] for s in sets])
            printed = np.array([[paper.get((kind, score, s, m), np.nan) for m in methods] for s in sets])
            print(f"\n{kind}, {name}: ours / published\n{'':14s}" + "".join(f"{method:>20s}" for method in methods))
            lines = dict(zip(sets, zip(ours, printed, strict=True), strict=True))
            lines |= {"mean": (ours.mean(0), printed.mean(0)), "median": (np.median(ours, 0), np.median(printed, 0))}
            sign = 1 if name == "MAE" else -1  # rank 1 is the best
            lines["mean rank"] = tuple(rankdata(sign * values).mean(0) for values in (ours, printed))
            for label, (own, theirs) in lines.items():
                print(f"{label:14s}" + "".join(f"{a:10.4f}/{b:9.4f}" for a, b in zip(own, theirs, strict=True)))


def rankdata(values):
    """Rank in each row, 1 for the smallest; ties share the mean of their ranks."""
    below = (values[:, None, :] < values[:, :, None]).sum(-1)
    same = (values[:, None, :] == values[:, :, None]).sum(-1)
    return below + (same + 1) / 2


def diagnose(rows):
    """What the run can and cannot show."""
    bad = [f"{row['set']}/{row['method']}" for row in rows if not np.isfinite(row["log_density"])]
    print(f"\nNot finite: {bad}" if bad else "\nEvery score is finite.")
    steps = rows[0]["steps"]
    if steps < 20000:
        print(f"After {steps} steps none of these fits has converged: compare speed of training, not final quality.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--sets", nargs="+", default=["kin40k", "protein", "bike", "keggdirected"])
    parser.add_argument("--splits", type=int, default=1, help="number of train-test splits")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--beta", type=int, default=300, help="points of the covariance")
    parser.add_argument("--gamma", type=int, default=700, help="points of the mean alone")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--natural-step", type=float, default=5e-3)
    parser.add_argument("--many", default="robustmax", choices=MANY, help="likelihood of more than two classes")
    parser.add_argument("--single", action="store_true", help="float32")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", default="examples/output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", not options.single)
    if options.smoke:
        options.steps, options.beta, options.gamma, options.sets = 10, 10, 20, ["energy"]
        options.methods = ["CoupledNat", "OrthNat"]
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows, settings = [], ("steps", "batch", "columns", "learning_rate", "natural_step", "single")
    for name in options.sets:
        X, y, splits, classes = prepare(name, options.data)
        for split in range(options.splits):
            for method in options.methods:
                scores = run(method, (X, y, split_mask(splits, split), classes), options, split)
                kind = "classification" if classes else "regression"
                row = {"kind": kind, "set": name, "split": split, "method": method, **scores}
                row |= {key: getattr(options, key) for key in settings} | {"version": version()}
                rows.append(row)
                save(out / "decoupled_comparison.csv", rows)
                print(
                    f"{name:14s} split {split} {method:10s} log density {row['log_density']:8.4f}  "
                    f"{'MAE' if not classes else 'accuracy'} {row['error']:.4f}  {row['seconds']:6.1f} s",
                    flush=True,
                )
    summarise(rows, published(options.data))
    print(f"\nWritten to {out}/decoupled_comparison.csv")
    diagnose(rows)


if __name__ == "__main__":
    main()
