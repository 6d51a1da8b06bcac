"""A value that the user's code reads, wherever it stands, may change: nothing that was compiled before hides it."""

import functools
import os
import sys
import types
import weakref
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.programs.compiled import run

X = jnp.linspace(-1.0, 1.0, 6)[:, None]
Y = jnp.sin(3 * X[:, 0])
SCALE = 0.1


class Settings:
    scale = 0.5


class Slots:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 0.5


class Reader:
    def __call__(self):
        return SCALE

    def method(self):
        return SCALE


class Child(Reader):
    @classmethod
    def of_class(cls):
        return Settings.scale

    @property
    def value(self):
        return SCALE


class Private:
    __slots__ = ("__scale",)

    def __init__(self):
        self.__scale = 0.5

    def value(self):
        return self.__scale


class Pair(NamedTuple):
    """A tuple with a method that reads a global."""

    first: float = 1.0

    def value(self):
        return SCALE * self.first


class Listed(list):
    scale = 0.5


def with_attribute():
    return with_attribute.scale


with_attribute.scale = 0.5


@functools.wraps(jnp.sin)
def wrapping():
    return SCALE


def importing():
    import settings_of_a_test  # the user's own module

    return settings_of_a_test.scale


SLOTS, READER, CHILD, PRIVATE, PAIR, LISTED = Slots(), Reader(), Child(), Private(), Pair(), Listed()
QUEUE, BYTES = deque([0.5]), bytearray(b"0.5")
MODULE = types.ModuleType("settings_of_a_test")
MODULE.scale = 0.5
sys.modules["settings_of_a_test"] = MODULE
HOLDER = types.SimpleNamespace(settings=MODULE)


def set_global(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 2.0)


