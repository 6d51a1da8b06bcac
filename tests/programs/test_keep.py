"""Programs that are kept, and one where a model runs eagerly: nothing compiled twice, nothing that changed missed."""

import os
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.checks import waiting_checks
from numpyro_gp.kernels import Coregion, Matern32
from numpyro_gp.programs import compiled as keep
from numpyro_gp.programs.compiled import COMPARED, is_of_library, kept, one_program, program_key, run
from numpyro_gp.programs.trace import traced


def test_the_same_program_is_compiled_once_and_another_one_is_seen():
    """A closed-over array is an argument; a Python number, a method or a type is part of the program."""

    def function(array, number, power):
        return lambda x: jax.jit(lambda x: jnp.sum(array * x) ** power)(x) + number

    keep._programs.clear()
    x, one = jnp.ones(3), jnp.arange(3.0)
    for array in (one, 2 * one):
        np.testing.assert_allclose(run(function(array, 1.0, 2), x), jnp.sum(array) ** 2 + 1.0)
    assert len(keep._programs) == 1
    assert float(run(function(one, -0.0, 2), x)) == 9.0
    assert float(run(function(one, 0.0, 2), x)) == 9.0
    assert float(run(function(one, 5.0, 2), x)) == 14.0
    assert float(run(function(one, 5.0, 3), x)) == 32.0
    assert run(function(one, 5.0, 3), x.astype(jnp.float32)).dtype == jnp.float64
    assert len(keep._programs) == 6
    single = run(lambda x: x + jnp.asarray(1.0, jnp.float32), jnp.ones(3, jnp.float32))
    assert single.dtype == jnp.float32


def test_few_programs_are_kept(monkeypatch):
    monkeypatch.setattr(keep, "SIZE", 2)
    keep._programs.clear()
    for number in (1.0, 2.0, 3.0):
        assert float(run(lambda x, number=number: x * number, jnp.asarray(2.0))) == 2 * number
    assert len(keep._programs) == 2


def test_loops_and_rules_of_derivatives():
    """`softplus` has a rule of its own, a new object at each trace: it is written out, and where it matters it is there."""

    def function(x):
        return jax.lax.scan(lambda c, row: (c + jax.nn.softplus(row), c), 0.0, x)

    keep._programs.clear()
    x = jnp.arange(3.0)
    for _ in range(2):
        np.testing.assert_allclose(run(function, x)[0], np.log1p(np.exp(np.arange(3.0))).sum(), rtol=1e-12)
    assert len(keep._programs) == 1
    np.testing.assert_allclose(jax.grad(lambda x: run(function, x)[0])(x), jax.nn.sigmoid(x), rtol=1e-12)


def test_constants_inside_of_loops_are_in_the_key():
    """A table that a jitted helper in a loop reads stands inside of the loop's program: by its numbers, none is missed."""

    def function(table):
        lookup = jax.jit(lambda x: x * table.sum() + jax.scipy.special.gammaln(x))
        return lambda x: jax.lax.scan(lambda c, row: (c + lookup(row), row), 0.0, x)[0]

    keep._programs.clear()
    del keep.without_key[:]
    x = jnp.arange(1.0, 4.0)
    for table, wanted in ((np.ones(2), 12.0), (np.ones(2), 12.0), (np.full(2, 2.0), 24.0)):
        np.testing.assert_allclose(run(function(table), x), wanted + np.log(2.0), rtol=1e-12)
    assert len(keep._programs) <= 2
    assert not keep.without_key


def test_a_program_without_a_key_is_counted_and_compiled_each_time():
    class Unhashable:
        __hash__ = None

    program = traced(lambda x: jax.lax.sort(x), jnp.ones(3)).program
    (equation,) = program.eqns
    strange = program.replace(eqns=[equation.replace(params={**equation.params, "more": Unhashable()})])
    del keep.without_key[:]
    assert [kept(strange, None, object) is kept(strange, None, object) for _ in range(2)] == [False, False]
    assert len(keep.without_key) == 4
    del keep.without_key[:]


def test_constants_of_inner_programs_count_by_their_numbers_and_large_ones_by_identity():
    """Inside of a branch, or of the body of a loop, JAX holds what a jitted helper closes over."""

    def branch(array):
        helper = jax.jit(lambda x: (x * array).sum())
        return program_key(traced(lambda x: jax.lax.cond(x > 0, helper, jnp.cos, x), 1.0).program)

    def loop(array):
        helper = jax.jit(lambda carry: carry * array)
        run = lambda x: jax.lax.scan(lambda c, y: (helper(c), y), x, jnp.arange(3.0))  # noqa: E731
        return program_key(traced(run, jnp.ones(2)).program)

    large = jnp.zeros(COMPARED)
    assert branch(jnp.arange(3.0)) == branch(jnp.arange(3.0))
    assert branch(large) == branch(large)
    assert loop(jnp.array([1.0, 2.0])) == loop(jnp.array([1.0, 2.0]))
    assert loop(jnp.array([1.0, 2.0])) != loop(jnp.array([1.0, 3.0]))


