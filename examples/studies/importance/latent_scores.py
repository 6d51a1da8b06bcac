"""Sets on which the paper prints large gains of latent inputs: importance weights, depth, and three scores.

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.importance.latent_scores --data DATA

Salimbeni, Dutordoir et al. (2019) score a test row by a kernel density estimate of predictive draws. Here the mixture
of the model is scored itself, with latent inputs from the guide (`ngp.conditional_density.log_density`), and with those
from the prior: where the noise is small none of 500 comes near to a row, and that score is too low by many nats. Fits
by VI, and by IW with K importance samples, are those of `long_runs`, at the paper's 128 inducing inputs and
batches of 512. The latent input starts near zero (usual), or at the targets (`layers.starts`), from where it is
found on sets on which the usual start leaves it unused. Where a split has both, the fit with the higher bound of
training rows counts. With two layers the inner one mixes five functions and carries the
latent input on, where there is one: GP-GP says what depth gains alone. Rows that are there are not made again.
"""

import argparse
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import gaussian_kde

import numpyro_gp as ngp
from examples.studies.importance import deep_models
from examples.studies.tables import printed_tables
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import version
from examples.tools.tables import bold, direction, markdown, of_mean, read, save, with_error

METHODS = ("GP VI", "LV-GP VI", "LV-GP IW", "LV-GP-GP VI", "LV-GP-GP IW", "GP-GP VI")
STARTS = {"usual": {}, "targets": {"start": 0}}
PAIRS = ((1, 0), (2, 1), (3, 1), (4, 3))
DEPTH_ALONE = ((5, 0), PAIRS[0])
SETS = ("forest", "solar", "airfoil", "bike", "power")
SCORES = {"weighted": "draws of the guide", "mixture": "draws of the prior", "estimate": "kernel estimate"}


def estimated(draws, y):
    """Log densities of ``y`` ``(N,)`` by Gaussian kernels at ``draws`` ``(S, N)``, of the bandwidth of Scott's rule."""
    return np.array([gaussian_kde(own).logpdf(one)[0] for own, one in zip(draws.T, y, strict=True)])


