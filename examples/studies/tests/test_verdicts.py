"""What the verdicts on claims stand on: other code finds the same ones from the rows, and bounds of draws."""

import numpy as np
import pytest

from examples.studies.importance import latent_scores
from examples.studies.tables import recount


def test_an_estimate_of_draws_bounds_the_loss_where_a_mixture_does_not():
    """Of draws at 0 and 1 alone a row at 0.5 has 1 / sqrt(2 pi) h exp(-1 / 8 h^2), h from Scott's rule."""
    draws = np.repeat([0.0, 1.0], 50)[:, None]
    width = draws.std(ddof=1) * 100**-0.2
    found = latent_scores.estimated(draws, np.array([0.5]))
    np.testing.assert_allclose(found, -0.5 * np.log(2 * np.pi * width**2) - 0.125 / width**2, rtol=1e-12)


@pytest.mark.parametrize("paper", recount.PAPERS, ids=lambda paper: paper.__name__)
def test_other_code_decides_the_same_verdicts_from_the_rows(paper):
    """And counts them as the index does."""
    lines = recount.recounted(paper)
    assert [line for line in lines if line[1] != line[2]] == []
    assert f"]({paper.__name__}.md) | {recount.counts(lines)} |" in (recount.PAGES / "index.md").read_text()


def test_a_recount_has_four_words():
    """Parts of a whole claim, of a part of it, and differences of three splits alone (t of 4.30 is needed)."""
    assert [recount.decided(*parts) for parts in ((True, True), (True, False), (False, False))] == list(
        recount.WORDS[:3]
    )
    assert recount.decided(True, whole=False) == "partly"
    assert recount.unless(2) == "not measured"
    assert [recount.sign(own) for own in ([1.0, 1.1, 1.2], [-1.0, -1.1, -1.2], [0.0, 1.0, 2.0], [1.0, 1.1])] == [
        1,
        -1,
        0,
        0,
    ]
