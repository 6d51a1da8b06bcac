"""What processes in plates obey: a batch is a loop over its members, in value and gradient, for all that can hold one."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.guides.natural import is_natural

G, N, M = 3, 4, 3
KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
Z = jnp.linspace(-1.0, 1.0, M)[:, None]
OTHERS = jnp.array([[-0.7], [0.2]])
SHARED, OWN = jnp.asarray(RNG.normal(size=(N, 1))), jnp.asarray(RNG.normal(size=(G, N, 1)))
Y = jnp.asarray(RNG.normal(size=(G, N)))
HYPER = {"variance": jnp.array([1.0, 2.0, 0.5]), "lengthscale": jnp.array([0.3, 0.7, 1.1])}
guides = ngp.guides
# Each has steps, or pieces, of its own in a plate; other recipes meet their loop in the net of models.
RECIPES = {
    "coupled": guides.coupled(),
    "diagonal steps": guides.orthogonal(OTHERS, natural=True, gamma="diagonal"),
    "exact steps": guides.orthogonal(OTHERS, gamma="exact"),
    "newton steps": guides.orthogonal(OTHERS, gamma="newton"),
    "layer": guides.decoupled_layer(OTHERS, mean="gp", covariance="gp"),
    "conditional additive": guides.conditional(),
    "block diagonal natural": guides.block_diagonal(natural=True),
    "block low rank": guides.block_low_rank(1, natural=True),
}
ADDITIVE = list(RECIPES)[list(RECIPES).index("conditional additive") :]


def process(kind, kernel):
    """A process of one kernel or of a batch; an additive one has a component with a kernel that all members share."""
    if kind not in ADDITIVE:
        return ngp.gp("f", kernel, Z)
    return ngp.additive_gp("f", {"own": kernel, "shared": ngp.kernels.RBF(0.5, 0.4)}, {"own": Z, "shared": Z[:2]})


def many(kind, likelihood, X, y, hyper, dim=-2):
    """G processes in a plate: on the axis left of the data, or with data on an axis of their own."""
    with numpyro.plate("group", G, dim=dim):
        f = process(kind, jax.vmap(ngp.kernels.Matern52)(hyper["variance"], hyper["lengthscale"]))
    with numpyro.plate("groups", G, dim=-2), numpyro.plate("data", N):
        ngp.observe("y", f(X), likelihood, obs=y)


def one(kind, likelihood, X, y, hyper):
    f = process(kind, ngp.kernels.Matern52(hyper["variance"], hyper["lengthscale"]))
    with numpyro.plate("data", N):
        ngp.observe("y", f(X), likelihood, obs=y)


def fitted(model, kind, *args):
    """Guide, engine and parameters away from the start."""
    guide = ngp.AutoGP(model, {"f": RECIPES[kind]})
    svi = SVI(model, guide, optax.sgd(0.0), Trace_ELBO())
    return guide, svi, {name: moved(name, value) for name, value in svi.init(KEY, *args).optim_state[1][0].items()}


def moved(name, value):
    """Parameters away from where they start; a precision stays symmetric."""
    step = 0.2 * np.random.default_rng(value.size).normal(size=value.shape)
    step = step @ np.swapaxes(step, -1, -2) if name.endswith("precision") else step
    return value + jnp.asarray(step)


def loss_of(svi, model, guide, objective=None):
    """The loss at unconstrained parameters."""
    objective = Trace_ELBO() if objective is None else objective
    return lambda params, *args: objective.loss(KEY, svi.constrain_fn(params), model, guide, *args)


SHARED_PARAMETERS = ("Z_gamma", "Z_alpha", "inducing_mean")


def of_member(params, g):
    """The parameters of one member; those that all share have no axis of the plate."""
    shared = {name: value for name, value in params.items() if name.endswith(SHARED_PARAMETERS)}
    return shared | {name: value[g, 0] for name, value in params.items() if name not in shared}


def stacked(found):
    """The gradients of members as those of the batch."""
    each = {name: jnp.stack([one[name] for one in found]) for name in found[0]}
    return {name: jnp.sum(x, 0) if name.endswith(SHARED_PARAMETERS) else x[:, None] for name, x in each.items()}


def close(found, wanted, rtol=1e-8):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=rtol, atol=1e-9), found, wanted)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in RECIPES if kind != "coupled"])
def test_a_batch_is_a_loop_over_its_members(kind):
    """Loss and its gradients in the belief's parameters and in the kernels; natural steps and preconditioned ones too."""
    likelihood = ngp.likelihoods.Gaussian(0.3)
    X, model, alone = OWN, partial(many, kind, likelihood), partial(one, kind, likelihood)
    guide, svi, params = fitted(model, kind, X, Y, HYPER)
    guide_one, svi_one, _ = fitted(alone, kind, X[0], Y[0], {name: value[0] for name, value in HYPER.items()})

    value, slopes = jax.jit(jax.value_and_grad(loss_of(svi, model, guide), argnums=(0, 3)))(params, X, Y, HYPER)
    member = jax.jit(jax.value_and_grad(loss_of(svi_one, alone, guide_one), argnums=(0, 3)))
    found = [member(of_member(params, g), X[g], Y[g], {n: v[g] for n, v in HYPER.items()}) for g in range(G)]
    close(value, sum(one[0] for one in found))
    close(slopes[0], stacked([one[1][0] for one in found]), rtol=1e-6)
    close(slopes[1], jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[1][1] for one in found)), rtol=1e-6)


