"""Contracts: what the library relies on inside NumPyro. A failure here means that NumPyro changed, not that we did."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.contrib.einstein as einstein
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.funsor import plate_to_enum_plate
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO, elbo, init_to_median
from numpyro.infer import util as infer_util
from numpyro.infer.autoguide import AutoDelta, AutoNormal

from numpyro_gp.programs import private
from numpyro_gp.stein import SVGD

KEY = jax.random.key(7)


def noisy_model():
    """Loss gradients at zero: minus the guide's draw for ``seen``, minus a draw of the model's own for ``drawn``."""
    noise = jax.random.normal(numpyro.prng_key())  # first: each site takes a key of its own
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    seen, drawn = numpyro.param("seen", 0.0), numpyro.param("drawn", 0.0)
    numpyro.factor("push", seen * jax.lax.stop_gradient(z) + drawn * noise)


def prior_guide():
    numpyro.sample("z", dist.Normal(0.0, 1.0))


LOSSES = (Trace_ELBO(num_particles=3), TraceMeanField_ELBO(num_particles=2), TraceGraph_ELBO(num_particles=2))
LOSSES += (Trace_ELBO(), RenyiELBO(alpha=0.5, num_particles=2))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}-{loss.num_particles}")
def test_an_elbo_seeds_guide_and_model_of_each_particle_with_these_keys(loss):
    svi = SVI(noisy_model, prior_guide, optax.sgd(1.0), loss)
    state = svi.init(KEY)
    expected = {"seen": 0.0, "drawn": 0.0}
    for key in private.keys_of_elbo_particles(state, loss):
        model_key, guide_key = private.model_and_guide_keys(key)
        site = handlers.trace(handlers.seed(prior_guide, guide_key)).get_trace()
        expected["seen"] += site["z"]["value"] / loss.num_particles
        with handlers.seed(rng_seed=model_key):
            expected["drawn"] += jax.random.normal(numpyro.prng_key()) / loss.num_particles
    params = svi.get_params(svi.update(state)[0])
    for name, value in expected.items():
        np.testing.assert_allclose(params[name], value, rtol=1e-12)


def test_renyis_bound_is_recognised_by_the_handler_that_it_alone_sets():
    for loss in LOSSES[1:]:
        found = []

        def guide(found=found):
            found.append(private.is_run_by_renyi())
            prior_guide()

        loss.loss(KEY, {}, noisy_model, guide)
        assert set(found) == {isinstance(loss, RenyiELBO)}, loss


def pair_model(shift=0.0, scale=1.0):
    numpyro.sample("b", dist.Normal(shift, scale).expand([2]).to_event(1))
    numpyro.sample("a", dist.Gamma(2.0, 1.0))


class Recorded(SVGD):
    """Writes down with what NumPyro calls the hook, and what its own steps are called with."""

    def start_particles(self, key, guide, args, kwargs):
        self.starts = (guide, args, kwargs)
        return super().start_particles(key, guide, args, kwargs)


class RecordedByNumPyro(einstein.SVGD):
    """Writes down the keys of NumPyro's own steps."""

    def _svgd_loss_and_grads(self, key, *args, **kwargs):
        self.keys = [*getattr(self, "keys", ()), key]
        return super()._svgd_loss_and_grads(key, *args, **kwargs)


@pytest.mark.long
def test_a_stein_engine_calls_the_hook_with_these_arguments():
    svgd = Recorded(pair_model, optax.sgd(0.1), num_stein_particles=3, scale=2.0)
    state = svgd.init(KEY, 0.5)
    guide, args, kwargs = vars(svgd)["starts"]
    assert isinstance(guide, AutoDelta)
    assert guide.prototype_trace is None  # it has seen no data, and still has not
    assert (args, kwargs) == ((0.5,), {"scale": 2.0})
    assert {name: leaf.shape for name, leaf in svgd.get_params(state).items()} == {
        "a_auto_loc": (3,),
        "b_auto_loc": (3, 2),
    }


@pytest.mark.long
def test_steps_take_numpyros_keys():
    theirs = RecordedByNumPyro(pair_model, numpyro.optim.SGD(0.1), einstein.RBFKernel(), num_stein_particles=3)
    state = theirs.init(KEY)
    after = theirs.update(state)[0]
    theirs.evaluate(state)
    assert all(key == private.key_of_stein_step(state) for key in theirs.keys)
    ours = SVGD(pair_model, optax.sgd(0.1), num_stein_particles=3)
    start = ours.init(KEY)
    assert start.rng_key == state.rng_key
    assert ours.update(start)[0].rng_key == after.rng_key


@pytest.mark.long
def test_parameters_are_declared_by_a_copy_of_the_guide():
    guide = AutoDelta(pair_model)
    sites = private.declared_parameters(guide, KEY, (), {})
    assert set(sites) == {"a_auto_loc", "b_auto_loc"}
    assert sites["a_auto_loc"]["kwargs"]["constraint"] is dist.constraints.positive
    assert guide.prototype_trace is None
    other = private.declared_parameters(guide, jax.random.key(8), (), {})
    assert float(other["a_auto_loc"]["value"]) != float(sites["a_auto_loc"]["value"])


