"""What eight devices give where one would do: run as a program, it prints a line of JSON for each check.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.devices  # or one of its parts, rows or shares
"""

import functools
import json
import re
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
import tests.conftest  # noqa: F401  (settings of every test: most of the time is tracing, which these make quicker)
from numpyro_gp.programs import compiled as keep
from numpyro_gp.training import loop

START = time.perf_counter()
KEY, MATRIX = jax.random.key(0), 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 2))
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
Z = RNG.normal(size=(MATRIX, 2))
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def sparse(X, y=None, *, Z, batch=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(0.3), obs=None if y is None else y[rows])


def weighted(X, y=None, *, Z, batch=None):
    """Latent inputs, and above them a layer of which K samples of a datum share a draw."""
    Z = jnp.concatenate([Z, Z[:, :1]], axis=1)
    inner = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), Z)
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z[:, :1])
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        drawn = inner.draw("noise", ngp.latent_inputs("w", X[rows]))
        ngp.observe("y", f(drawn[..., None]), ngp.likelihoods.Gaussian(0.3), obs=y[rows])


def latent(X, y=None, *, Z):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.concatenate([Z, Z[:, :1]], axis=1))
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.3), obs=y)


def svi(model, recipes=None, optimiser=None, loss=None):
    return SVI(model, ngp.AutoGP(model, recipes), optimiser or optax.adam(0.01), loss or Trace_ELBO())


def natural(model, **recipes):
    return svi(model, recipes, ngp.optim.natural_gradient(optax.adam(0.01), 0.1))


def importance(model, count, **options):
    network = ngp.guides.amortised(ngp.guides.encoder((2,)))
    return svi(model, {"w": network}, loss=ngp.ImportanceWeightedELBO(count, **options))


def engines():
    Z_gamma = np.concatenate([Z, Z + 0.5])
    return {
        "orthogonal": natural(sparse, f=ngp.guides.orthogonal(Z_gamma, columns=2, natural=True)),
        "weighted": importance(weighted, 4),
    }


def difference(one, other):
    pairs = zip(jax.tree.leaves((one.params, one.losses)), jax.tree.leaves((other.params, other.losses)), strict=True)
    return max(float(jnp.max(jnp.abs(np.asarray(a) - np.asarray(b)) / (1 + np.abs(np.asarray(b))))) for a, b in pairs)


def fit(engine, *data, steps=3, **options):
    return ngp.fit(KEY, engine, steps, *data, Z=Z, progress=False, **options)


def collectives(compiled):
    """What devices send to one another in a program: the kinds, and the size of the largest."""
    found = COLLECTIVE.findall(compiled.as_text())
    shapes = [shape for what, _ in found for shape in re.findall(r"\w+\[([\d,]*)\]", what)]
    sizes = [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]
    return sorted({kind for _, kind in found}), max(sizes, default=0)


def watched(build, programs):
    """`compiled_loop`, with what its program sends noted; that of an earlier fit is not used again."""
    keep._programs.clear()

    def compiled(*args):
        advance, kept = build(*args), []

        def run(*inputs):
            if not kept:
                kept.append(jax.jit(advance).lower(*inputs).compile())
                programs.append(collectives(kept[0]))
            return kept[0](*inputs)

        return run

    return compiled


def say(name, value):
    print(json.dumps({name: value, "seconds": round(time.perf_counter() - START, 1)}), flush=True)


def refusal(function):
    try:
        function()
    except (TypeError, ValueError) as error:
        return str(error)


def main():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    for part in sys.argv[1:] or ["rows", "shares"]:
        {"rows": pieces, "shares": shares}[part](mesh, loop.compiled_loop)


def step(name, rows, build):
    """The same steps on one device and on eight, and what these send."""
    programs = []
    wanted = fit(engines()[name], X, Y)
    loop.compiled_loop = watched(build, programs)
    found = fit(engines()[name], X, Y, sharding=rows)
    loop.compiled_loop = build
    say(name, {"difference": difference(found, wanted), "collectives": programs[0]})


