"""Thirty deliberate faults, and whether the first stage of the tests sees them. Run by hand, from the repository:

    python -m tests.mutations                 all of them
    python -m tests.mutations kl "half"       those whose description holds one of these words

Each fault is put into a copy of the package in a temporary folder, and the tests that should catch it run on the copy.
A fault that is caught makes at least one of them fail. ``tests/test_mutations.py`` sees that every text still stands
in its file once, so that the list does not rot.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Fault(NamedTuple):
    """What is wrong with it, the text that is replaced in a file of the package, and the tests that should fail."""

    what: str
    file: str
    old: str
    new: str
    tests: str


FAULTS = [
    Fault(
        "half of the mean missing in the KL of whitened values",
        "beliefs/whitened.py",
        "return 0.5 * jnp.sum(self.mean**2) + covariance_kl(self.scale_tril)",
        "return jnp.sum(self.mean**2) + covariance_kl(self.scale_tril)",
        "beliefs/test_coupled.py",
    ),
    Fault(
        "sign of the log determinant in the KL",
        "beliefs/whitened.py",
        "- jnp.sum(half_log_det(factor))",
        "+ jnp.sum(half_log_det(factor))",
        "beliefs/test_coupled.py",
    ),
    Fault(
        "standard deviation for the variance in the KL of a mean field",
        "beliefs/coupled.py",
        "0.5 * (self.mean**2 + self.scale**2 - 1)",
        "0.5 * (self.mean**2 + self.scale - 1)",
        "beliefs/test_coupled.py",
    ),
    Fault(
        "factor of a belief transposed in its marginals",
        "beliefs/moments.py",
        "rooted = matmul(flipped(factor), features)",
        "rooted = matmul(factor, features)",
        "beliefs/test_coupled.py",
    ),
    Fault(
        "factor of a belief transposed in its joint",
        "beliefs/coupled.py",
        "rooted = matmul(jnp.swapaxes(factor, -1, -2), features)",
        "rooted = matmul(factor, features)",
        "beliefs/test_coupled.py",
    ),
    Fault(
        "derivative of the marginals without one of two cross terms",
        "beliefs/moments.py",
        "+ 2 * excess * lifted[lead]",
        "+ excess * lifted[lead]",
        "beliefs/test_moments.py",
    ),
    Fault(
        "diagonal not halved in the derivative of a Cholesky factor",
        "linalg.py",
        "return jnp.tril(matrix) - 0.5 * matrix * identity_like(matrix)",
        "return jnp.tril(matrix)",
        "test_linalg.py",
    ),
    Fault(
        "normal log density without its constant",
        "linalg.py",
        "return matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]",
        "return matmul(-0.5 * half, half) - half_log_det(factor)",
        "test_linalg.py",
    ),
    Fault(
        "features at the inducing inputs with no jitter taken off",
        "beliefs/basis.py",
        "return self.factor.T - change",
        "return self.factor.T",
        "beliefs/test_base.py",
    ),
    Fault(
        "sign of the shift of the natural step",
        "guides/natural.py",
        "return own - matmul(2 * d_covariance, mean), -2 * d_covariance",
        "return own + matmul(2 * d_covariance, mean), -2 * d_covariance",
        "guides/test_natural.py",
    ),
    Fault(
        "half of the natural step of the precision",
        "guides/natural.py",
        "return own - matmul(2 * d_covariance, mean), -2 * d_covariance",
        "return own - matmul(2 * d_covariance, mean), -d_covariance",
        "guides/test_natural.py",
    ),
    Fault(
        "sign of the Stein repulsion",
        "stein/direction.py",
        "repulsion = jnp.sum(push, axis=1, keepdims=True) * centred - matmul(push, centred)",
        "repulsion = matmul(push, centred) - jnp.sum(push, axis=1, keepdims=True) * centred",
        "stein/test_direction.py",
    ),
    Fault(
        "sign of the Jacobian of constrained particles",
        "stein/target.py",
        "density += jnp.sum(self",
        "density -= jnp.sum(self",
        "stein/test_svgd.py",
    ),
    Fault(
        "median of squared distances not divided by the logarithm of the number of particles",
        "stein/direction.py",
        "average(pairs, valid)) / jnp.log(jnp.sum(healthy) + one)",
        "average(pairs, valid))",
        "stein/test_direction.py",
    ),
    Fault(
        "constant of the Matern 3/2 kernel",
        "kernels/stationary.py",
        "return exponential_32(3 * squares)",
        "return exponential_32(2 * squares)",
        "kernels/test_stationary.py",
    ),
    Fault(
        "derivative of the Matern 5/2 kernel",
        "kernels/stationary.py",
        "(-1 / 6) * exponential_32(squares) * change",
        "(-1 / 3) * exponential_32(squares) * change",
        "kernels/test_stationary.py",
    ),
    Fault(
        "one kernel of a product over columns that averages to something",
        "kernels/measures.py",
        "return 0.5 * (nodes + 1), 0.5 * weights",
        "return 0.5 * (nodes + 1), weights",
        "kernels/test_zero_mean.py",
    ),
    Fault(
        "weights of the composite rule without the widths of their pieces",
        "likelihoods/rules.py",
        "weights = half * jnp.expand_dims(weights, range(half.ndim - 1))",
        "weights = jnp.expand_dims(weights, range(half.ndim - 1)) + 0 * half",
        "likelihoods/test_rules.py",
    ),
    Fault(
        "derivative in the variance twice too large",
        "likelihoods/expectations.py",
        "tangent = tangent + 0.5 * _expect(fun, order + 2",
        "tangent = tangent + _expect(fun, order + 2",
        "likelihoods/test_expectations.py",
    ),
    Fault(
        "log normaliser of a count forgotten",
        "likelihoods/counts.py",
        "return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y)) - stirling(y)",
        "return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y))",
        "likelihoods/test_counts.py",
    ),
    Fault(
        "variance of the function left out of the expected log density of Gaussian data",
        "likelihoods/continuous.py",
        "return normal_log_prob(y - latent.mean, noise) - 0.5 * latent.variance / noise",
        "return normal_log_prob(y - latent.mean, noise)",
        "likelihoods/test_continuous.py",
    ),
    Fault(
        "importance-weighted bound without log K",
        "objectives.py",
        "return logsumexp(log_weights_kn, axis=0) - math.log(log_weights_kn.shape[0])",
        "return logsumexp(log_weights_kn, axis=0)",
        "test_objectives.py",
    ),
    Fault(
        "importance-weighted bound of a minibatch not scaled to the data",
        "objectives.py",
        "return drawn.scale * jnp.sum(terms) + drawn.remainder",
        "return jnp.sum(terms) + drawn.remainder",
        "test_objectives.py",
    ),
    Fault(
        "norm of the own mean counted without its projection on the shared basis",
        "beliefs/decoupled.py",
        "return 0.5 * (residual + jnp.sum((self.mean + t) ** 2)) + covariance_kl(self.scale_tril)",
        "return 0.5 * (residual + jnp.sum(self.mean**2)) + covariance_kl(self.scale_tril)",
        "beliefs/test_decoupled.py",
    ),
    Fault(
        "interactions of three inputs taken for those of two",
        "additive/anova.py",
        "return list(combinations(range(len(labels)), 2))",
        "return list(combinations(range(len(labels)), 3))",
        "additive/test_anova.py",
    ),
    Fault(
        "beliefs without reparametrised gradients",
        "sites.py",
        "# Without this NumPyro stops the gradient at the site (TraceGraph_ELBO, RenyiELBO, TraceEnum_ELBO).\n"
        "    has_rsample = True",
        "has_rsample = False",
        "test_sites.py",
    ),
    Fault(
        "whitened beliefs known by the module of their class",
        "posterior/draws.py",
        'site["value"].is_whitened(unwrap(site["fn"]).basis_of(site["value"]))',
        'type(site["value"]).__module__.endswith("coupled")',
        "posterior/test_draws.py",
    ),
    Fault(
        "one key for the draws of all sites",
        "posterior/draws.py",
        "return self.draw(value, jax.random.fold_in(self.key, list(self.values).index(name)), site)",
        "return self.draw(value, self.key, site)",
        "posterior/test_draws.py",
    ),
    Fault(
        "arguments with rows looked for only where the user has named them",
        "posterior/new_data.py",
        "if rows is None and total > chunk_size:",
        "if rows is not None and total > chunk_size:",
        "rows/test_cuts.py",
    ),
    Fault(
        "chunks that start one row too late",
        "posterior/chunks.py",
        "range(0, total, size), None if",
        "range(0, total, size + 1), None if",
        "posterior/test_chunks.py",
    ),
    Fault(
        "a process recorded by its name without the scopes around it",
        "primitives/opening.py",
        "recorded[process.name] = process",
        'recorded[process.name.split("/")[-1]] = process',
        "posterior/test_new_data.py",
    ),
]


def place(fault: Fault) -> Path:
    """The file of a fault."""
    return ROOT / "numpyro_gp" / fault.file


def is_caught(fault: Fault, folder: Path) -> bool:
    """Whether the tests fail on a copy of the package that holds the fault."""
    copy = folder / "numpyro_gp"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "numpyro_gp", copy, ignore=shutil.ignore_patterns("__pycache__"))
    changed = copy / fault.file
    changed.write_text(changed.read_text().replace(fault.old, fault.new))
    tests = [f"tests/{name}" for name in fault.tests.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--durations=0", *tests]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": "."})
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{fault.what}: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


def main() -> None:
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or any(word in fault.what for word in sys.argv[1:])]
    count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("tests", "models", "examples"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, folder / part)
        for fault in chosen:
            caught = is_caught(fault, folder)
            count += caught
            print(f"{'caught' if caught else 'MISSED'}  {fault.what}  ({fault.file}; {fault.tests})", flush=True)
    print(f"{count} of {len(chosen)} caught by the first stage")


if __name__ == "__main__":
    main()