def at_points(model):
    """What NUTS and SVGD see: the log density at points, and its gradients in them and in the kernels."""
    density = lambda values, hyper, *data: log_density(model, (*data, hyper), {}, {"f": values})[0]  # noqa: E731
    return jax.jit(jax.value_and_grad(density, argnums=(0, 1)))


V = jnp.asarray(RNG.normal(size=(G, M)))
MEMBERS = [{name: value[g] for name, value in HYPER.items()} for g in range(G)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("X", "likelihood"),
    [(SHARED, ngp.likelihoods.Bernoulli()), (OWN, ngp.likelihoods.Gaussian(0.3))],
    ids=["shared rows", "own rows"],
)
def test_points_of_a_batch_are_points_of_its_members(X, likelihood):
    """On both axes that a plate can have, and permuted members permute the gradients."""
    y = Y if isinstance(likelihood, ngp.likelihoods.Gaussian) else (Y > 0).astype(float)
    model = partial(many, "coupled", likelihood)
    batch, alone = at_points(model), at_points(partial(one, "coupled", likelihood))
    value, (slope, slopes) = batch(V[:, None], HYPER, X, y)
    single = [alone(V[g], MEMBERS[g], X if X.ndim == 2 else X[g], y[g]) for g in range(G)]
    close(value, sum(one[0] for one in single))
    close(slope[:, 0], jnp.stack([one[1][0] for one in single]))
    close(slopes, jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[1][1] for one in single)))
    close(at_points(partial(model, dim=-1))(V, HYPER, X, y), (value, (slope[:, 0], slopes)))
    order = jnp.array([2, 0, 1])
    turned = batch(V[order][:, None], jax.tree.map(lambda x: x[order], HYPER), X if X.ndim == 2 else X[order], y[order])
    close(turned, (value, (slope[order], jax.tree.map(lambda x: x[order], slopes))))


def test_a_batch_of_one_with_one_row_and_one_inducing_input_is_the_single_process():
    with numpyro.plate("group", 1), handlers.substitute(data={"f": V[:1, :1]}):
        f = ngp.gp("f", jax.vmap(ngp.kernels.RBF)(jnp.ones(1), jnp.ones(1)), Z[:1], mean=jnp.ones(1))
    with handlers.substitute(data={"f": V[0, :1]}):
        g = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z[:1], mean=1.0)
    for X in (SHARED[:1], OWN[:1, :1]):
        close(f(X).mean[0], g(X.reshape(1, 1)).mean)
        close(f(X).scale[0], g(X.reshape(1, 1)).scale)


