"""ArviZ's functions on results of the three engines, and leave-one-out against its closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.posterior.arviz import arviz, arviz_container, from_groups, has_trees, sample_stats
from numpyro_gp.posterior.draws import TrainingDraws
from tests.oracles.problems import regression

mpl.use("Agg")
# Evenly spaced, smooth, noisy and with bounded residuals: the posterior variance of each f_n is at most a third of
# the noise, and importance sampling can leave each datum out (the tail index of its weights is their ratio).
GRID = np.linspace(-2, 2, 20)[:, None]
PROBLEM = regression(size=20)._replace(
    kernel=ngp.kernels.Matern32(1.0, 2.5),
    X=jnp.asarray(GRID),
    y=jnp.asarray(np.sin(2 * GRID[:, 0]) + 0.6 * np.sin(37 * GRID[:, 0])),
)
NOISE = np.sqrt(0.5)


def known(X, y=None):
    """Hyper-parameters known and Z = X: leave-one-out has a closed form."""
    f = ngp.gp("f", PROBLEM.kernel, PROBLEM.X)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(NOISE), obs=y)


def model(X, y=None):
    noise = numpyro.sample("noise", dist.LogNormal(-0.8, 0.3))
    f = ngp.gp("f", PROBLEM.kernel, PROBLEM.X[::2])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def svi_posterior(fn, natural=True, steps=3):
    guide = ngp.AutoGP(fn, {"f": ngp.guides.coupled(natural=natural)})
    svi = SVI(fn, guide, ngp.optim.natural_gradient(optax.adam(0.05), 1.0), Trace_ELBO())
    state = svi.init(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    step = jax.jit(lambda s: svi.update(s, PROBLEM.X, PROBLEM.y)[0])
    for _ in range(steps):
        state = step(state)
    return ngp.Posterior.from_svi(fn, guide, svi.get_params(state))


def nuts_posterior(
    fn, num_samples, num_chains=1, extra_fields=("energy", "diverging", "num_steps", "potential_energy")
):
    mcmc = MCMC(
        NUTS(fn),
        num_warmup=150,
        num_samples=num_samples,
        num_chains=num_chains,
        progress_bar=False,
        chain_method="sequential",
    )
    mcmc.run(jax.random.key(1), PROBLEM.X, PROBLEM.y, extra_fields=extra_fields)
    return ngp.Posterior.from_mcmc(fn, mcmc)


def stein_posterior(fn, steps=150):
    """Thirty particles of a short run."""
    svgd = ngp.stein.SVGD(fn, optax.adam(0.05), ngp.stein.RBF(), 30)
    result = svgd.run(jax.random.key(2), steps, PROBLEM.X, PROBLEM.y, progress_bar=False)
    return ngp.Posterior.from_stein(fn, svgd, result.params)


@pytest.fixture(scope="module")
def containers():
    """One container for each engine."""
    posteriors = {
        "svi": svi_posterior(model),
        "mcmc": nuts_posterior(model, 60, num_chains=2),
        "stein": stein_posterior(model),
    }
    key = jax.random.key(5)
    return {n: p.to_arviz(key, PROBLEM.X, PROBLEM.y, num_samples=120) for n, p in posteriors.items()}


@pytest.mark.long
def test_groups_dimensions_and_attributes(containers):
    """Named dimensions, coordinates of the plate, and what the draws are."""
    sizes = {"svi": (1, 120), "mcmc": (2, 60), "stein": (1, 30)}
    for engine, data in containers.items():
        posterior = data["posterior"]
        assert posterior["f"].dims == ("chain", "draw", "f_inducing"), engine
        assert posterior["f"].shape == (*sizes[engine], 10)
        assert data["log_likelihood"]["y"].dims == ("chain", "draw", "data")
        assert data["posterior_predictive"]["y"].dims == ("chain", "draw", "data")
        assert data["observed_data"]["y"].dims == ("data",)
        assert data["constant_data"]["X"].dims == ("data", "X_dim_1")
        assert "y" not in data["constant_data"]
        np.testing.assert_array_equal(data["observed_data"]["y"], PROBLEM.y)
        assert posterior.attrs["inference_engine"] == engine
    assert "no chain" in containers["stein"]["posterior"].attrs["sampling"]
    assert "independent draws" in containers["svi"]["posterior"].attrs["sampling"]
    stats_of = containers["mcmc"]["sample_stats"]
    assert {"energy", "diverging", "lp", "n_steps", "tree_depth"} <= set(stats_of)
    assert stats_of["energy"].shape == (2, 60)


@pytest.mark.long
def test_chains_stay_in_their_order():
    """Draws of two chains must not be mixed: chain 1 is the first half of NumPyro's flat draws."""
    rng = np.random.default_rng(0)
    draws = {"f": jnp.asarray(rng.normal(size=(20, 10))), "noise": jnp.asarray(rng.uniform(0.3, 0.6, 20))}
    chains = {"num_chains": 2, "extra_fields": {"energy": jnp.arange(20.0)}}
    posterior = dataclasses.replace(ngp.Posterior.from_mcmc(model, draws), **chains)
    data = posterior.to_arviz(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    np.testing.assert_array_equal(data["posterior"]["noise"][0], posterior.samples["noise"][:10])
    fewer = posterior.to_arviz(jax.random.key(0), PROBLEM.X, PROBLEM.y, num_samples=4)
    np.testing.assert_array_equal(fewer["posterior"]["noise"][1], posterior.samples["noise"][jnp.array([10, 19])])
    energy = np.asarray(posterior.extra_fields["energy"])
    np.testing.assert_array_equal(fewer["sample_stats"]["energy"][1], energy[[10, 19]])


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "plot"),
    [("svi", "trace"), ("stein", "forest"), ("mcmc", "ppc"), ("svi", "khat"), ("stein", "rank"), ("mcmc", "rank")],
)
@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)
def test_plots_draw(containers, engine, plot):
    """Each plot makes axes with something on them."""
    az, data = arviz(), containers[engine]
    if plot == "rank" and has_trees() and engine != "mcmc":
        # ArviZ 1 tests whether chains agree, and draws of a guide and particles are no chains.
        with pytest.raises(ValueError, match="at least 2 chains"):
            az.plot_rank(data, var_names=["noise"])
        plt.close("all")
        return
    if plot == "khat":
        az.plot_khat(az.loo(data, pointwise=True))
    elif plot == "ppc" and has_trees():
        az.plot_ppc_dist(data, num_samples=10)
    elif plot == "ppc":
        az.plot_ppc(data, num_pp_samples=10)
    else:
        getattr(az, f"plot_{plot}")(data, var_names=["noise"])
    axes = [axis for figure in map(plt.figure, plt.get_fignums()) for axis in figure.axes]
    assert any(axis.has_data() for axis in axes)
    plt.close("all")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_energy_and_comparison(containers):
    az = arviz()
    az.plot_energy(containers["mcmc"])
    plt.close("all")
    table = az.compare({"NUTS": containers["mcmc"], "SVI": containers["svi"]})
    assert set(table.index) == {"NUTS", "SVI"}


