"""A GPU beside the CPU of the same machine: losses, parameters, predictions and densities, in both precisions.

    python -m tests.gpu

For each engine: the same start and the same keys on both devices, three steps, and how far losses, parameters and
predictions are apart, relative to their size. Parameters are shown and not judged: Adam divides a gradient that is
nothing but rounding by its size. In single precision a GPU may multiply with ten bits, which shows here as errors of
1e-3 and more where all bits give 1e-6.
"""

import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import potential_energy

import numpyro_gp as ngp
from numpyro_gp.programs.set_up import abstract_trace, in_one_program
from tests.precision import x64

ROWS, COLUMNS, POINTS, STEPS = 400, 3, 50, 3
# What a step in single precision may differ by: sums of a thousand terms in another order. Ten bits would give 1e-3.
ALLOWED = {"float64": 1e-9, "float32": 2e-4}


def lengthscale():
    return numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5).expand([COLUMNS]).to_event(1))


def noise():
    return numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))


def sparse(X, y=None, *, Z, batch=None):
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale()), numpyro.param("Z", Z))
    scale = noise()
    with numpyro.plate("data", len(X), subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[rows])


def labels(X, y=None, *, Z):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale()), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=None if y is None else (y > 0).astype(int))


def additive(X, y=None, *, Z):
    kernels = {name: ngp.kernels.RBF(1.0, 1.0).on([at]) for at, name in enumerate("abc")}
    f = ngp.additive_gp("f", kernels, dict.fromkeys(kernels, Z))
    scale = noise()
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(scale), obs=y)


def deep(X, y=None, *, Z):
    inner = ngp.gp("g", ngp.kernels.RBF(1.0, lengthscale()), Z, outputs=2)
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z[:, :2])
    scale = noise()
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(inner.draw("h", X)), ngp.likelihoods.Gaussian(scale), obs=y)


def exact(X, y=None, *, Z):
    ngp.gp_regression("y", ngp.kernels.Matern52(1.0, lengthscale()), X, noise_variance=noise(), obs=y)


def collapsed(X, y=None, *, Z):
    ngp.gp_regression("y", ngp.kernels.Matern52(1.0, lengthscale()), X, inducing=Z, noise_variance=noise(), obs=y)


def by_neighbours(near, y=None, *, Z, batch=None):
    kernel = ngp.kernels.Matern52(1.0, lengthscale())
    scale = noise()
    with numpyro.plate("data", near.size, subsample_size=batch) as rows:
        ngp.gp_regression("y", kernel, near[rows], scale**2, obs=y)


def labels_by_neighbours(near, y=None, *, Z):
    kernel = ngp.kernels.RBF(1.0, lengthscale())
    with numpyro.plate("data", near.size) as rows:
        f = ngp.gp("f", kernel, near[rows])
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Bernoulli(), obs=None if y is None else (y > 0).astype(int))


def svi(model, recipe=None, loss=None, natural=False):
    optimiser = ngp.optim.natural_gradient(optax.adam(0.01), 0.1) if natural else optax.adam(0.01)
    return SVI(model, ngp.AutoGP(model, {"f": recipe} if recipe else None), optimiser, loss or Trace_ELBO())


def problem(dtype):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(ROWS, COLUMNS))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=ROWS)
    return X.astype(dtype), y.astype(dtype), X[:POINTS].astype(dtype)


def engines(Z):
    return {
        "Adam": (svi(sparse), {}),
        "minibatch": (svi(sparse), {"batch": 100}),
        "natural": (svi(sparse, ngp.guides.coupled(natural=True), natural=True), {}),
        "orthogonal": (svi(sparse, ngp.guides.orthogonal(Z + 0.1, columns=8, natural=True), natural=True), {}),
        "labels": (svi(labels), {}),
        "additive": (svi(additive, ngp.guides.block_diagonal()), {}),
        "deep": (svi(deep), {}),
        "importance weighted": (svi(deep, loss=ngp.ImportanceWeightedELBO(3)), {}),
        "exact": (svi(exact), {}),
        "collapsed": (svi(collapsed), {}),
        "neighbours": (svi(by_neighbours), {"batch": 100}),
        "labels by neighbours": (svi(labels_by_neighbours, natural=True), {}),
        "particles": (ngp.stein.SVGD(labels, optax.adam(0.01), num_stein_particles=5), {}),
    }