def hierarchical(X, y=None, seen=None, batch=None, num_groups=G):
    """Hyper-parameters in the plate, from a population; groups and rows in minibatches or ragged."""
    typical = numpyro.sample("typical", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", num_groups, subsample_size=batch, dim=-2) as groups:
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(typical, 0.3))
        f = ngp.gp("f", jax.vmap(lambda l: ngp.kernels.Matern52(1.3, l))(lengthscale[:, 0]), Z)
        with numpyro.plate("data", X.shape[-2]), handlers.mask(mask=True if seen is None else seen[groups]):
            rows = X if X.ndim == 2 else X[groups]
            ngp.observe("y", f(rows), ngp.likelihoods.Gaussian(0.3), obs=None if y is None else y[groups])


@pytest.fixture(scope="module")
def hierarchy():
    """A fit of the hierarchical model with natural steps, and its parameters before and after one step on two groups."""
    guide = ngp.AutoGP(hierarchical, {"f": guides.coupled(natural=True)})
    svi = SVI(hierarchical, guide, ngp.optim.natural_gradient(optax.sgd(1e-2), 0.5), Trace_ELBO())
    state = svi.init(KEY, OWN, Y, batch=2)
    return guide, svi, svi.get_params(state), svi.get_params(svi.update(state, OWN, Y, batch=2)[0])


@pytest.mark.long
def test_a_minibatch_of_groups_touches_these_groups_alone(hierarchy):
    """One natural step moves the belief of two groups of three; no factorisation has another number of members."""
    _, svi, before, after = hierarchy
    for name in before:
        if is_natural(name):
            moved = [bool(jnp.any(before[name][g] != after[name][g])) for g in range(G)]
            assert sum(moved) == 2, name
    step = jax.make_jaxpr(lambda p: svi.loss.loss(KEY, p, hierarchical, hierarchy[0], OWN, Y, batch=2))(before)
    shapes = set(re.findall(r":f64\[([\d,]+)\] = cholesky", str(step)))
    assert shapes == {f"2,{M},{M}", f"2,1,{M},{M}"}


@pytest.mark.long
def test_minibatches_of_groups_average_to_the_whole(hierarchy):
    """Their scaled losses, over all pairs of groups; each objective of NumPyro gives the same."""
    guide, _, params, _ = hierarchy

    def loss(objective, rows):
        batch = None if rows is None else len(rows)
        fixed = {} if rows is None else {"group": jnp.array(rows)}
        model, own = (handlers.substitute(part, data=fixed) for part in (hierarchical, guide))
        return objective.loss(KEY, params, model, own, OWN, Y, batch=batch)

    pairs = [loss(Trace_ELBO(), rows) for rows in ([0, 1], [0, 2], [1, 2])]
    close(sum(pairs) / 3, loss(Trace_ELBO(), None))
    close(loss(TraceMeanField_ELBO(), [0, 2]), pairs[1])


@pytest.mark.long
def test_masks_leave_ragged_groups():
    """Bound of groups of 4, 2 and 0 rows: that of the rows that are left, and the KL of all."""
    seen = jnp.arange(N)[None] < jnp.array([4, 2, 0])[:, None]
    values = {"f": ngp.beliefs.Coupled(V[:, None], jnp.broadcast_to(0.5 * jnp.eye(M), (G, 1, M, M)))}
    values |= {"typical": 0.2, "lengthscale": HYPER["lengthscale"][:, None]}
    found = log_density(hierarchical, (OWN, Y, seen), {}, values)[0]
    prior = dist.LogNormal(0.2, 0.3).log_prob(HYPER["lengthscale"]).sum() + dist.Normal(0.0, 1.0).log_prob(0.2)
    for g, rows in enumerate((4, 2, 0)):
        with handlers.substitute(data={"f": jax.tree.map(lambda leaf, g=g: leaf[g, 0], values["f"])}):
            f = ngp.gp("f", ngp.kernels.Matern52(1.3, HYPER["lengthscale"][g]), Z)
        prior = prior - f.process.kl(f.basis)
        if rows:
            terms = dist.Normal(f(OWN[g, :rows]).loc, 0.3).log_prob(Y[g, :rows]) - f(OWN[g, :rows]).variance / 2 / 0.09
            prior = prior + terms.sum()
    close(found, prior)


