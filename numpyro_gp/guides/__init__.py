"""Recipes for single sites, and the guide that joins them.

A recipe says how a guide describes one sample site: which parameters it declares, where they start, and what the site
holds. `AutoGP` takes one for each Gaussian process, ``AutoGP(model, {"f": orthogonal(Z_gamma, natural=True)})``, and
gives the sites that are not named to NumPyro's own autoguides. The functions here make recipes:

- one process (`gp`): `coupled`, `conditional`, `mean_field`, `decoupled`, `hybrid`, `orthogonal`, `decoupled_layer`;
- a sum of processes (`additive_gp`): `coupled`, `conditional`, `block_diagonal`, `structured`, `block_low_rank`;
- a process whose rows have neighbours (`ngp.neighbours`): `pseudo_data`, its default;
- latent inputs of each datum (`latent_inputs`): `free_latent`, `amortised` by a network (`encoder`, `flax_network`,
  `equinox_network`).

For minibatches, `keyed_rows` draws the rows of every plate at the cost of the batch, in a guide of your own too;
`permuted_rows` hands out the parts of a random order, for epochs.

``natural=True`` stores natural parameters, which need `ngp.optim.natural_gradient`.

A recipe of your own is any function ``recipe(name, prior)``. It declares its parameters with
``numpyro.param(f"{name}/...", start)`` and returns a belief (`ngp.beliefs`; a ``Delta`` is a point). For a site of
another kind, as ``{"noise": recipe}`` for a hyper-parameter, it returns a NumPyro distribution. ``prior`` is the site's
prior in the model: it has ``event_shape``, ``dtype`` and, for a process, the ``basis`` of its inducing inputs at the
first call.
"""

from numpyro_gp.guides.amortised import amortised, encoder, equinox_network, flax_network
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.guides.decoupled import decoupled, decoupled_layer, hybrid, orthogonal
from numpyro_gp.guides.recipes import conditional, coupled, free_latent, mean_field, pseudo_data
from numpyro_gp.guides.structured import block_diagonal, block_low_rank, structured
from numpyro_gp.rows.batch_plates import keyed_rows, permuted_rows

__all__ = ["AutoGP", "coupled", "mean_field", "conditional", "pseudo_data", "free_latent"]
__all__ += ["decoupled", "decoupled_layer", "hybrid", "orthogonal", "block_diagonal", "block_low_rank", "structured"]
__all__ += ["amortised", "encoder", "equinox_network", "flax_network", "keyed_rows", "permuted_rows"]
