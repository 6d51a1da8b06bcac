"""The pieces of `beyond` that its numbers stand on: an interval with soft edges, the choice, the verdict."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import logistic

from examples.studies.peers.beyond import Interval
from examples.studies.peers.beyond_tables import chosen, published, read, table, verdict
from examples.tools.tables import save

pytestmark = pytest.mark.experiments

LOW, HIGH, SCALE = -0.4, 1.1, 0.2


def density(value):
    """``int_low^high logistic(value - u) du / (high - low)``."""
    return quad(lambda u: logistic.pdf(value, u, SCALE), LOW, HIGH, epsabs=1e-12)[0] / (HIGH - LOW)


def test_interval_is_a_uniform_with_logistic_noise():
    values = np.array([-3.0, -0.4, 0.3, 1.0, 1.1, 2.5])
    found = jnp.exp(Interval(LOW, HIGH, SCALE).log_prob(jnp.asarray(values)))
    np.testing.assert_allclose(found, [density(value) for value in values], rtol=1e-6)


def test_interval_far_outside_has_a_slope():
    # The difference of two sigmoids that are both 1 to rounding has none.
    slope = jax.grad(Interval(LOW, HIGH, SCALE).log_prob)(jnp.asarray(40.0))
    np.testing.assert_allclose(slope, -1 / SCALE, rtol=1e-5)


def test_moments_of_the_interval():
    interval = Interval(LOW, HIGH, SCALE)
    value = np.linspace(-8, 9, 4001)
    inside = (logistic.cdf(value, LOW, SCALE) - logistic.cdf(value, HIGH, SCALE)) / (HIGH - LOW)
    moments = [np.trapezoid(value**k * inside, value) for k in (1, 2)]
    np.testing.assert_allclose(interval.mean, moments[0], atol=1e-6)
    np.testing.assert_allclose(interval.variance, moments[1] - moments[0] ** 2, atol=1e-6)
    draws = interval.sample(jax.random.key(0), (20_000,))
    error = np.sqrt(interval.variance / 20_000)
    assert abs(draws.mean() - interval.mean) < 5 * error
    assert abs(draws.std() - np.sqrt(interval.variance)) < 5 * error  # without the noise it is 0.08 less


ROWS = [
    {"set": "servo", "split": split, "model": model, "bound": bound, "log_density": density, "rmse": 0.1, "seconds": 1.0}
    for split, model, bound, density in [
        (0, "linear, normal", 9.0, -1.0), (0, "A", -0.2, 0.3), (0, "B", -0.1, 0.1),
        (1, "linear, normal", 9.0, -0.8), (1, "B", -0.3, 0.9), (1, "A", -0.2, 0.2),
    ]
]  # fmt: skip


def test_the_bound_chooses_and_the_test_rows_do_not():
    best, lines = chosen(ROWS, "servo")
    assert {split: row["model"] for split, row in best.items()} == {0: "B", 1: "A"}
    assert lines == {0: -1.0, 1: -0.8}


@pytest.mark.parametrize(
    ("mean", "error", "said"),
    [(0.51, 0.1, "better"), (0.49, 0.1, "not decided"), (0.09, 0.1, "worse"), (0.51, np.nan, "not decided")],
)
def test_two_standard_errors_decide(mean, error, said):
    assert verdict(mean, error, 0.3) == said


def test_table_has_what_is_printed(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    lines = ["dataset,method,metric,value,stderr,doubtful,note"]
    lines += ["servo,Linear,test_loglik,-0.86,,0,", "servo,CVAE,test_loglik,7,,0,", "servo,GP VI,test_loglik,-2,,0,"]
    (folder / "seed004_table2_test_loglik_all_methods.csv").write_text("\n".join(lines))
    assert published(tmp_path)["servo"] == {"linear": (-0.86, "Linear"), "GP": (-0.86, "Linear"), "CVAE": (7, "CVAE")}
    save(tmp_path / "beyond.csv", ROWS)
    rows = read(tmp_path / "beyond.csv")
    assert rows == ROWS
    # Means over splits: 0.15 with error 0.05; gains over the linear model 1.1 and 1.0.
    line = "| servo | 2 | B (1), A (1) | 0.150 ± 0.050 | -0.86, Linear | 7.00, CVAE | better | 1.050 ± 0.050 | 0.00 |"
    assert table(rows, tmp_path).splitlines()[-1] == line
