"""Terms as values: names, sums and options."""

import numpyro.distributions as dist

import numpyro_gp as ngp
from numpyro_gp.gam import factor, linear, offset, re, s, te, ti


def test_terms_add_up_in_order_and_say_how_they_are_written():
    found = s("a", by="g") + (te("a", "b", "c") + ti("a", "b")) + re("g", by="b") + linear("log(b)") + factor("g")
    assert str(found + offset("e")) == (
        "s(a, by=g) + te(a, b, c) + ti(a, b) + re(g, by=b) + linear(log(b)) + factor(g) + offset(e)"
    )


def test_options_are_kept():
    prior = dist.HalfNormal(2.0)
    term = s("h", cyclic=(0, 24), kernel="RBF", num_inducing=7, scale=prior)
    assert (term.cyclic, term.kernel, term.num_inducing, term.scale) == ((0.0, 24.0), ngp.kernels.RBF, 7, prior)
    assert s("h").kernel is ngp.kernels.Matern52
