"""Deliberate faults, 75 that were chosen and 40 that were drawn at random, and whether the tests see them:

    python -m tests.mutations                 all of them
    python -m tests.mutations kl "half"       those whose description holds one of these words
    python -m tests.mutations --quarter       a quarter, the next one for the next commit: what .ci/run does

Each fault is put into a copy of the package in a temporary folder, and the tests that should catch it run on the copy.
A fault that is caught makes at least one of them fail. ``tests/test_mutations.py`` sees that every text still stands
in its file once, so that the list does not rot. The last line has the counts; a fault that survives is a failure,
unless ``tests/random_faults.py`` has the reason why no test need see it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.random_faults import ALIVE, RANDOM

ROOT = Path(__file__).parent.parent


class Fault(NamedTuple):
    """What is wrong with it, the text that is replaced in a file of the package, and the tests that should fail.

    Tests are files, of which the first stage runs, or single tests of either stage where a file would take long.
    """

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
        "beliefs/test_coupled.py::test_marginals_joint_and_kl",
    ),
    Fault(
        "sign of the log determinant in the KL",
        "beliefs/whitened.py",
        "- jnp.sum(half_log_det(factor))",
        "+ jnp.sum(half_log_det(factor))",
        "beliefs/test_coupled.py::test_marginals_joint_and_kl",
    ),
    Fault(
        "standard deviation for the variance in the KL of a mean field",
        "beliefs/coupled.py",
        "0.5 * (self.mean**2 + self.scale**2 - 1)",
        "0.5 * (self.mean**2 + self.scale - 1)",
        "beliefs/test_coupled.py::test_mean_field_is_coupled_with_a_diagonal_factor",
    ),
    Fault(
        "factor of a belief transposed in its marginals",
        "beliefs/moments.py",
        "rooted = matmul(flipped(factor), features)",
        "rooted = matmul(factor, features)",
        "beliefs/test_coupled.py::test_marginals_joint_and_kl",
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
        "+ 2 * jnp.sum(excess * lifted[lead], axis=-2)",
        "+ jnp.sum(excess * lifted[lead], axis=-2)",
        "beliefs/test_moments.py::test_values_and_gradients_are_those_of_the_plain_form",
    ),
    Fault(
        "diagonal not halved in the derivative of a Cholesky factor",
        "linalg.py",
        "return jnp.tril(matrix) - 0.5 * matrix * identity_like(matrix)",
        "return jnp.tril(matrix)",
        "test_linalg.py::test_gaussian_log_density_and_its_gradient",
    ),
    Fault(
        "normal log density without its constant",
        "linalg.py",
        "return matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]",
        "return matmul(-0.5 * half, half) - half_log_det(factor)",
        "test_linalg.py::test_gaussian_log_density_and_its_gradient",
    ),
    Fault(
        "features at the inducing inputs with no jitter taken off",
        "beliefs/basis.py",
        "return self.factor.T - change",
        "return self.factor.T",
        "beliefs/test_base.py::test_features_at_the_inducing_inputs_are_read_off_the_factor_where_that_is_asked_for",
    ),
    Fault(
        "sign of the shift of the natural step",
        "guides/natural.py",
        "return own - matmul(2 * d_covariance, mean), -2 * d_covariance",
        "return own + matmul(2 * d_covariance, mean), -2 * d_covariance",
        "guides/test_natural.py::test_a_plain_step_is_the_oracle_natural_step",
    ),
    Fault(
        "half of the natural step of the precision",
        "guides/natural.py",
        "return own - matmul(2 * d_covariance, mean), -2 * d_covariance",
        "return own - matmul(2 * d_covariance, mean), -d_covariance",
        "guides/test_natural.py::test_a_plain_step_is_the_oracle_natural_step",
    ),
    Fault(
        "sign of the Stein repulsion",
        "stein/direction.py",
        "repulsion = jnp.sum(push, axis=1, keepdims=True) * centred - matmul(push, centred)",
        "repulsion = matmul(push, centred) - jnp.sum(push, axis=1, keepdims=True) * centred",
        "stein/test_direction.py::test_direction_of_the_oracle",
    ),
    Fault(
        "sign of the Jacobian of constrained particles",
        "stein/target.py",
        "density += jnp.sum(self",
        "density -= jnp.sum(self",
        "stein/test_target.py::test_scores_are_gradients_of_numpyros_potential",
    ),
    Fault(
        "median of squared distances not divided by the logarithm of the number of particles",
        "stein/direction.py",
        "average(pairs, valid)) / jnp.log(jnp.sum(healthy) + one)",
        "average(pairs, valid))",
        "stein/test_direction.py::test_median_rule_of_three_particles",
    ),
    Fault(
        "constant of the Matern 3/2 kernel",
        "kernels/stationary.py",
        "return exponential_32(3 * squares)",
        "return exponential_32(2 * squares)",
        "kernels/test_stationary.py::test_scaled_distance_of_each_family",
    ),
    Fault(
        "derivative of the Matern 5/2 kernel",
        "kernels/stationary.py",
        "(-1 / 6) * exponential_32(squares) * change",
        "(-1 / 3) * exponential_32(squares) * change",
        "kernels/test_stationary.py::test_derivatives_at_zero_distance_are_the_closed_ones",
    ),
    Fault(
        "one kernel of a product over columns that averages to something",
        "kernels/measures.py",
        "return 0.5 * (nodes + 1), 0.5 * weights",
        "return 0.5 * (nodes + 1), weights",
        "kernels/test_zero_mean.py::test_closed_form_and_quadrature_equal_adaptive_integration",
    ),
    Fault(
        "weights of the composite rule without the widths of their pieces",
        "likelihoods/rules.py",
        "weights = half * jnp.expand_dims(weights, range(half.ndim - 1))",
        "weights = jnp.expand_dims(weights, range(half.ndim - 1)) + 0 * half",
        "likelihoods/test_rules.py::test_composite_rule_integrates_normal_moments",
    ),
    Fault(
        "derivative in the variance twice too large",
        "likelihoods/expectations.py",
        "tangent = tangent + 0.5 * _expect(fun, order + 2",
        "tangent = tangent + _expect(fun, order + 2",
        "likelihoods/test_expectations.py::test_expect_and_derivatives_of_a_cosine",
    ),
    Fault(
        "log normaliser of a count forgotten",
        "likelihoods/counts.py",
        "return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y)) - stirling(y)",
        "return poisson_deviance(latent.mean, latent.variance, y, jnp.ones_like(y))",
        "likelihoods/test_counts.py::test_oracle",
    ),
    Fault(
        "variance of the function left out of the expected log density of Gaussian data",
        "likelihoods/continuous.py",
        "return normal_log_prob(y - latent.mean, noise) - 0.5 * latent.variance / noise",
        "return normal_log_prob(y - latent.mean, noise)",
        "likelihoods/test_continuous.py::test_gaussian_in_closed_form",
    ),
    Fault(
        "importance-weighted bound without log K",
        "objectives.py",
        "return logsumexp(log_weights_kn, axis=0) - math.log(log_weights_kn.shape[0])",
        "return logsumexp(log_weights_kn, axis=0)",
        "test_objectives.py::test_bound_with_given_draws",
    ),
    Fault(
        "importance-weighted bound of a minibatch not scaled to the data",
        "objectives.py",
        "return drawn.scale * jnp.sum(terms) + drawn.remainder",
        "return jnp.sum(terms) + drawn.remainder",
        "test_objectives.py::test_minibatch_bound_is_unbiased",
    ),
    Fault(
        "norm of the own mean counted without its projection on the shared basis",
        "beliefs/decoupled.py",
        "return 0.5 * (residual + jnp.sum((self.mean + t) ** 2)) + covariance_kl(self.scale_tril)",
        "return 0.5 * (residual + jnp.sum(self.mean**2)) + covariance_kl(self.scale_tril)",
        "beliefs/test_decoupled.py::test_marginals_joint_and_kl",
    ),
    Fault(
        "interactions of three inputs taken for those of two",
        "additive/inputs.py",
        "return list(combinations(range(len(labels)), 2))",
        "return list(combinations(range(len(labels)), 3))",
        "additive/test_anova.py additive/test_inputs.py",
    ),
    Fault(
        "beliefs without reparametrised gradients",
        "sites/process.py",
        "# Without this NumPyro stops the gradient at the site (TraceGraph_ELBO, RenyiELBO, TraceEnum_ELBO).\n"
        "    has_rsample = True",
        "has_rsample = False",
        "sites/test_process.py",
    ),
    Fault(
        "whitened beliefs known by the module of their class",
        "posterior/draws.py",
        's["value"].is_whitened(unwrap(s["fn"]).basis_of(s["value"]))',
        'type(s["value"]).__module__.endswith("coupled")',
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
        "arrays that a plate reads not cut with the others",
        "rows/cuts.py",
        "{number: places[number] for number in named | read}",
        "{number: places[number] for number in named}",
        "rows/test_cuts.py::test_whole_is_chunked",
    ),
    Fault(
        "chunks that start one row too late",
        "posterior/chunks.py",
        "for start in range(0, total, size):",
        "for start in range(0, total, size + 1):",
        "posterior/test_chunks.py",
    ),
    Fault(
        "a process recorded by its name without the scopes around it",
        "primitives/opening.py",
        "recorded[process.name] = process",
        'recorded[process.name.split("/")[-1]] = process',
        "posterior/test_new_data.py",
    ),
    Fault(
        "half missing in the norm of a decoupled mean",
        "beliefs/decoupled.py",
        "return 0.5 * mean_norm(site.kernel, self.Z_alpha, self.a, self.columns) + self._covariance(site).kl",
        "return mean_norm(site.kernel, self.Z_alpha, self.a, self.columns) + self._covariance(site).kl",
        "beliefs/test_decoupled.py::test_marginals_joint_and_kl",
    ),
    Fault(
        "own mean of an orthogonal belief added to its projection in place of less it",
        "beliefs/decoupled.py",
        "return self.mean - projected(site, self.Z_gamma, self.coefficients(site))",
        "return self.mean + projected(site, self.Z_gamma, self.coefficients(site))",
        "beliefs/test_decoupled.py::test_marginals_joint_and_kl",
    ),
    Fault(
        "collapsed bound without what the inducing values leave open",
        "beliefs/optimum.py",
        "unexplained = jnp.sum(self.prior) - jnp.sum(self.features**2)",
        "unexplained = 0 * jnp.sum(self.prior)",
        "beliefs/test_optimum.py::test_coupled_optimum",
    ),
    Fault(
        "residuals of the collapsed bound not in units of the noise",
        "primitives/marginal_likelihood.py",
        "data.optimum((y - loc) / data.scale, True)[2]",
        "data.optimum(y - loc, True)[2]",
        "primitives/test_regression.py::test_inducing_inputs_at_the_data_give_the_evidence",
    ),
    Fault(
        "inverse factor transposed in the mean of a decoupled layer",
        "beliefs/layer.py",
        "else matmul(parameter, inverse.T)",
        "else matmul(parameter, inverse)",
        "beliefs/test_layer.py::test_six_layers",
    ),
    Fault(
        "jitter of the inducing values not drawn in functions of a process",
        "beliefs/paths.py",
        "own = own + jnp.broadcast_to(root(part.jitter), own.shape) * noise[..., at]",
        "own = own + 0 * noise[..., at]",
        "beliefs/test_paths.py",
    ),
    Fault(
        "sign of what conditions a function drawn from the prior",
        "beliefs/paths.py",
        '-einsum("...ij,...i->...j", found.projection, explained)',
        'einsum("...ij,...i->...j", found.projection, explained)',
        "beliefs/test_paths.py",
    ),
    Fault(
        "mask over a site with a belief dropped",
        "beliefs/masked.py",
        "jnp.where(self.shown, self.base_dist.log_prob(value), 0)",
        "jnp.where(self.shown | True, self.base_dist.log_prob(value), 0)",
        "beliefs/test_masked.py::test_hidden_members_of_a_plate_are_left_out",
    ),
    Fault(
        "inverse factor by blocks with the sign of its corner",
        "linalg.py",
        "corner = matmul(-lower, matmul(",
        "corner = matmul(lower, matmul(",
        "test_linalg.py",
    ),
    Fault(
        "one of two halves twice in the derivative of a square",
        "linalg.py",
        "return outer_square(*primals), half + jnp.swapaxes(half, -1, -2)",
        "return outer_square(*primals), 2 * half",
        "test_linalg.py",
    ),
    Fault(
        "a corner of a quadratic form by its own transpose alone",
        "beliefs/triangular_products.py",
        "own[m][-1] + _transpose(blocks[m][n][-1])",
        "2 * own[m][-1]",
        "beliefs/test_triangular_products.py",
    ),
    Fault(
        "half a turn for a whole one in the periodic kernel",
        "kernels/stationary.py",
        "angles = 2 * math.pi * (X - centre) / per_input(",
        "angles = math.pi * (X - centre) / per_input(",
        "kernels/test_stationary.py",
    ),
    Fault(
        "prior variance of a zero-mean kernel without its square",
        "kernels/zero_mean.py",
        "-of_average(a, a, b)",
        "-of_average(a, a, b + a * a)",
        "contracts/test_kernels.py::test_gram_is_symmetric_positive_and_agrees_with_cross_and_diagonal",
    ),
    Fault(
        "constant of the arc-cosine kernel of order two at equal inputs",
        "kernels/nonstationary.py",
        "at_zero = (1, 1, 3)[self.order]",
        "at_zero = (1, 1, 2)[self.order]",
        "kernels/test_nonstationary.py",
    ),
    Fault(
        "probabilities of categories not squared in the covariance of their effects",
        "kernels/category.py",
        "xp.outer(p, p) / xp.sum(p**2)",
        "xp.outer(p, p) / xp.sum(p)",
        "kernels/test_category.py",
    ),
    Fault(
        "harmonics of a periodic kernel with the weight of a variance and not of its root",
        "kernels/features.py",
        "* jnp.sqrt(kernel.variance)\n    angles = 2 * math.pi * X",
        "* kernel.variance\n    angles = 2 * math.pi * X",
        "kernels/test_features.py::test_finite_features_are_the_kernel",
    ),
    Fault(
        "exponent of Student's t without its half",
        "likelihoods/continuous.py",
        "return constant - 0.5 * (df + 1) * jnp.log1p(",
        "return constant - 0.5 * df * jnp.log1p(",
        "likelihoods/test_continuous.py likelihoods/test_outliers.py",
    ),
    Fault(
        "variance for its root in the probit probability",
        "likelihoods/classes.py",
        "sign * latent.mean / jnp.sqrt(1 + latent.variance)",
        "sign * latent.mean / (1 + latent.variance)",
        "likelihoods/test_classes.py::test_bernoulli_oracle",
    ),
    Fault(
        "wrong classes together as likely as each of them in the robust maximum",
        "likelihoods/multiclass.py",
        "jnp.log1p(-epsilon) + (1 - largest) * jnp.log(epsilon / (self.classes - 1))",
        "jnp.log1p(-epsilon) + (1 - largest) * jnp.log(epsilon)",
        "likelihoods/test_multiclass.py",
    ),
    Fault(
        "unfair form of the ranked probability score of draws",
        "criticism/scores.py",
        "jnp.sort(away, axis=0)) / (count * (count - 1))",
        "jnp.sort(away, axis=0)) / (count * count)",
        "criticism/test_scores.py",
    ),
    Fault(
        "log density of the guide's own sites added in place of subtracted",
        "objectives.py",
        "terms.append(sign * check_local(name, site, density))",
        "terms.append(_check_local(name, site, density))",
        "test_objectives.py",
    ),
    Fault(
        "parameters inside of log q not held in doubly reparametrised gradients",
        "objectives.py",
        '"fn": jax.tree.map(lax.stop_gradient, site["fn"])',
        '"fn": site["fn"]',
        "test_objectives.py",
    ),
    Fault(
        "scores of turned coordinates by the inverse of their root",
        "stein/metric.py",
        "slopes = matmul(to_rows(scores), root)",
        "slopes = matmul(to_rows(scores), jnp.linalg.inv(root))",
        "stein/test_metric.py::test_a_linear_change_of_coordinates_changes_nothing",
    ),
    Fault(
        "expected variance of a component with what is uncertain subtracted",
        "additive/shares.py",
        "+ self.left + (covariance * self.gram).sum((-2, -1))",
        "+ self.left - (covariance * self.gram).sum((-2, -1))",
        "additive/test_sobol.py::test_plug_in_and_expected",
    ),
    Fault(
        "mixture of predictions summed and not averaged over draws",
        "posterior/mixture.py",
        "return logsumexp(each, axis=0) - math.log(each.shape[0])",
        "return logsumexp(each, axis=0)",
        "posterior/test_prediction.py posterior/test_mixture.py",
    ),
    Fault(
        "terms of a short batch of a stream counted as those of a full one",
        "rows/batch_plates.py",
        "self.each_counts = float(num_data) / count",
        "self.each_counts = float(num_data) / rows",
        "rows/test_batch_plates.py",
    ),
    Fault(
        "first padding row of a batch counted",
        "rows/batch_plates.py",
        "(self.indices < self.count)",
        "(self.indices <= self.count)",
        "rows/test_batch_plates.py",
    ),
    Fault(
        "mask of the padding rows of a batch dropped",
        "rows/batch_plates.py",
        "(self.indices < self.count)",
        "(self.indices < self.rows)",
        "rows/test_batch_plates.py",
    ),
    Fault(
        "rows of a minibatch drawn with replacement",
        "rows/batch_plates.py",
        "return permuted_rows(rng_key, size, jnp.arange(subsample_size))",
        "return jax.random.randint(rng_key, (subsample_size,), 0, size)",
        "rows/test_batch_plates.py",
    ),
    Fault(
        "a key without the constants inside of inner programs",
        "programs/trace.py",
        "return _signature(value.jaxpr, value.consts)",
        "return _signature(value.jaxpr, ())",
        "programs/test_trace.py programs/test_keep.py",
    ),
    Fault(
        "a key without the numbers that stand in the program",
        "programs/trace.py",
        "return atom.aval, np.asarray(atom.val).tobytes()",
        "return (atom.aval,)",
        "programs/test_keep.py",
    ),
    Fault(
        "a key without the parameters of operations",
        "programs/trace.py",
        "lines.append((equation.primitive, inputs, results, parameters))",
        "lines.append((equation.primitive, inputs, results))",
        "programs/test_keep.py",
    ),
    Fault(
        "callbacks lost where a program is cut in two",
        "programs/trace.py",
        "elif made or equation.effects:",
        "elif made:",
        "programs/test_trace.py",
    ),
    Fault(
        "checks of the values of a new batch dropped",
        "rows/look.py",
        "        check.run(arrays)",
        "        str(arrays)",
        "rows/test_look.py",
    ),
    Fault(
        "inner draws under importance weights without what the values leave",
        "primitives/joint_draws.py",
        "small_cholesky(rest), white)",
        "small_cholesky(rest), 0 * white)",
        "primitives/test_joint_draws.py",
    ),
    Fault(
        "one set of values for all data in the draws under importance weights",
        "primitives/joint_draws.py",
        "matmul(belief.scale_tril, jnp.moveaxis(values, 0, -1))",
        "matmul(belief.scale_tril, 0 * jnp.moveaxis(values, 0, -1) + jnp.moveaxis(values, 0, -1)[..., :1])",
        "primitives/test_joint_draws.py",
    ),
    Fault(
        "inputs of a datum mixed with those of others in the draws under importance weights",
        "primitives/joint_draws.py",
        "basis.features(every).reshape(-1, count, sets)",
        "jnp.swapaxes(basis.features(every).reshape(-1, sets, count), 1, 2)",
        "primitives/test_joint_draws.py",
    ),
    Fault(
        "inducing inputs of a prediction that are not compared",
        "primitives/inducing.py",
        "if not np.allclose(values, own,",
        "if own.size == 0 and not np.allclose(values, own,",
        "primitives/test_inducing.py",
    ),
    Fault(
        "site steps of a gam that are never halved",
        "gam/collapsed.py",
        "for part in 0.5 ** np.arange(MOST_HALVINGS):",
        "for part in np.ones(MOST_HALVINGS):",
        "gam/test_collapsed.py",
    ),
    Fault(
        "noise of inner draws that engines with a guide do not know",
        "primitives/joint_draws.py",
        "is_drawn = _is_free.get() and",
        "is_drawn =",
        "primitives/test_joint_draws.py",
    ),
    Fault(
        "a hidden member's curvature is divided by zero",
        "beliefs/probe.py",
        "return jnp.where(weight == 0, 0, values / jnp.where(weight == 0, 1, weight))",
        "return values / weight",
        "guides/test_decoupled.py::test_members_that_a_mask_hides_stay_where_they_are",
    ),
    Fault(
        "drawn values are scored by the distribution of new data",
        "sites/observation.py",
        "return self.sum_outputs(self.likelihood.log_prob(self._shown(value), f))",
        "return self.sum_outputs(self.likelihood.conditional(f).log_prob(self._shown(value)))",
        "posterior/test_draws.py::test_drawn_values_are_scored_by_the_likelihood",
    ),
    Fault(
        "particles with one draw more weigh more",
        "stein/weights.py",
        "logsumexp(log_parts + jnp.log(jnp.asarray(drawn, log_parts.dtype))[None], axis=1)",
        "logsumexp(log_parts, axis=1) - jnp.log(drawn.sum() / len(drawn))",
        "stein/test_weights.py::test_parts_that_have_more_draws_weigh_no_more",
    ),
    Fault(
        "an encoder reads the first two arguments, whatever the model calls them",
        "guides/amortised.py",
        'if {"X", "y"} <= set(prior.named):',
        "if False:",
        "guides/test_amortised.py::test_data_are_found_by_the_names_of_the_model",
    ),
    Fault(
        "each site of a subsampled plate makes a scale of its own",
        "rows/batch_plates.py",
        "if known is scale or (isinstance(known, float) and isinstance(scale, float) and known == scale):",
        "if False:",
        "rows/test_batch_plates.py::test_sites_of_a_subsampled_plate_share_one_scale",
    ),
]
FAULTS += [Fault(f"{kind} at random: {new}", *rest, new, tests) for kind, *rest, new, tests in RANDOM]

# A fault that makes a program loop for ever is seen by whoever waits for it.
SECONDS = 600


def place(fault: Fault) -> Path:
    """The file of a fault."""
    return ROOT / "numpyro_gp" / fault.file


def is_caught(fault: Fault) -> bool:
    """Whether the tests fail on a copy of the repository that holds the fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("numpyro_gp", "tests", "models", "examples"):
            shutil.copytree(ROOT / part, folder / part)  # with the bytecode, which fits all files but the changed one
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, folder / part)
        changed = folder / "numpyro_gp" / fault.file
        changed.write_text(changed.read_text().replace(fault.old, fault.new))
        cache = os.environ.get("NUMPYRO_GP_TEST_CACHE", str(ROOT / ".jax_cache"))
        settings = {**os.environ, "PYTHONPATH": ".", "NUMPYRO_GP_TEST_CACHE": cache, "NUMPYRO_GP_TEST_COUNTS": ""}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += [f"tests/{name}" for name in fault.tests.split()]
        # Single tests run in whatever stage they are, and so do files that have no test of the first one (5).
        stages = [["-m", ""]] if "::" in fault.tests else [[], ["-m", ""]]
        for stage in stages:
            try:
                done = subprocess.run(
                    [*command, *stage], capture_output=True, text=True, cwd=folder, env=settings, timeout=SECONDS
                )
            except subprocess.TimeoutExpired:
                return True
            if done.returncode != 5:
                break
    is_import_stopped = done.returncode == 2 and Path(fault.file).name in done.stdout  # and not for want of a file
    if done.returncode not in (0, 1) and not is_import_stopped:
        raise RuntimeError(f"{fault.what}: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def quarter() -> list[Fault]:
    """Every fourth fault; commits that follow each other take one quarter after the other."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    count = int(done.stdout) if done.returncode == 0 else int(time.time() // 86400)
    return FAULTS[count % 4 :: 4]


def main() -> int:
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.what for word in words)]
    if words == ["--quarter"]:
        chosen = quarter()
    alive = unexplained = 0
    began = time.time()
    with ThreadPoolExecutor(int(os.environ.get("NUMPYRO_GP_MUTATIONS_AT_ONCE", os.cpu_count() or 1))) as pool:
        for fault, caught in zip(chosen, pool.map(is_caught, chosen)):
            reason = ALIVE.get(fault.new, "")
            alive += not caught
            unexplained += not caught and not reason
            said = "caught" if caught else f"alive: {reason}" if reason else "MISSED"
            print(f"{said}  {fault.what}  ({fault.file}; {fault.tests})", flush=True)
    seconds = time.time() - began
    print(f"mutations: {len(chosen)} run, {alive} survived, {unexplained} of them without a reason, {seconds:.0f} s")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