@pytest.mark.long
def test_several_outputs_and_names_of_dimensions():
    def two(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, PROBLEM.X[::4], outputs=2)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y)

    y = jnp.stack([PROBLEM.y, -PROBLEM.y], axis=-1)
    posterior = ngp.Posterior.from_mcmc(two, {"f": jnp.zeros((8, 2, 5))})
    data = posterior.to_arviz(
        jax.random.key(0), PROBLEM.X, y, dims={"y": ["data", "channel"]}, coords={"channel": ["left", "right"]}
    )
    assert data["posterior"]["f"].dims == ("chain", "draw", "f_output", "f_inducing")
    assert data["log_likelihood"]["y"].dims == ("chain", "draw", "data")
    assert data["observed_data"]["y"].coords["channel"].values.tolist() == ["left", "right"]
    with pytest.raises(ValueError, match=r"dims must be names of sites or arguments.*\['z'\]"):
        posterior.to_arviz(jax.random.key(0), PROBLEM.X, y, dims={"z": ["data"]})


def test_either_generation_is_called_with_its_own_arguments(monkeypatch):
    """The call for ArviZ 1 (nested groups) and for 0.23 (one keyword for each group)."""
    calls = {}

    class Package:
        def __init__(self, version):
            self.__version__ = version

        def from_dict(self, *args, **kwargs):
            calls[self.__version__] = (args, kwargs)

    for version in ("0.23.4", "1.3.0"):
        monkeypatch.setattr("numpyro_gp.posterior.arviz.arviz", lambda version=version: Package(version))
        from_groups(
            {"posterior": {"a": np.zeros((1, 2))}, "sample_stats": {}}, coords={}, dims={"a": ()}, attrs={"k": "v"}
        )
    args, kwargs = calls["1.3.0"]
    assert set(args[0]) == {"posterior"}
    assert kwargs["attrs"] == {"posterior": {"k": "v"}, "/": {"k": "v"}}
    args, kwargs = calls["0.23.4"]
    assert not args
    assert set(kwargs) == {"posterior", "coords", "dims", "posterior_attrs", "attrs"}


@pytest.mark.long
def test_a_file_that_another_process_has_taken_does_not_stop_the_import(monkeypatch):
    """ArviZ 0.23 renames a file at the first import of a day: two processes at once fail in one of them."""
    found, calls = arviz(), []

    def once(name):
        calls.append(name)
        if len(calls) == 1:
            raise FileNotFoundError("daily_warning.tmp")
        return found

    monkeypatch.setattr("importlib.import_module", once)
    assert arviz.__wrapped__() is found
    assert calls == ["arviz", "arviz"]


@pytest.mark.long
def test_importing_the_library_does_not_import_arviz():
    import subprocess
    import sys

    code = "import sys, numpyro_gp.posterior.arviz as adapter; assert 'arviz' not in sys.modules; adapter.arviz()"
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", code + "\nassert 'arviz' in sys.modules"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_statistics_take_the_names_of_arviz():
    extra = {"potential_energy": np.arange(6.0), "num_steps": np.array([1, 3, 7, 7, 1, 3]), "adapt_state": object()}
    found = sample_stats(extra, np.array([0, 2, 3, 5]), 2)
    assert set(found) == {"lp", "n_steps", "tree_depth"}
    np.testing.assert_array_equal(found["lp"], [[0, -2], [-3, -5]])
    np.testing.assert_array_equal(found["tree_depth"], [[1, 3], [3, 2]])


def test_container_names_rows_of_arguments_after_the_plate():
    draws = TrainingDraws(
        latent={"a": jnp.zeros((4, 3))},
        log_likelihood={"y": jnp.zeros((4, 5))},
        replicated={"y": jnp.zeros((4, 5))},
        observed={"y": jnp.zeros(5)},
        dims={"a": ["a_dim_0"], "y": ["data"]},
        rows={},
        arguments=("y",),
    )
    constant = {"X": np.zeros((5, 2)), "Z": np.zeros((3, 2)), "scalar": np.zeros(())}
    data = arviz_container("svi", draws, constant, {}, 1, coords={"data": list("abcde")})
    assert data["constant_data"]["X"].dims == ("data", "X_dim_1")
    assert data["constant_data"]["Z"].dims == ("Z_dim_0", "Z_dim_1")
    assert data["observed_data"]["y"].coords["data"].values.tolist() == list("abcde")
    assert data["posterior"]["a"].shape == (1, 4, 3)
