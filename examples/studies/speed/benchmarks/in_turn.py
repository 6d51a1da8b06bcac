"""Another version of the package beside this one, in turn: the ratio of processor times of each benchmark.

    git worktree add /tmp/before 5838771
    python -m examples.studies.speed.benchmarks.in_turn --before /tmp/before

Each version has a process on one thread, which builds and compiles what the benchmarks of this folder time. Steps are
compiled as each version's `fit` does, and their programs are then loaded into one process: in two of them the same
program can take a tenth more. What runs more than a program is asked of the version's own.
Both are asked in turns, for a fifth of a second at once, so that what else the machine does meets both alike. A ratio
is the median over the rounds, of medians; above one the other version is quicker.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from examples.studies.tables.page_tables import versions
from examples.tools.clock import THREADS
from examples.tools.run_queue import version
from examples.tools.tables import read, save

ROOT = Path(__file__).parents[4]
OUT = ROOT / "examples" / "studies" / "speed" / "versions.csv"
BLOCK = 0.2  # seconds of one turn


def steps(register):
    """Steps of an engine, by the benchmarks that are tests here."""
    from examples.studies.speed.benchmarks import test_additive, test_core, test_decoupled, test_deep, test_stein

    for dtype in ("float32", "float64"):
        for size in (128, 512):
            name = f"step, {dtype}, M = {size}"
            register.of(name, test_core.test_a_step_costs_little_more_than_its_matrix_products, size, dtype, most=1)
    decoupled = test_decoupled.test_seconds_of_a_step_against_the_number_of_mean_points
    register.of("decoupled", decoupled, double=False)
    for part in ("depth", "samples", "width_and_inducing_points"):
        register.of(f"deep, {part}", getattr(test_deep, f"test_{part}"))
    for batch in (None, 256):
        register.of(f"Stein, batch {batch}", test_stein.test_a_step_costs_a_score_a_particle, batch, most=3)
    register.of("additive", test_additive.test_cost_is_linear_in_components_and_in_the_batch)


def predictions(register):
    """What is asked of a known model once more, and 40 000 rows with 512 inducing inputs."""
    import jax

    from examples.studies.speed.benchmarks import again

    jax.config.update("jax_enable_x64", False)
    for name, call in again.calls(again.engine()).items():
        register.add(name, call)
    for dtype in (np.float32, np.float64):
        jax.config.update("jax_enable_x64", dtype is np.float64)
        register.add(f"predict 40 000 rows, {np.dtype(dtype).name}", of_many_rows(dtype))


def of_many_rows(dtype):
    """A call that predicts them."""
    import jax
    import jax.numpy as jnp
    import numpyro

    import numpyro_gp as ngp

    rng, one = np.random.default_rng(0), dtype(1)
    X, Z = (jnp.asarray(rng.uniform(-3, 3, (rows, 4)), dtype) for rows in (40_000, 512))

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(one, one), Z)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1 * one), obs=y)

    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.asarray(rng.normal(size=(1, 512)), dtype)})
    return lambda: posterior.predict(jax.random.key(0), X).mean


def gams(register):
    """Fits by a formula."""
    import jax

    import numpyro_gp as ngp

    jax.config.update("jax_enable_x64", False)
    rng, rows = np.random.default_rng(0), 1000
    table = {f"x{d}": rng.uniform(size=rows) for d in range(4)} | {"g": rng.choice(list("abcde"), rows)}
    f = np.sin(6 * table["x0"]) + table["x1"] ** 2
    table |= {
        "y": f + 0.3 * rng.normal(size=rows),
        "n": rng.poisson(np.exp(f)),
        "w": np.exp(f) * rng.gamma(5, 0.2, rows),
    }
    table["label"] = (rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * f))).astype(int)
    many = {name: np.tile(column, 20) for name, column in table.items()}
    many["y"] = many["y"] + 0.1 * rng.normal(size=20 * rows)
    for formula, family in (
        ("y ~ s(x0)", None),
        ("y ~ s(x0) + s(x1) + s(x2) + s(x3)", None),
        ("y ~ te(x0, x1) + s(x2)", None),
        ("y ~ s(x0, by=g) + s(x1)", None),
        ("label ~ s(x0) + s(x1)", "bernoulli"),
        ("n ~ s(x0) + s(x1)", "poisson"),
        ("n ~ s(x0) + s(x1)", "negative_binomial"),
        ("w ~ s(x0) + s(x1)", "gamma"),
    ):
        options = {} if family is None else {"family": family}
        call = lambda formula=formula, options=options: ngp.gam(formula, table, **options)  # noqa: E731
        register.add(f"gam, {formula}" + (f", {family}" if family else ""), call)
    register.add("gam, y ~ s(x0) + s(x1), 20 000 rows", lambda: ngp.gam("y ~ s(x0) + s(x1)", many))


def options_of_fit(program):
    """How this version compiles a long fit of such steps; older ones left it to the compiler."""
    from numpyro_gp.programs import scheduler

    if not hasattr(scheduler, "compiler_options"):
        return None
    from numpyro_gp.programs.trace import bytes_of

    return scheduler.compiler_options(largest=bytes_of(program.jaxpr))


GROUPS = {"steps": steps, "predictions": predictions, "gams": gams}


class Register:
    """What is timed, by name; each is called once, and compiled, when it is added. Programs are kept in a folder."""

    def __init__(self, folder):
        self.folder, self.calls, self.programs = Path(folder), {}, []

    def add(self, name, call, *inputs):
        import jax

        if hasattr(call, "lower"):
            (self.folder / f"{len(self.programs)}.pickle").write_bytes(pickle.dumps(compiled(call, inputs)))
            self.programs.append(name)
            return
        call(*inputs)
        self.calls[name] = call, inputs, jax.config.jax_enable_x64

    def of(self, name, test, *arguments, double=True, most=None):
        """The first ``most`` of what a benchmark times, which is told here that each takes a second."""
        import jax

        count = 0

        def note(call, *inputs, repeats=7):
            nonlocal count
            count += 1
            if most is None or count <= most:
                self.add(name if most == 1 else f"{name}, {count}", call, *inputs)
            return 1.0, 1.0

        jax.config.update("jax_enable_x64", double)
        module = sys.modules[test.__module__]
        kept, module.seconds = module.seconds, note
        try:
            test(*arguments)
        except AssertionError:  # of its times
            pass
        finally:
            module.seconds = kept

    def timed(self, name, count):
        """Processor seconds of some calls."""
        call, inputs, double = self.calls[name]
        return seconds_of(call, inputs, double, count)


def seconds_of(call, inputs, double, count):
    """Processor seconds of each call, in the precision in which it was built."""
    import jax

    jax.config.update("jax_enable_x64", double)
    found = []
    for _ in range(count):
        start = time.process_time()
        made = call(*inputs)
        # A fit of a gam has nothing to wait for.
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.Array)])
        found.append(time.process_time() - start)
    return found


def compiled(call, inputs):
    """A jitted function as a program that another process can load, with its inputs and its precision."""
    import jax
    from jax.experimental.serialize_executable import serialize

    leaves, structure = jax.tree.flatten(inputs)
    is_key = [isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    given = [np.asarray(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]

    def flat(*arrays):
        found = [jax.random.wrap_key_data(a) if key else a for a, key in zip(arrays, is_key, strict=True)]
        made = jax.tree.leaves(call(*jax.tree.unflatten(structure, found)))
        return [jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in made]

    traced = jax.jit(flat).trace(*given)
    return serialize(traced.lower().compile(options_of_fit(traced.jaxpr))), given, jax.config.jax_enable_x64


def loaded(path):
    """What `seconds_of` takes, of a file of such a program."""
    import jax
    from jax.experimental.serialize_executable import deserialize_and_load

    jax.numpy.linalg.cholesky(jax.numpy.eye(2))  # it finds LAPACK only where JAX has looked for it
    program, inputs, double = pickle.loads(path.read_bytes())
    jax.config.update("jax_enable_x64", double)
    return deserialize_and_load(*program), [*map(jax.numpy.asarray, inputs)], double


@contextmanager
def on_one_core():
    """Threads that hand work to each other on two cores take time of both, from run to run another."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)

    def place(cores):
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)

    place({max(before)})
    try:
        yield
    finally:
        place(before)


