"""Seconds of a training step on many devices, from what its compiled program says that it computes, moves and sends.

    python -m examples.studies.speed.scale                                         # the committed table
    python -m examples.studies.speed.scale --inducing 4096 --batch 131072 --link 25e9 --latency 3e-5

A step of natural gradients and Adam, rows shared among the devices, is compiled for 1 to 64 devices that one
process pretends to have, and not run: products and bytes are XLA's own cost analysis, factorisations (which XLA leaves
to a library and does not count) and collectives are read off the program's text. A step then takes

    products / rate + factorisations / factor_rate + bytes / memory + collectives / link + number * log2(n) * latency,

a sum over rings: each device sends and receives ``2 (n - 1) / n`` times what is summed. Before that, the same model
predicts steps that run here, on one core and on two, with rates that are measured here. Rates of the table are
assumptions about a GPU, and are arguments.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.tables import save

COLUMNS, KEY = 8, jax.random.key(0)
DEFINED = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$", re.M)
SENDS = re.compile("all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter")
WORD = 4  # bytes of float32


def model(X, y=None, *, Z):
    """Sparse regression, the rows of a batch being its data."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def prepared(inducing, batch, devices, runs=False):
    """A compiled step on the first devices, and its inputs: shapes alone where it is not to run."""
    rng = np.random.default_rng(0)
    X, Z = (rng.normal(size=(count, COLUMNS)).astype(np.float32) for count in (batch, inducing))
    data = X, np.sin(X.sum(1)), Z
    optimiser = ngp.optim.natural_gradient(optax.adam(1e-2), 0.1)
    svi = SVI(model, ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)}), optimiser, Trace_ELBO())
    kinds = {"axis_types": (AxisType.Auto,), "devices": jax.devices()[:devices]}
    mesh = jax.make_mesh((devices,), ("data",), **kinds)
    rows, copies = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    def start():
        return svi.init(KEY, *data[:2], Z=Z)

    def placed(leaf, where):
        return jax.device_put(leaf, where) if runs else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    state = jax.tree.map(lambda leaf: placed(leaf, copies), start() if runs else jax.eval_shape(start))
    step = jax.jit(lambda state, X, y, Z: svi.update(state, X, y, Z=Z), out_shardings=copies)
    inputs = (state, *map(placed, data, (rows, rows, copies)))
    return step.lower(*inputs).compile(), inputs


def sizes(text):
    """Shapes in a type of the program, ``f32[3,4]`` or a tuple of such."""
    return [[int(n) for n in shape.split(",") if n] for shape in re.findall(r"\w\d*\[([\d,]*)\]", text)]


def costs(compiled):
    """What each device computes, moves and sends in one step."""
    whole, text = compiled.cost_analysis(), compiled.as_text()
    types, factor, sent, sends = {}, 0.0, 0, 0
    for name, kind, operation, operands, rest in DEFINED.findall(text):
        types[name] = kind
        if SENDS.fullmatch(operation.removesuffix("-start")):
            sent, sends = sent + WORD * sum(map(math.prod, sizes(kind))), sends + 1
        target = re.search(r'custom_call_target="([^"]+)"', rest)
        if target and re.search("potrf|trsm", target[1]):
            first = re.findall(r"%([\w.-]+)", operands)[0]
            triangle, result = sizes(types[first])[0], sizes(kind)[0]
            each = triangle[-1] ** 3 / 3 if "potrf" in target[1] else triangle[-1] * math.prod(result[-2:])
            factor += each * math.prod(result[:-2])
    moved = whole["bytes accessed"]
    return {"products": whole["flops"], "factorisations": factor, "moved": moved, "sent": sent, "sends": sends}


def predicted(cost, devices, rates):
    """Seconds of a step."""
    ring = 2 * (devices - 1) / devices * cost["sent"] / rates["link"] if devices > 1 else 0.0
    waits = cost["sends"] * rates["latency"] * math.log2(devices)
    own = cost["products"] / rates["rate"] + cost["factorisations"] / rates["factor_rate"]
    return own + cost["moved"] / rates["memory"] + ring + waits


def seconds(function, *inputs, repeats=7):
    """The quickest of some runs."""
    jax.block_until_ready(function(*inputs))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*inputs))
        found.append(time.perf_counter() - start)
    return min(found)


def rates_here(inducing, batch):
    """Products, factorisations and bytes a second of one core, at the sizes of a step."""
    square = jnp.eye(inducing, dtype=jnp.float32) + 0.1 / inducing
    wide = jnp.ones((inducing, batch), jnp.float32)
    product = 2 * inducing**2 * batch / seconds(jax.jit(jnp.matmul), square, wide)
    factor = inducing**3 / 3 / seconds(jax.jit(jnp.linalg.cholesky), square)
    moved = 2 * WORD * wide.size / seconds(jax.jit(lambda x: x + 1), wide)
    return {"rate": product, "factor_rate": factor, "memory": moved}


