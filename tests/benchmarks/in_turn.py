"""Another version of the package beside this one, in turn: the ratio of processor times of each benchmark.

    git worktree add /tmp/before 5838771
    python -m tests.benchmarks.in_turn --before /tmp/before

Each version has a process on one thread, which builds and compiles what the benchmarks of this folder time; then both
are asked for it in turns, for a fifth of a second at once, so that what else the machine does meets both alike. Steps
are compiled as each version's `fit` does. A ratio is the median over the rounds, of medians; above one the other
version is quicker.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from examples.tools.clock import THREADS
from examples.tools.page_tables import versions
from examples.tools.run_queue import version
from examples.tools.tables import read, save

ROOT = Path(__file__).parent.parent.parent
OUT = ROOT / "examples" / "papers" / "beyond" / "versions.csv"
BLOCK = 0.2  # seconds of one turn


def steps(register):
    """Steps of an engine, by the benchmarks that are tests here."""
    from tests.benchmarks import test_additive, test_core, test_decoupled, test_deep, test_stein

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

    from tests.benchmarks import again

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


def options_of_fit():
    """How this version compiles a long fit; older ones left it to the compiler."""
    from numpyro_gp.programs import scheduler

    return scheduler.compiler_options() if hasattr(scheduler, "compiler_options") else None


GROUPS = {"steps": steps, "predictions": predictions, "gams": gams}


class Register:
    """What is timed, by name; each is called once, and compiled, when it is added."""

    def __init__(self):
        self.calls = {}

    def add(self, name, call, *inputs):
        import jax

        if hasattr(call, "lower"):
            call = call.lower(*inputs).compile(options_of_fit())
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
        import jax

        call, inputs, double = self.calls[name]
        jax.config.update("jax_enable_x64", double)
        found = []
        for _ in range(count):
            start = time.process_time()
            made = call(*inputs)
            # A fit of a gam has nothing to wait for.
            jax.block_until_ready([leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.Array)])
            found.append(time.process_time() - start)
        return found


def serve(group):
    """In a process of its own: one version builds a group, says its names, and times what it is asked for."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what benchmarks print is not an answer
    register = Register()
    GROUPS[group](register)
    print(json.dumps([*register.calls]), file=said, flush=True)
    for line in sys.stdin:
        print(json.dumps(register.timed(*json.loads(line))), file=said, flush=True)


class Version:
    """The process of one version."""

    def __init__(self, group, tree):
        # The package alone is that of the version: a folder with nothing else comes first.
        self.folder = tempfile.TemporaryDirectory()
        Path(self.folder.name, "numpyro_gp").symlink_to((tree / "numpyro_gp").resolve())
        paths = {"PYTHONPATH": f"{self.folder.name}:{ROOT}", "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "tests.benchmarks.in_turn", "--serve", group]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | THREADS | paths, text=True, **pipes)

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, name, count):
        self.process.stdin.write(json.dumps([name, count]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def compared(group, trees, rounds):
    """Rows of a group: milliseconds of both versions and their ratio."""
    both = [Version(group, tree) for tree in trees]
    first, second = [one.answer() for one in both]
    for name in [name for name in first if name in second]:
        once = np.median([one.ask(name, 3) for one in both])
        count, times = int(np.clip(BLOCK / once, 1, 60)), [[], []]
        for turn in range(rounds):
            for at in (0, 1) if turn % 2 else (1, 0):
                times[at].append(np.median(both[at].ask(name, count)))
        before, now = np.array(times)
        numbers = {"before_ms": 1e3 * np.median(before), "now_ms": 1e3 * np.median(now)}
        numbers = {key: f"{value:.4g}" for key, value in numbers.items()}
        yield {"group": group, "what": name} | numbers | {"ratio": f"{np.median(now / before):.3f}"}
    for one in both:
        one.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the folder of another version")
    parser.add_argument("--groups", nargs="+", default=[*GROUPS], choices=[*GROUPS])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--serve", choices=[*GROUPS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.before is None:
        parser.error("--before must be the folder of another version. Make one by git worktree add FOLDER COMMIT.")
    rows = [row for row in read(options.out) if row["group"] not in options.groups]
    for group in options.groups:
        for row in compared(group, (options.before, ROOT), options.rounds):
            rows.append(row | {"version": version()})
            print(*row.values(), flush=True)
            save(options.out, rows)
    print(versions(rows))


if __name__ == "__main__":
    main()
