"""Every file of the gallery: it simulates, its prior draws are finite, and its recommended engine improves."""

import importlib
import inspect
from pathlib import Path

import jax
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp

GALLERY = Path(__file__).parent.parent / "models"
NAMES = sorted(file.stem for file in GALLERY.glob("*.py") if file.stem != "__init__")
STEPS = 40


pytestmark = pytest.mark.usefixtures("allow_rank_promotion")


def load(name):
    module = importlib.import_module(f"models.{name}")
    arguments = inspect.signature(module.simulate).parameters
    sizes = {"num_data": 30} | ({"num_inducing": 6} if "num_inducing" in arguments else {})
    return module, module.simulate(jax.random.key(0), **sizes)


def test_gallery_is_complete():
    wanted = {"exact_regression", "sparse_regression", "classification", "counts", "heteroscedastic", "robust"}
    wanted |= {"spatio_temporal", "additive", "multi_class", "deep", "deep_orthogonal", "multi_output"}
    assert wanted | {"decoupled", "latent_variable_deep", "stein"} <= set(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_recommended_engine_improves_from_a_finite_prior(name):
    module, data = load(name)
    unseen = {key: value for key, value in data.items() if key not in ("y", "events")}
    inputs = data["X"] if "X" in data else data["near"].inputs
    assert "y" not in data or data["y"].shape == inputs.shape[:1]
    trace = jax.jit(
        lambda key: {
            site: value["value"]
            for site, value in handlers.trace(handlers.seed(module.model, key)).get_trace(**unseen).items()
            if value["type"] == "sample"
        }
    )(jax.random.key(1))
    assert trace["y"].shape == inputs.shape[:1]
    assert all(np.all(np.isfinite(value)) for value in trace.values())

    if hasattr(module, "guide"):
        asked = inspect.signature(module.guide).parameters
        engine = module.engine(module.guide(**{key: data[key] for key in asked if key in data}))
    else:
        engine = module.engine()
    losses = np.asarray(ngp.fit(jax.random.key(2), engine, STEPS, progress=False, **data).losses)
    assert np.all(np.isfinite(losses))
    assert losses[-10:].mean() < losses[:5].mean()
