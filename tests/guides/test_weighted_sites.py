"""Which local sites of a guide have weights: by their traces, without an objective around them."""

import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from numpyro_gp.guides.other_sites import dependent_site, not_reparametrised, refuse_points, sampled_sites


def traced(second):
    """Sites ``z`` and ``w`` of three data, the second by what is passed, at given values."""

    def guide():
        with numpyro.plate("data", 3):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("w", second(z))

    return lambda values: handlers.trace(handlers.substitute(handlers.seed(guide, 0), data=dict(values))).get_trace()


def test_a_site_that_depends_on_another_is_found():
    for second, found in ((lambda z: dist.Normal(z, 1.0), "w"), (lambda _: dist.Normal(0.0, 1.0), None)):
        propose = traced(second)
        assert dependent_site(propose, propose({}), "data") == found


def test_sites_without_a_path_and_points_are_named():
    of_counts, of_points = (traced(second)({}) for second in (lambda _: dist.Poisson(2.0), lambda z: dist.Delta(z)))
    assert list(sampled_sites(of_counts)) == ["z", "w"]
    assert not_reparametrised(of_counts, "data") == "w"
    refuse_points(of_points, "data", 1)
    with pytest.raises(ValueError, match=r"'w'.* must be a distribution with a width"):
        refuse_points(of_points, "data", 2)