def away(found, wanted):
    """Norm of the difference over that of what is wanted."""
    found, wanted = (
        np.concatenate([np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(t)]) for t in (found, wanted)
    )
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)) if np.isfinite(found).all() else np.inf


def trained(device, step, start, engine, data):
    """Losses and parameters after some steps on one device."""
    with jax.default_device(device):
        state, losses = jax.device_put(start, device), []
        arrays = jax.device_put(data, device)
        for _ in range(STEPS):
            state, loss = step(state, *arrays)
            losses.append(loss)
        return np.asarray(losses), jax.device_get(engine.get_params(state))


def predicted(device, engine, params, data, Z):
    with jax.default_device(device):
        posterior = ngp.Posterior.from_svi(engine.model, engine.guide, jax.device_put(params, device))
        found = posterior.predict(jax.random.key(1), data[0] + 0.05, Z=Z)
        return np.asarray(found.mean), np.asarray(found.variance)


def potential(device, model, data, Z):
    """The density that NUTS sees, and its gradient."""
    with jax.default_device(device):
        data, Z = jax.tree.map(jnp.asarray, (data, Z))
        sites = abstract_trace(model, data, {"Z": Z}).items()
        latent = {name: site["value"] for name, site in sites if site["type"] == "sample" and not site["is_observed"]}
        point = {name: jnp.full(value.shape, 0.1, value.dtype) for name, value in latent.items()}
        density = jax.jit(jax.value_and_grad(lambda point: potential_energy(model, data, {"Z": Z}, point)))
        return jax.device_get(density(point))


def compare(device, dtype, names=None):
    """The worst difference of each engine, or of those of some names, and of two densities."""
    X, y, Z = problem(dtype)
    near = ngp.neighbours(X, 8, others=True)
    cpu, worst, known = jax.devices("cpu")[0], {}, engines(Z)
    for name in known if names is None else names:
        engine, options = known[name]
        data = (near if "neighbours" in name else X, y, Z)
        with jax.default_device(cpu):
            setup = lambda: engine.init(jax.random.key(0), *data[:2], Z=Z, **options)  # noqa: B023, E731
            start = jax.device_get(in_one_program(setup, engine))
        step = jax.jit(lambda state, X, y, Z: engine.update(state, X, y, Z=Z, **options))  # noqa: B023
        (wanted, params), (losses, own) = (trained(one, step, start, engine, data) for one in (cpu, device))
        found = {"losses": away(losses, wanted), "parameters": away(own, params)}
        if name in ("Adam", "orthogonal", "deep"):
            found["predictions"] = away(*(predicted(one, engine, params, (X, y), Z) for one in (device, cpu)))
        worst[name] = max(error for part, error in found.items() if part != "parameters")
        print(f"{dtype} {name:20s}" + "".join(f"  {part} {error:.1e}" for part, error in found.items()), flush=True)
    for model in (sparse, exact):
        worst[f"density of {model.__name__}"] = away(*(potential(one, model, (X, y), Z) for one in (device, cpu)))
        print(
            f"{dtype} density and gradient of {model.__name__}: {worst[f'density of {model.__name__}']:.1e}", flush=True
        )
    return worst


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--dtypes", nargs="+", default=list(ALLOWED), choices=ALLOWED)
    options, device, failed = parser.parse_args(), jax.devices()[0], []
    print(f"{device.device_kind} ({device.platform}), jax {jax.__version__}, numpyro {numpyro.__version__}")
    for dtype in options.dtypes:
        with x64(dtype == "float64"):
            worst = compare(device, dtype)
        failed += [f"{name} in {dtype}: {error:.1e}" for name, error in worst.items() if not error < ALLOWED[dtype]]
    print("\nAll agree." if not failed else "\nNot within what is allowed: " + "; ".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