def pieces(mesh, build):
    """Rows in pieces, whole and in minibatches, and predictions of them."""
    rows = NamedSharding(mesh, PartitionSpec("data"))
    step("orthogonal", rows, build)
    engine, placed = svi(sparse), (jax.device_put(X, rows), jax.device_put(Y, rows))
    whole = fit(engine, X, Y)
    say("placed", difference(fit(engine, *placed), whole))
    parts = [(X[at : at + 16], Y[at : at + 16]) for at in (0, 16)] + [(X[:9], Y[:9])]
    stream = {"batches": parts, "num_data": 41}
    say("stream", difference(fit(engine, sharding=rows, **stream), fit(engine, **stream)))
    minibatches(engine, rows, build)
    neighbours(rows, build)
    predictions(whole, engine, placed)
    say("ragged", refusal(lambda: fit(engine, X[:31], Y[:31], sharding=rows)))
    say("short", refusal(lambda: fit(engine, X, Y, batch=12, sharding=rows)))
    say("clash", refusal(lambda: clash(rows)))
    say("columns", refusal(lambda: fit(engine, X, Y, sharding=NamedSharding(mesh, PartitionSpec(None, "data")))))
    say("kind", refusal(lambda: fit(engine, X, Y, sharding=mesh)))
    explicit = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    say("explicit", refusal(lambda: fit(engine, X, Y, sharding=NamedSharding(explicit, PartitionSpec("data")))))


def shares(mesh, build):
    """Particles and importance samples on devices of their own."""
    step("weighted", NamedSharding(mesh, PartitionSpec("data")), build)
    particles(mesh, build)
    samples(build)


def clash(rows):
    """Inducing inputs as long as the data cannot be told from them."""
    return ngp.fit(KEY, svi(sparse), 1, X, Y, Z=X + 0.01, batch=16, sharding=rows, progress=False)


def minibatches(engine, rows, build):
    """Each device has rows of its own piece, and the step's program sends no more than with all rows."""
    from numpyro_gp.rows.call import call_of
    from numpyro_gp.rows.devices import Placement
    from numpyro_gp.rows.feeds import Drawn, _drawn_rows

    placement, programs = Placement(rows), []
    drawn = Drawn(KEY, call_of(None, (jnp.arange(32), jnp.arange(32.0)), {}), (True, True), 16, placement)
    numbers = [np.asarray(drawn.arrays()[0]).reshape(8, 2)]
    for _ in range(40):
        drawn.prefetch()
        numbers.append(np.asarray(drawn.arrays()[0]).reshape(8, 2))
    numbers = np.stack(numbers)
    say("own", bool((numbers // 4 == np.arange(8)[None, :, None]).all() and (numbers[..., 0] != numbers[..., 1]).all()))
    say("counts", np.bincount(numbers.ravel(), minlength=32).tolist())
    say("drawing", collectives(_drawn_rows.lower(drawn.whole[:2], KEY, 0, 16, placement).compile()))
    loop.compiled_loop = watched(build, programs)
    first = fit(engine, X, Y, batch=16, sharding=rows)
    loop.compiled_loop = build
    longer = fit(engine, X, Y, batch=16, sharding=rows, steps=5)
    resumed = fit(engine, X, Y, batch=16, sharding=rows, steps=5, resume=first)
    taken = [np.asarray(part) for part in _drawn_rows([X, Y], KEY, 0, 16, placement)]
    one = fit(engine, steps=1, batches=[taken], num_data=32)
    say("minibatch", {"difference": abs(float(one.losses[0] - first.losses[0])), "collectives": programs[0]})
    say("resumed", difference(resumed, longer))


def stein(**options):
    return ngp.stein.SVGD(sparse, optax.adam(0.01), num_stein_particles=8, **options)


def neighbours(rows, build):
    """Rows with neighbours, all of them and in minibatches, found anew on the way: as on one device."""

    def model(near, y, batch=None):
        kernel = ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0)))
        with numpyro.plate("data", near.size, subsample_size=batch) as idx:
            ngp.gp_regression("y", kernel, near[idx], 0.1, obs=y)

    near, found, programs = ngp.neighbours(X, 4), {}, []
    for batch in (None, 16):
        engine = SVI(model, ngp.AutoGP(model), optax.sgd(1e-3), Trace_ELBO())
        run = functools.partial(ngp.fit, KEY, engine, 8, near, jnp.asarray(Y), batch=batch, progress=False)
        wanted = run()
        loop.compiled_loop = watched(build, programs)
        found[str(batch)] = difference(run(sharding=rows), wanted)
        loop.compiled_loop = build
    engine = SVI(model, ngp.AutoGP(model), optax.sgd(1e-3), Trace_ELBO())
    refused = refusal(lambda: ngp.fit(KEY, engine, 1, near, jnp.asarray(Y), batch=12, sharding=rows, progress=False))
    say("neighbours", found | {"refused": refused, "collectives": programs[-1]})


