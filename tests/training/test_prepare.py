"""What a fit refuses before its first step."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

from numpyro_gp.training.fit import fit
from tests.oracles.engines import Countdown, data, engine, key, model, same

KEY, DATA = key(), data()


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="num_steps must be at least 1, but got 0"):
        fit(KEY, engine(), 0, DATA)
    with pytest.raises(TypeError, match=r"num_steps must be a whole number, but got 10\.0"):
        fit(KEY, engine(), 10.0, DATA)
    with pytest.raises(TypeError, match="key must be one JAX random key, but got 0"):
        fit(0, engine(), 10, DATA)
    for wrong in (model, SVI, None):
        with pytest.raises(TypeError, match="svi_or_stein must be an SVI, a SteinVI or another object with init"):
            fit(KEY, wrong, 10, DATA)
    with pytest.raises(ValueError, match=r"y of the model must be non-empty data, but got shape \(0, 2\)"):
        fit(KEY, engine(), 10, jnp.zeros((0, 2)))
    with pytest.raises(ValueError, match="y of the model must be non-empty data"):
        fit(KEY, engine(), 10, y=np.zeros(0))
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        fit(KEY, engine(), 10, DATA, chunk_size=0)


def test_wrong_paths_are_named(tmp_path):
    exists = tmp_path / "there.npz"
    exists.write_bytes(b"a week of work")
    for path in (tmp_path / "no" / "run.npz", tmp_path):
        with pytest.raises(ValueError, match="checkpoint must be a file in a folder that exists and can be written"):
            fit(KEY, engine(), 10, DATA, checkpoint=path)
    with pytest.raises(ValueError, match=r"checkpoint must be a new file, but got the existing .*resume=True"):
        fit(KEY, engine(), 10, DATA, checkpoint=exists)
    done = fit(KEY, Countdown(), 2, DATA, checkpoint=tmp_path / "done.npz", progress=False)
    for resume in (done, tmp_path / "done.npz"):  # another file than the one that would be replaced
        with pytest.raises(ValueError, match="checkpoint must be a new file, but got the existing"):
            fit(KEY, Countdown(), 4, DATA, checkpoint=exists, resume=resume)
    assert exists.read_bytes() == b"a week of work"
    same_file = {"checkpoint": tmp_path / "done.npz", "resume": str(tmp_path / "done.npz")}
    assert len(fit(KEY, Countdown(), 4, DATA, **same_file, progress=False).losses) == 4
    with pytest.raises(ValueError, match=r"resume must be an existing checkpoint file, but got '.*none\.npz'"):
        fit(KEY, engine(), 10, DATA, resume=tmp_path / "none.npz")
    with pytest.raises(ValueError, match="checkpoint must be a path when resume=True, but got None"):
        fit(KEY, engine(), 10, DATA, resume=True)
    with pytest.raises(TypeError, match="resume must be True, False, a path or a FitResult, but got 3"):
        fit(KEY, engine(), 10, DATA, resume=3)
    with pytest.raises(TypeError, match="checkpoint must be a path, but got 3"):
        fit(KEY, engine(), 10, DATA, checkpoint=3)


def test_model_arguments_cannot_collide_silently():
    def shadowed(y, progress=1.0):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), progress).expand([4]).to_event(1), obs=y)

    def build(model, **options):
        return SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO(), **options)

    with pytest.raises(
        TypeError, match=r"the model must be free of arguments .* but got an argument 'progress'.*partial"
    ):
        fit(KEY, build(shadowed), 3, DATA, progress=False)
    bound = fit(KEY, build(functools.partial(shadowed, progress=2.0)), 3, DATA, progress=False)
    same(bound.losses, fit(KEY, build(shadowed, progress=2.0), 3, DATA, progress=False).losses)


def test_model_arguments_named_key_and_num_steps_reach_the_model():
    def odd(key, num_steps):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), num_steps).expand([4]).to_event(1), obs=key)

    svi = SVI(odd, lambda **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    assert fit(KEY, svi, 3, key=DATA, num_steps=2.0, progress=False).losses.shape == (3,)
