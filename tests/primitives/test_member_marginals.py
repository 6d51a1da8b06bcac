"""Values at inducing inputs of a belief."""

import numpy as np

from tests.primitives.test_process import BELIEFS, at_own_inputs


def test_a_belief_at_inducing_is_that_of_noisy_values():
    """``L S L^T`` on the diagonal, of ``K + eps I``: without the jitter it is off by 1e-3 and more."""
    _, named, gram = at_own_inputs(*BELIEFS[0][:1])
    factor = np.linalg.cholesky(gram)
    for mean, variance in named:
        np.testing.assert_allclose(mean, factor @ np.arange(5.0), atol=1e-12)
        np.testing.assert_allclose(variance, 0.25 * np.diag(gram), atol=1e-12)