@pytest.mark.long
def test_answers_have_an_axis_for_groups(hierarchy):
    """Predictions at shared and at own rows are those of each group; new groups have the variance of the prior."""
    guide, _, _, params = hierarchy
    posterior = ngp.Posterior.from_svi(hierarchical, guide, params)
    shared = posterior.predict(KEY, SHARED)
    own = posterior.predict(KEY, jnp.stack([SHARED, SHARED + 1.0, SHARED]))
    assert shared.mean.shape == own.mean.shape == shared.log_density(Y).shape == (G, N)
    assert shared.sample(7).shape == (7, G, N)
    assert shared.quantiles([0.1, 0.9]).shape == (2, G, N)
    close(own.mean[::2], shared.mean[::2])
    close(own.variance[1], posterior.predict(KEY, SHARED + 1.0).variance[1])
    with pytest.raises(ValueError, match=r"y must be of shape \(3, 4\)"):
        shared.log_density(Y[0])
    new = posterior.predict(KEY, SHARED, num_groups=5, new="group", num_samples=3)
    close(new.function_variance, jnp.full((5, N), 1.3), 2e-6)
    close(new.function_mean, jnp.zeros((5, N)))
    with pytest.raises(ValueError, match=r"new must be names of plates of the model: \['data', 'group'\]"):
        posterior.predict(KEY, SHARED, new="station")
    assert posterior.function_draws(KEY, SHARED, num_samples=2).shape == (2, G, N)
    functions = posterior.functions(KEY, 2, SHARED, num_features=8)
    assert functions(SHARED).shape == functions(OWN).shape == (2, G, N)
    close(functions(OWN)[1], functions[1](OWN))
    tree = posterior.to_arviz(KEY, OWN, Y, num_samples=4)
    assert tree["posterior"]["f"].dims[2:] == ("group", "f_dim_1", "f_inducing")
    assert tree["posterior"]["lengthscale"].dims[2:] == ("group", "lengthscale_dim_1")
    assert tree["log_likelihood"]["y"].dims[2:] == tree["observed_data"]["y"].dims == ("group", "data")


def same_in_chunks(predict, y):
    """Three rows of each group at a time, and one, against all four: moments, densities, quantiles, shapes of draws."""
    whole, parts = predict(chunk_size=100), predict(chunk_size=3)
    assert [chunk.batch_shape for chunk in parts._chunks] == [(G, 3), (G, 3)]  # the last one is filled up
    for name in ("mean", "variance", "function_mean", "function_variance"):
        close(getattr(parts, name), getattr(whole, name))
    close(parts.log_density(y), whole.log_density(y))
    close(parts.quantiles([0.1, 0.9]), whole.quantiles([0.1, 0.9]))
    assert parts.sample(5).shape == (5, G, N)


def exposed(X, offset, y=None, *, Z):
    """An array that the plate of rows indexes, and inducing inputs of each group, as many as there are rows."""
    with numpyro.plate("group", G, dim=-2):
        f = ngp.gp("f", jax.vmap(ngp.kernels.Matern52)(HYPER["variance"], HYPER["lengthscale"]), Z)
        with numpyro.plate("data", X.shape[0]) as rows:
            at = f(X)
            ngp.observe("y", dist.Normal(at.loc + offset[:, rows], at.scale), ngp.likelihoods.Gaussian(0.3), obs=y)