def serve(group, folder):
    """In a process of its own: one version builds a group, says its names, and times what it is asked for."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what benchmarks print is not an answer
    register = Register(folder)
    GROUPS[group](register)
    print(json.dumps([register.programs, [*register.calls]]), file=said, flush=True)
    with on_one_core():
        for line in sys.stdin:
            print(json.dumps(register.timed(*json.loads(line))), file=said, flush=True)


class Version:
    """The process of one version."""

    def __init__(self, group, tree):
        # The package alone is that of the version: a folder with nothing else comes first.
        self.folder = tempfile.TemporaryDirectory()
        Path(self.folder.name, "numpyro_gp").symlink_to((tree / "numpyro_gp").resolve())
        paths = {"PYTHONPATH": f"{self.folder.name}:{ROOT}", "PYTHONSAFEPATH": "1"}
        command = [
            sys.executable,
            "-m",
            "examples.studies.speed.benchmarks.in_turn",
            "--serve",
            group,
            self.folder.name,
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | THREADS | paths, text=True, **pipes)

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, name, count):
        self.process.stdin.write(json.dumps([name, count]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def asked(self, name):
        """The seconds of some calls by their number."""
        return lambda count: self.ask(name, count)

    def program(self, at):
        """The same for a program that it left in its folder."""
        parts = loaded(Path(self.folder.name, f"{at}.pickle"))
        seconds_of(*parts, 1)
        return lambda count: seconds_of(*parts, count)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def row_of(group, name, both, rounds):
    """Milliseconds of both versions and their ratio."""
    once = np.median([one(3) for one in both])
    count, times = int(np.clip(BLOCK / once, 1, 60)), [[], []]
    for turn in range(rounds):
        for at in (0, 1) if turn % 2 else (1, 0):
            times[at].append(np.median(both[at](count)))
    before, now = np.array(times)
    numbers = {"before_ms": 1e3 * np.median(before), "now_ms": 1e3 * np.median(now)}
    numbers = {key: f"{value:.4g}" for key, value in numbers.items()}
    return {"group": group, "what": name} | numbers | {"ratio": f"{np.median(now / before):.3f}"}


def compared(group, trees, rounds):
    """Rows of a group."""
    both = [Version(group, tree) for tree in trees]
    (programs, calls), (others, other_calls) = [one.answer() for one in both]
    with on_one_core():
        for name in [name for name in programs if name in others]:
            places = programs.index(name), others.index(name)
            yield row_of(group, name, [one.program(at) for one, at in zip(both, places, strict=True)], rounds)
        for name in [name for name in calls if name in other_calls]:
            yield row_of(group, name, [one.asked(name) for one in both], rounds)
    for one in both:
        one.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the folder of another version")
    parser.add_argument("--groups", nargs="+", default=[*GROUPS], choices=[*GROUPS])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    if options.before is None:
        parser.error("--before must be the folder of another version. Make one by git worktree add FOLDER COMMIT.")
    if not THREADS.items() <= os.environ.items():  # one thread from the start: programs are timed here too
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | THREADS)
    rows = [row for row in read(options.out) if row["group"] not in options.groups]
    for group in options.groups:
        for row in compared(group, (options.before, ROOT), options.rounds):
            rows.append(row | {"version": version()})
            print(*row.values(), flush=True)
            save(options.out, rows)
    print(versions(rows))


if __name__ == "__main__":
    main()