def scored(method, start, data, split, options):
    """Fit by a method from a start: three scores, the least log density of a row, the bound of one, and CPU seconds."""
    (name, way), began = method.split(), time.process_time()
    inputs, targets, masks = data
    test = split_mask(masks, split)
    X, y = standardise(inputs), standardise(targets[:, None])[:, 0]
    Xt, yt = jnp.asarray(X[~test]), jnp.asarray(y[~test])
    mixing = None if options.one_for_each_column else deep_models.INNER_WIDTH
    carry = {"carry_latent": True, "mixing": mixing} if name == "LV-GP-GP" else {}  # cut off, it is left unused
    model, guide = deep_models.build(name, Xt, options.inducing, seed=split, **carry, **STARTS[start])
    samples, rate = options.samples if way == "IW" else 1, optax.exponential_decay(0.005, 1000, 0.98)
    svi = deep_models.engine(model, guide, samples=samples, adam=rate)
    batch = options.batch if options.batch < len(Xt) else None
    result = ngp.fit(jax.random.key(split), svi, options.steps, Xt, yt, batch=batch, progress=False)
    posterior, X, y = ngp.Posterior.from_svi(model, guide, result.params), jnp.asarray(X[test]), jnp.asarray(y[test])
    prediction = posterior.predict(jax.random.key(1), X, num_samples=options.draws)
    found = {"mixture": np.asarray(prediction.log_density(y))}
    found["estimate"] = estimated(np.asarray(prediction.sample(options.draws)), np.asarray(y))
    found["weighted"] = deep_models.log_density(posterior, prediction, X, y, num_samples=options.draws)
    found = {score: values.mean() for score, values in found.items()} | {"worst": found["weighted"].min()}
    found["bound"] = -np.mean(result.losses[-options.steps // 10 :]) / len(Xt)
    return {key: f"{value:.4f}" for key, value in found.items()} | {"seconds": f"{time.process_time() - began:.0f}"}


def chosen(rows, name, method, starts=STARTS):
    """The row of each split of a set and method, that of the higher bound where there are two starts."""
    own = [row for row in rows if (row["set"], row["method"]) == (name, method) and row["start"] in starts]
    return {row["split"]: row for row in sorted(own, key=lambda row: float(row["bound"] or "-inf"))}


def gains(rows, name, score="weighted", pair=PAIRS[0], starts=STARTS):
    """By how much the first method of a pair is ahead of the second, over the splits of a set that have both.

    Where both have a latent input, only starts count that both have in a split; none where fewer than three splits are
    left.
    """
    methods = [METHODS[place] for place in pair]
    own = [row for row in rows if (row["set"], row["start"] in starts) == (name, True) and row["method"] in methods]
    if all("LV" in method for method in methods):
        places = [{(row["split"], row["start"]) for row in own if row["method"] == method} for method in methods]
        own = [row for row in own if (row["split"], row["start"]) in places[0] & places[1]]
    first, second = (chosen(own, name, method) for method in methods)
    gaps = [float(first[split][score]) - float(second[split][score]) for split in sorted(first) if split in second]
    return gaps if len(gaps) > 2 else []


def difference(gaps):
    """``mean ± error``, bold where a t test at 5 % sees it; how many splits stand at the beginning of the line."""
    return bold(with_error(*of_mean(gaps)), direction(gaps)) if gaps else ""


def with_latent_inputs(rows):
    """Sets with rows of LV-GP: without, there is no gain to show."""
    return dict.fromkeys(row["set"] for row in rows if row["method"] == METHODS[1])


def table(rows, folder=None):
    """Markdown: sets against LV-GP, its gain by each score, and the gain that the paper prints where ``folder`` is."""
    found, lines = printed_tables.printed(folder, "deep") if folder else {}, []
    for name in with_latent_inputs(rows):
        own = [row for row in rows if row["set"] == name]
        best = of_mean([float(row["weighted"]) for row in chosen(own, name, METHODS[1]).values()])
        pair = [found.get((name, method)) for method in METHODS[:2]]
        printed = "" if None in pair else f"{pair[1] - pair[0]:.2f}"
        splits = len({row["split"] for row in own})
        lines.append(
            [f"{name} ({splits})", with_error(*best), *(difference(gains(own, name, s)) for s in SCORES), printed]
        )
    return markdown(
        ["set (splits)", METHODS[1], *(f"gain, {words}" for words in SCORES.values()), "gain, printed"], lines
    )


def pairs(rows, folder=None, shown=PAIRS[1:]):
    """Markdown: what weights and depth gain on sets that have rows of them, and in brackets what the paper prints."""
    found, lines = printed_tables.printed(folder, "deep") if folder else {}, []
    own = {METHODS[first] for first, _ in shown} - {METHODS[1]}  # which has tables of its own
    for name in dict.fromkeys(row["set"] for row in rows if row["method"] in own):
        cells = []
        for pair in shown:
            first, second = (METHODS[place] for place in pair)
            both = {(name, first), (name, second)} <= set(found)
            said = f" ({found[name, first] - found[name, second]:.2f})" if both else ""
            gaps = gains(rows, name, pair=pair)
            cells.append(difference(gaps) + said if gaps else "")
        splits = {row["split"] for row in rows if row["set"] == name and row["method"] in own}
        lines.append([f"{name} ({len(splits)})", *cells])
    return markdown(["set (splits)", *(f"{METHODS[a]} - {METHODS[b]}" for a, b in shown)], lines)


def levels(rows, folder=None):
    """Markdown: test densities of GP and LV-GP beside those that the paper prints: with more, there is less to gain."""
    found, lines = printed_tables.printed(folder, "deep") if folder else {}, []
    for name in with_latent_inputs(rows):
        cells = []
        for method in METHODS[:2]:
            own = [float(row["weighted"]) for row in chosen(rows, name, method).values()]
            cells += [with_error(*of_mean(own)), f"{found[name, method]:.2f}" if (name, method) in found else ""]
        lines.append([name, *cells])
    return markdown(["set", *(f"{method}, {whose}" for method in METHODS[:2] for whose in ("ours", "printed"))], lines)


def by_start(rows):
    """Markdown: what the start at the targets adds to bound and test density of LV-GP by VI, where a set has both."""
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows if row["start"] == "targets"):
        usual, targets = (chosen(rows, name, METHODS[1], (start,)) for start in STARTS)
        both = [split for split in targets if split in usual and usual[split]["bound"]]
        gaps = {
            key: [float(targets[split][key]) - float(usual[split][key]) for split in both]
            for key in ("bound", "weighted")
        }
        if both:
            higher = f"{sum(gap > 0 for gap in gaps['bound'])} of {len(both)}"
            lines.append([name, higher, *(difference(gap) for gap in gaps.values())])
    return markdown(["set", "higher bound", "bound per row", "test log density"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS[:2]))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=["usual"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--samples", type=int, default=5, help="importance samples of IW")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--one-for-each-column", action="store_true", help="in place of five mixed functions")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.inducing, options.draws = ["challenger"], 2, 5, 4, 10
        options.methods, options.starts = [METHODS[place] for place in (0, 1, 4)], list(STARTS)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "latent_scores.csv"
    rows, code = read(path), version()
    for name in options.sets:
        data = load(name, options.data)
        for split in range(options.splits):
            for method, start in itertools.product(options.methods, options.starts):
                place = {"set": name, "split": split, "method": method, "start": start}
                if (start != "usual" and "LV" not in method) or any(place.items() <= row.items() for row in rows):
                    continue
                row = place | scored(method, start, data, split, options)
                rows.append(row | {"steps": options.steps, "version": code})
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows), pairs(rows), by_start(rows), sep="\n")


if __name__ == "__main__":
    main()