def particles(mesh, build):
    """A particle on each device; and four on each of two halves, with a quarter of the rows for each device."""
    wanted, programs = fit(stein(), X, Y), []
    loop.compiled_loop = watched(build, programs)
    shared = NamedSharding(mesh, PartitionSpec("data"))
    found = fit(stein(sharding=shared), X, Y)
    loop.compiled_loop = build
    say("particles", {"difference": difference(found, wanted), "collectives": programs[0]})
    curved = {"kernel_fn": ngp.stein.Moments(ngp.stein.IMQ()), "metric": ngp.stein.Curvature(every=1)}
    side_by_side = fit(stein(sharding=shared, evaluation="vmap", **curved), X, Y)
    say("curved", difference(side_by_side, fit(stein(**curved), X, Y)))
    both = jax.make_mesh((2, 4), ("particles", "data"), axis_types=(AxisType.Auto,) * 2)
    halves, quarters = (NamedSharding(both, PartitionSpec(name)) for name in ("particles", "data"))
    say("both", difference(fit(stein(sharding=halves), X, Y, sharding=quarters), wanted))
    say("seven", refusal(lambda: ngp.stein.SVGD(sparse, optax.adam(0.01), num_stein_particles=7, sharding=shared)))
    say("axis", refusal(lambda: NamedSharding(mesh, PartitionSpec("rows"))))


def samples(build):
    """Four of eight samples on each half of the devices: all rows there, or a quarter of them on each device."""
    mesh = jax.make_mesh((2, 4), ("samples", "data"), axis_types=(AxisType.Auto,) * 2)
    halves, quarters = (NamedSharding(mesh, PartitionSpec(name)) for name in ("samples", "data"))
    wanted = fit(importance(latent, 8), X, Y)
    for name, rows in (("samples", None), ("samples and rows", quarters)):
        programs = []
        loop.compiled_loop = watched(build, programs)
        found = fit(importance(latent, 8, sharding=halves), X, Y, sharding=rows)
        loop.compiled_loop = build
        say(name, {"difference": difference(found, wanted), "collectives": programs[0]})
    say("odd", refusal(lambda: ngp.ImportanceWeightedELBO(3, sharding=halves)))
    say("joint", refusal(lambda: fit(importance(weighted, 4, sharding=halves), X, Y)))
    say("same axis", refusal(lambda: fit(importance(latent, 4, sharding=halves), X, Y, sharding=halves)))


def predictions(result, engine, placed):
    posterior = ngp.Posterior.from_svi(sparse, engine.guide, result.params)
    one, many = (posterior.predict(KEY, data, Z=Z) for data in (X, placed[0]))
    say("predicted", float(jnp.max(jnp.abs(one.mean - np.asarray(many.mean)))))
    say("shared", len(many._chunks[0].mean_latent.sharding.device_set))


if __name__ == "__main__":
    main()
