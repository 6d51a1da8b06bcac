"""What a model computes with the rows of a plate, beside reading arrays by them."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import look

X, LEVEL = jnp.ones((6, 2)), jnp.ones(3)


def in_a_loop(X, rows, use):
    return jax.lax.scan(lambda total, _: (total + use(rows), None), jnp.zeros(6), None, length=2)[0]


READS = {
    "rows": lambda X, rows: X[rows, 0],
    "codes": lambda X, rows: LEVEL[X[rows, 0].astype(int)],
    "take": lambda X, rows: jnp.take(X, rows, axis=0)[:, 1],
    "another shape": lambda X, rows: X[rows[:, None]][:, 0, 0],
    "a loop": lambda X, rows: in_a_loop(X, rows, lambda rows: X[rows][:, 0]),
    "not at all": lambda X, rows: X[:, 0],
}
COUNTS = {
    "a trend": lambda X, rows: 0.1 * rows,
    "a season": lambda X, rows: LEVEL[rows % 3],
    "a group": lambda X, rows: LEVEL[rows // 2],
    "a break": lambda X, rows: jnp.where(rows < 3, X[:, 0], 0.0),
    "a neighbour": lambda X, rows: X[rows + 1, 0],
    "a key": lambda X, rows: jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(jax.random.key(0), row)))(rows),
    "a loop": lambda X, rows: in_a_loop(X, rows, lambda rows: 1.0 * rows),
}


def counted(of):
    def model(X):
        with numpyro.plate("group", 3) as members:
            numpyro.deterministic("size", 2.0 * members)
        with numpyro.plate("data", len(X)) as rows:
            numpyro.sample("y", dist.Normal(of(X, rows), 1.0))

    return look(model, call_of(model, (X,), {})).counted


@pytest.mark.parametrize("name", READS)
def test_reading_is_no_counting(name):
    assert counted(READS[name]) == {"group"}


@pytest.mark.parametrize("name", COUNTS)
def test_counting(name):
    assert counted(COUNTS[name]) == {"group", "data"}