def test_each_place_of_an_inner_program_counts():
    """What is said of a loop that stands in several places is found once: one other loop is another program."""

    def twice(one, other):
        helpers = [jax.jit(lambda x, f=f: jax.lax.fori_loop(0, 3, lambda _, y: f(y), x)) for f in (one, other)]
        return program_key(traced(lambda x: helpers[1](helpers[0](x)), 1.0).program)

    helper = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), x))
    assert twice(jnp.sin, jnp.sin) == program_key(traced(lambda x: helper(helper(x)), 1.0).program)
    keys = [twice(*functions) for functions in ((jnp.sin, jnp.sin), (jnp.sin, jnp.cos), (jnp.cos, jnp.sin))]
    assert len(set(keys)) == 3


FIRST = """
import jax, numpy as np, numpyro, optax
import numpyro_gp as ngp

names = []
note = lambda event, seconds, **more: names.append(more.get("fun_name")) if "backend_compile" in event else None
jax.monitoring.register_event_duration_secs_listener(note)
X, key = np.linspace(-1.0, 1.0, 30, dtype=np.float32)[:, None], jax.random.key(0)

def model(X, y=None):
    scale = numpyro.sample("scale", numpyro.distributions.LogNormal(0.0, 0.3))
    noise = numpyro.sample("noise", numpyro.distributions.LogNormal(-1.0, 0.3).expand([2]).to_event(1))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, scale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise.sum()), obs=y)

Z = X[::8]
guide = ngp.AutoGP(model, rest=numpyro.infer.autoguide.AutoNormal)
svi = numpyro.infer.SVI(model, guide, optax.adam(0.01), numpyro.infer.Trace_ELBO())
names.clear()
result = ngp.fit(key, svi, 5, X, X[:, 0], progress=False)
of_fit = len(names)
ngp.Posterior.from_svi(model, guide, result.params).predict(key, X)
print(of_fit, len(names) - of_fit)
"""


@pytest.mark.long
def test_a_first_fit_and_prediction_compile_few_programs():
    """The smallest program keeps a megabyte. Parameters are checked without one for each operation: these were ten more.

    A fit is its start, its loop, and NumPyro's softplus of two shapes; a prediction is one program, and its moments.
    """
    command = [sys.executable, "-c", FIRST]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "XLA_FLAGS": ""})
    fit, prediction = map(int, done.stdout.split())
    assert fit <= 4
    assert prediction <= 2


# ------------------------------------------------------------ one program where a model runs eagerly

Z = jnp.linspace(0.0, 1.0, 3)[:, None]


def gram(kernel, X):
    return kernel.matrix(X)


@pytest.mark.long
def test_values_gradients_and_batches_are_those_of_the_function():
    single = one_program(gram)
    for transform in (lambda f: f, jax.jit, lambda f: jax.grad(lambda k, X: f(k, X).sum())):
        one, other = (transform(f)(Matern32(1.5, 0.4), Z) for f in (single, gram))
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    batch = jnp.stack([Z, 2.0 * Z])
    one, other = (jax.vmap(lambda X, f=f: f(Matern32(1.5, 0.4), X))(batch) for f in (single, gram))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_checks_of_values_follow_and_reach_the_block_outside():
    kernel, codes = Coregion(jnp.ones((2, 1)), 1.0), jnp.array([[0.0], [5.0]])
    single = one_program(gram)
    for _ in range(2):  # the second call finds the compiled program
        with pytest.raises(ValueError, match=r"category codes 0, 1, .*, 1"):
            single(kernel, codes)
    single(kernel, codes.at[1].set(1.0))

    def outer(codes):
        with waiting_checks() as waiting:
            single(kernel, codes)
        assert len(waiting) > 0
        return jnp.zeros(())

    jax.jit(outer)(codes)


def test_trees_with_functions_are_not_remembered(collect):
    """Only those of the library are: a mean function of the user's may hold data."""

    def mean(X):
        return 0.0 * X[:, 0]

    with numpyro.handlers.seed(rng_seed=0):
        ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)), mean=mean)(jnp.zeros((2, 1)))
    reference = weakref.ref(mean)
    del mean
    collect()
    assert reference() is None
    assert not is_of_library(jax.tree.structure(jax.tree_util.Partial(jnp.sin)))
