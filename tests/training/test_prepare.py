"""What a fit refuses before its first step."""

import functools

import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

from numpyro_gp.training.fit import fit
from tests.oracles.engines import Countdown, data, key, same

KEY, DATA = key(), data()


def test_wrong_paths_are_named(tmp_path):
    """No file that exists is lost; what else is wrong of arguments: ``contracts/misuses_after.py``."""
    exists, done = tmp_path / "there.npz", tmp_path / "done.npz"
    exists.write_bytes(b"a week of work")
    first = fit(KEY, Countdown(), 2, DATA, checkpoint=done, progress=False)
    for options, message in (
        ({"checkpoint": tmp_path}, "checkpoint must be a file in a folder that exists and can be written"),
        ({"checkpoint": exists}, r"checkpoint must be a new file, but got the existing .*resume=True"),
        ({"checkpoint": exists, "resume": first}, "checkpoint must be a new file, but got the existing"),
        ({"checkpoint": exists, "resume": done}, "checkpoint must be a new file, but got the existing"),
        ({"checkpoint": 3}, "checkpoint must be a path, but got 3"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            fit(KEY, Countdown(), 4, DATA, **options)
    assert exists.read_bytes() == b"a week of work"
    assert len(fit(KEY, Countdown(), 4, DATA, checkpoint=done, resume=str(done), progress=False).losses) == 4


def test_model_arguments_cannot_collide_silently():
    def shadowed(y, progress=1.0):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), progress).expand([4]).to_event(1), obs=y)

    def build(model, **options):
        return SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO(), **options)

    match = r"the model must be free of arguments .* but got an argument 'progress'.*partial"
    with pytest.raises(TypeError, match=match):
        fit(KEY, build(shadowed), 3, DATA, progress=False)
    bound = fit(KEY, build(functools.partial(shadowed, progress=2.0)), 3, DATA, progress=False)
    same(bound.losses, fit(KEY, build(shadowed, progress=2.0), 3, DATA, progress=False).losses)
    odd = lambda key, num_steps: shadowed(key, num_steps)  # noqa: E731  (names of arguments of fit that come by place)
    found = fit(KEY, build(odd), 3, key=DATA, num_steps=2.0, progress=False)
    same(bound.losses, found.losses)