READINGS = {
    "attribute of a class": (lambda: Settings.scale, lambda patch: patch.setattr(Settings, "scale", 2.0)),
    "attribute of a module": (lambda: MODULE.scale, lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "slot": (lambda: SLOTS.scale, lambda patch: patch.setattr(SLOTS, "scale", 2.0)),
    "private slot": (PRIVATE.value, lambda patch: patch.setattr(PRIVATE, "_Private__scale", 2.0)),
    "global of a method of a tuple": (PAIR.value, set_global),
    "class of a list": (lambda: LISTED.scale, lambda patch: patch.setattr(Listed, "scale", 2.0)),
    "queue": (lambda: QUEUE[0], lambda patch: QUEUE.appendleft(2.0)),
    "bytes": (lambda: float(BYTES), lambda patch: BYTES.extend(b"1")),
    "attribute of a function": (with_attribute, lambda patch: patch.setattr(with_attribute, "scale", 2.0)),
    "function in the guise of a library's": (wrapping, set_global),
    "module that is imported inside": (importing, lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "module in an attribute": (lambda: HOLDER.settings.scale, lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "environment": (lambda: float(os.environ.get("SCALE", "0.5")), lambda patch: patch.setenv("SCALE", "2")),
    "global of an object that is called": (READER, set_global),
    "global of a method": (READER.method, set_global),
    "global of a method of a parent": (CHILD, set_global),
    "global of a property": (lambda: CHILD.value, set_global),
    "attribute of a class, by a class method": (Child.of_class, lambda patch: patch.setattr(Settings, "scale", 2.0)),
    "method that is replaced": (
        lambda: READER.method(),
        lambda patch: patch.setattr(Reader, "method", lambda self: 2.0),
    ),
}


@pytest.mark.parametrize("name", READINGS)
def test_what_code_reads_is_read_at_each_call(name, monkeypatch):
    """A program is kept by what it computes: the number that it read is in its key."""
    read, change = READINGS[name]
    before = read()
    function = lambda x: x * read()  # noqa: E731
    assert [float(run(function, jnp.ones(()))) for _ in range(2)] == [before] * 2
    change(monkeypatch)
    assert read() != before
    assert float(run(function, jnp.ones(()))) == read()


def test_a_module_that_is_loaded_again():
    module = types.ModuleType("module_of_a_test")
    function = lambda x: x * module.value()  # noqa: E731
    for value in (0.5, 2.0):
        exec(f"def value():\n    return {value}", vars(module))
        assert float(run(function, jnp.ones(()))) == value


@pytest.mark.long
def test_an_object_that_holds_its_engine_is_not_kept_by_what_was_compiled_for_it(collect):
    class Trainer:
        def __init__(self):
            self.svi = SVI(self.model, ngp.AutoGP(self.model), optax.sgd(1e-3), Trace_ELBO())

        def model(self, X, y=None):
            made(rbf(), None, gaussian())(X, y)

    trainer = Trainer()
    ngp.fit(jax.random.key(0), trainer.svi, 2, X, Y, progress=False)
    reference = weakref.ref(trainer)
    del trainer
    collect()
    assert reference() is None


# --------------------------------------------------------------------- what a model is made of


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Squared(ngp.kernels.Kernel):
    """A kernel of the user's own, which reads a global."""

    lengthscale: jax.Array

    def _cross(self, X1, X2):
        return SCALE**2 * jnp.exp(-0.5 * jnp.sum((X1[:, None] - X2[None]) ** 2, axis=-1) / self.lengthscale**2)

    def _diagonal(self, X):
        return jnp.full(X.shape[0], SCALE**2, X.dtype)


def made(kernel, mean, likelihood):
    def model(X, y=None):
        f = ngp.gp("f", kernel(), X[::2], mean=mean)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), likelihood(), obs=y)

    return model


def rbf(variance=1.0):
    return lambda: ngp.kernels.RBF(variance, 1.0)


def gaussian(scale=0.5):
    return lambda: ngp.likelihoods.Gaussian(scale)


# A model that reads the global, and one that has its second value, 2, written in it.
MODELS = {
    "function as likelihood": (
        made(rbf(), None, lambda: lambda f: dist.Normal(f, SCALE)),
        made(rbf(), None, lambda: lambda f: dist.Normal(f, 2.0)),
    ),
    "kernel": (made(lambda: Squared(jnp.ones(())), None, gaussian()), made(rbf(4.0), None, gaussian())),
    "mean": (
        made(rbf(), lambda X: SCALE + 0.0 * X[..., 0], gaussian()),
        made(rbf(), lambda X: 2.0 + 0.0 * X[..., 0], gaussian()),
    ),
}
POINT = jnp.asarray([0.3, -1.0, 0.5])


def asked(model):
    """What engine and posterior of a model answer, again and again."""
    key, posterior = jax.random.key(0), ngp.Posterior.from_mcmc(model, {"f": jnp.stack([POINT, -POINT])})
    svi = SVI(model, ngp.AutoGP(model), optax.sgd(1e-3), Trace_ELBO())

    def answers():
        predicted = posterior.predict(key, X)
        new = SVI(model, ngp.AutoGP(model), optax.sgd(1e-3), Trace_ELBO())
        found = {
            "density": log_density(model, (X, Y), {}, {"f": POINT})[0],
            "fit": ngp.fit(key, svi, 2, X, Y, progress=False).losses,
            "run": new.run(key, 2, X, Y, progress_bar=False).losses,
            "variance": predicted.variance,
            "predictive": predicted.log_density(Y),
        }
        if model is not MODELS["kernel"][0]:  # it has no features
            found["functions"] = posterior.functions(key, 2, X, num_features=8)(X)
        return found

    return answers


@pytest.mark.long
@pytest.mark.parametrize("name", ["kernel", "mean"])
def test_no_answer_is_that_of_the_old_value(name, monkeypatch):
    """The wrong answers were off by factors, from NumPyro's own engines as well."""
    model, other = MODELS[name]
    answers, wanted = asked(model), asked(other)()
    before = answers()
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    after = answers()
    for what, value in after.items():
        np.testing.assert_allclose(value, wanted[what], rtol=1e-6, err_msg=what)
    assert not np.allclose(before["density"], after["density"], rtol=0.1)


def test_a_function_as_likelihood_reads_its_globals_each_time(monkeypatch):
    found = []
    for scale in (0.1, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        found.append(log_density(MODELS["function as likelihood"][0], (X, Y), {}, {"f": POINT})[0])
    wanted, _ = log_density(MODELS["function as likelihood"][1], (X, Y), {}, {"f": POINT})
    np.testing.assert_allclose(found[1], wanted, rtol=1e-12)
    assert abs(found[0] - found[1]) > 1.0