@pytest.mark.long
def test_arrays_with_rows_of_each_group_are_told_from_others_of_that_shape():
    """An offset that is not cut gives every chunk the first rows; inducing inputs that are cut are another model."""
    posterior = ngp.Posterior.from_mcmc(exposed, {"f": jnp.asarray(RNG.normal(size=(2, G, 1, N)))})
    same_in_chunks(partial(posterior.predict, KEY, SHARED, Y, Z=OWN, rows=["X", "offset"]), Y)


def conditioned(X, y=None):
    """A regression for each group."""
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("group", G):
        ngp.gp_regression("y", jax.vmap(ngp.kernels.Matern52)(HYPER["variance"], HYPER["lengthscale"]), X, noise, obs=y)


@pytest.mark.long
@pytest.mark.parametrize("X", [SHARED, OWN], ids=["shared rows", "own rows"])
def test_chunks_of_rows_of_conditioned_processes_are_the_whole(X):
    posterior = ngp.Posterior.from_mcmc(conditioned, {"noise": jnp.array([0.1, 0.2])})
    same_in_chunks(lambda chunk_size: posterior.predict_at(KEY, X, SHARED, Y, chunk_size=chunk_size), Y)


@pytest.mark.long
def test_draws_of_a_chain_answer_alike():
    """Points: the mean of a prediction is that of the processes at the draws."""
    draws = {
        "f": jnp.asarray(RNG.normal(size=(2, G, 1, M))),
        "lengthscale": jnp.full((2, G, 1), 0.7),
        "typical": jnp.zeros(2),
    }
    posterior = ngp.Posterior.from_mcmc(hierarchical, draws)
    with handlers.substitute(data={"f": draws["f"][:, :, 0].mean(0)[1]}):
        f = ngp.gp("f", ngp.kernels.Matern52(1.3, 0.7), Z)
    close(posterior.predict(KEY, SHARED).mean[1], f(SHARED).mean)
    assert np.isfinite(posterior.draws(KEY, OWN, Y).log_likelihood["y"]).all()


def temporary_bytes(groups):
    """What a whole step on two groups, natural and all, holds beside its arguments and results."""
    model, data = partial(hierarchical, num_groups=groups), (jnp.zeros((groups, N, 1)), jnp.zeros((groups, N)))
    guide = ngp.AutoGP(model, {"f": guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.sgd(1e-2), 0.5), Trace_ELBO())
    step = jax.jit(lambda state, *data: svi.update(state, *data, batch=2))
    return step.lower(svi.init(KEY, *data, batch=2), *data).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.long
def test_memory_of_a_minibatch_does_not_grow_with_beliefs_of_other_groups():
    """A further group costs the drawing of its number, 22 to 28 bytes; its belief has 96, its factor 72."""
    assert (temporary_bytes(512) - temporary_bytes(64)) / (512 - 64) < 40


@pytest.mark.long
def test_samplers_and_particles_hold_points_of_all_members():
    """NUTS and SVGD on the model as it stands: draws of each group's values, and predictions from them."""
    mcmc = MCMC(NUTS(hierarchical), num_warmup=2, num_samples=2, progress_bar=False)
    mcmc.run(KEY, OWN, Y)
    svgd = ngp.stein.SVGD(hierarchical, numpyro.optim.Adam(0.01), ngp.stein.RBF(), 2)
    result = ngp.fit(KEY, svgd, 2, OWN, Y, progress=False)
    for posterior in (
        ngp.Posterior.from_mcmc(hierarchical, mcmc),
        ngp.Posterior.from_stein(hierarchical, svgd, result.params),
    ):
        assert posterior.samples["f"].shape == (2, G, 1, M)
        assert np.isfinite(posterior.predict(KEY, OWN).mean).all()