def test_an_autoguide_makes_the_plates_that_it_is_told():
    def model(y):
        with numpyro.plate("data", 6, subsample_size=2):
            numpyro.sample("w", dist.Normal(0.0, 1.0))

    guide = AutoNormal(model)
    handlers.seed(guide, KEY)(jnp.zeros(6))
    frame = guide.prototype_trace["w"]["cond_indep_stack"][0]
    private.set_plates(guide, {"data": frame._replace(size=3)}, {"data": 9})
    with handlers.seed(rng_seed=KEY):
        plate = private.make_plates(guide, (), {})["data"]
    assert (plate.name, plate.size, plate.subsample_size, plate.dim) == ("data", 9, 3, -1)


def test_an_autoguide_stands_in_the_plates_that_it_shares_also_those_of_another_class():
    def model():
        with numpyro.plate("data", 3):
            numpyro.sample("w", dist.Normal(0.0, 1.0))

    guide = AutoNormal(model)
    handlers.seed(guide, KEY)()
    with plate_to_enum_plate():
        plate = numpyro.plate("data", 3, dim=-1)
    assert not isinstance(plate, numpyro.plate)
    with private.shared_plates(guide, {"data": plate}):
        assert private.make_plates(guide, (), {})["data"] is plate
    assert isinstance(private.make_plates(guide, (), {})["data"], numpyro.plate)


def test_masks_are_found_under_what_is_wrapped_around_them():
    mask = jnp.asarray([True, False])
    fn = dist.Normal(jnp.zeros(2), 1.0)
    assert private.mask_of(fn) is True
    assert private.mask_of(fn.to_event(1)) is True
    np.testing.assert_array_equal(private.mask_of(fn.mask(mask)), mask)
    np.testing.assert_array_equal(private.mask_of(fn.mask(mask).expand([3, 2])), mask)


def test_handlers_orders_and_the_start_of_xla_are_known(monkeypatch):
    assert not private.active_handlers()
    outer, inner = handlers.seed(rng_seed=0), handlers.block()
    with outer, inner:
        assert private.active_handlers() == [outer, inner]
    with handlers.trace() as trace, handlers.seed(rng_seed=0):
        for name in "abc":
            numpyro.sample(name, dist.Normal())
        private.list_in_order("ca")
    assert list(trace) == ["b", "c", "a"]
    jax.devices()
    assert private.xla_has_started()
    monkeypatch.setattr(private.xla_bridge, "_backends", {})
    assert not private.xla_has_started()


def test_constants_of_a_loop_are_its_first_inputs():
    first, second = jnp.ones(2), jnp.ones(4)
    body = lambda carry, x: (carry * first.sum(), x + second.sum())  # noqa: E731
    program = jax.make_jaxpr(lambda x: jax.lax.scan(body, 1.0, x))(jnp.ones(3))
    loop = next(equation for equation in program.eqns if equation.primitive.name == "scan")
    constants, carried = private.parts_of_loop(loop.params)
    assert constants == len(loop.invars) - 2 >= 2
    assert carried == 1


def test_sets_of_a_bound_are_in_order_and_all_that_sets_are():
    with private.sites_in_order():
        ordered = vars(elbo)["set"]
        assert list(ordered("cab")) == ["a", "b", "c"]
        assert list(ordered("ca").union("b")) == ["a", "b", "c"]
        # As `RenyiELBO` has them: methods called as functions, of plain sets.
        assert list(ordered.union({"c"}, {"a"})) == ["a", "c"]
        assert ordered.intersection({"c", "a"}, {"a"}) == {"a"}
    assert vars(elbo)["set"] is set


@pytest.mark.long
def test_a_search_for_a_start_is_one_try_without_a_loop():
    def model():
        numpyro.sample("scale", dist.LogNormal(0.0, 1.0))

    def search(key):
        return infer_util.initialize_model(key, model, init_strategy=init_to_median).param_info.z["scale"]

    assert "while" in str(jax.make_jaxpr(search)(KEY))
    wanted = jax.jit(search)(KEY)
    with private.one_try():
        assert "while" not in str(jax.make_jaxpr(lambda key: search(key))(KEY))
        np.testing.assert_allclose([jax.jit(lambda key: search(key))(KEY), search(KEY)], wanted, rtol=1e-6)
    assert infer_util.while_loop is numpyro.util.while_loop


def test_lapack_gives_a_factor_in_rows():
    """Its upper factor in columns, by the name and the argument with which jaxlib knows it."""
    root = np.tril(np.arange(1.0, 17.0).reshape(4, 4)) + 4 * np.eye(4)
    for dtype in (jnp.float32, jnp.float64):
        matrices = jnp.asarray(np.stack([root @ root.T, -np.eye(4)]), dtype)
        found = jax.jit(private.factor_in_rows)(matrices)
        np.testing.assert_allclose(found[0], root, rtol=1e-6)
        assert found.dtype == dtype
        assert np.isnan(found[1]).sum() == 10
