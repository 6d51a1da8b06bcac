"""Terms as values: names, sums, options, and what is refused."""

import numpyro.distributions as dist
import pytest

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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: s("a") + s("a"), r"terms must be different from each other, but got \['s\(a\)'\] twice"),
        (lambda: s("a") + "b", "the other side of [+] must be a term, but got a str"),
        (lambda: s(3), "column must be names of columns, but got 3"),
        (lambda: te("a"), "columns must be 2 or 3 different columns"),
        (lambda: te("a", "a"), "columns must be 2 or 3 different columns"),
        (lambda: s("a", cyclic=(3, 3)), "cyclic must be True or the two ends of a period"),
        (lambda: s("a", kernel="Linear"), "kernel must be one of .*but got 'Linear'"),
        (lambda: s("a", kernel=ngp.kernels.RationalQuadratic), "kernel must be one of .*but got .*RationalQuadratic"),
        (lambda: s("a", scale=1.0), "scale must be a prior, a NumPyro distribution, but got 1.0"),
        (lambda: s("a", scale=dist.Delta(1.0)), "scale must be a prior with a density, but got a Delta. For a value"),
        (lambda: s("a", num_inducing=1), "num_inducing must be at least 2"),
        (lambda: re("a", by=2), "by must be names of columns"),
        (lambda: ngp.gam.model(3, {}), "terms must be a formula or terms, but got an int"),
    ],
)
def test_refusals(build, message):
    with pytest.raises((TypeError, ValueError), match=message):
        build()