def link_here(inducing):
    """Bytes a second and the wait of a sum of squares over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    rows, copies = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    add = jax.jit(lambda x: x.sum(0), out_shardings=copies)
    found = []
    for size in (1, inducing):
        found.append(seconds(add, jax.device_put(np.ones((jax.device_count(), size, size), np.float32), rows)))
    return {"link": WORD * inducing**2 / max(found[1] - found[0], 1e-9), "latency": found[0]}


def child(task, inducing, batch, devices):
    """One task in a process with its own devices: a line of JSON for each result."""
    if task == "compile":
        for count in devices:
            for size in inducing:
                found = {"inducing": size, "batch": batch, "devices": count, **costs(prepared(size, batch, count)[0])}
                print(json.dumps(found), flush=True)
        return
    (count,) = devices
    for size in inducing:
        compiled, inputs = prepared(size, batch, count, runs=True)
        speeds = rates_here(size, batch) if count == 1 else link_here(size)
        found = {"inducing": size, "batch": batch, "devices": count, **costs(compiled), "rates": speeds}
        print(json.dumps({**found, "measured": seconds(compiled, *inputs)}), flush=True)


def asked(task, inducing, batch, devices):
    """What a child says that has as many devices as are asked for, on as many cores where it measures."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={max(devices)}"
    names = {"--inducing": inducing, "--devices": devices}
    arguments = [str(word) for name, values in names.items() for word in (name, *values)]
    command = [sys.executable, "-m", "examples.studies.speed.scale", "--task", task, "--batch", str(batch), *arguments]
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    cores = os.sched_getaffinity(0)
    if task == "measure":
        os.sched_setaffinity(0, sorted(cores)[: max(devices)])  # what is started now stays on them
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        os.sched_setaffinity(0, cores)
    return [json.loads(line) for line in done.stdout.splitlines()]


def checked(inducing, batch):
    """Predictions and measurements on one core and on two."""
    alone, both = asked("measure", inducing, batch, [1]), asked("measure", inducing, batch, [2])
    rows = []
    for one, two in zip(alone, both, strict=True):
        for found in (one, two):
            rates = {**one["rates"], **two["rates"]}
            found["predicted"] = predicted(found, found["devices"], rates)
            rows.append({name: found[name] for name in found if name != "rates"})
    return rows


def main(argv=None):
    """Check the model here, then print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inducing", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--batch", type=int, default=65536)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--rate", type=float, default=4e13, help="flops a second of products")
    parser.add_argument("--factor-rate", type=float, default=5e12, help="flops a second of factorisations")
    parser.add_argument("--memory", type=float, default=2.5e12, help="bytes a second")
    parser.add_argument("--link", type=float, nargs="+", default=[4e11, 2.5e10], help="bytes a second between devices")
    parser.add_argument("--latency", type=float, default=1e-5, help="seconds")
    parser.add_argument("--task", choices=["compile", "measure"], help=argparse.SUPPRESS)
    parser.add_argument("--out", default="examples/output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(argv)
    if options.task:
        return child(options.task, options.inducing, options.batch, options.devices)
    if options.smoke:
        options.inducing, options.batch, options.devices = [8], 64, [1, 2]
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    here = checked([8], 64) if options.smoke else checked([256, 512], 8192)
    save(folder / "scale_here.csv", here)
    for row in here:
        print(
            "here: M {inducing}, {devices} devices: {predicted:.4f} s predicted, {measured:.4f} s measured".format(
                **row
            )
        )
    rows = asked("compile", options.inducing, options.batch, options.devices)
    rows.sort(key=lambda row: (row["inducing"], row["devices"]))
    fixed = {name: getattr(options, name) for name in ("rate", "factor_rate", "memory", "latency")}
    for link in options.link:
        name = f"ms at {link:.3g} B/s"
        for row in rows:
            row[name] = round(1e3 * predicted(row, row["devices"], {**fixed, "link": link}), 3)
        for size in options.inducing:
            times = {row["devices"]: row[name] for row in rows if row["inducing"] == size}
            pays = [n for n in times if n // 2 in times and times[n] < 0.75 * times[n // 2]]
            print(f"M {size}, {link:.3g} B/s: {times}; doubling saves a quarter up to {max(pays, default=1)} devices")
    save(folder / "scale.csv", rows)
    print(
        "Distrust it where a prediction above is far from what was measured: its rates are then not those of the step."
    )


if __name__ == "__main__":
    main()
