"""What no additive model is made of: families, options, terms, tables and columns, each with its cure."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam import factor, linear, re, s, te
from numpyro_gp.gam.model.family import as_family, quick_glm
from numpyro_gp.gam.model.features import RowFeatures
from numpyro_gp.gam.table.layout import lay_out
from numpyro_gp.gam.table.terms import formula

ROWS, RNG = 20, np.random.default_rng(0)
DATA = {"x": RNG.uniform(size=ROWS), "y": RNG.normal(size=ROWS), "g": np.array(list("ab") * 10), "n": np.arange(ROWS)}
FEW = {"x": np.array([0, 1, 2, np.nan, 4]), "g": np.array(["a", "b", "a", "b", None], object), "e": np.arange(5.0)}
FEW["y"] = np.arange(1.0, 6.0)
TRIALS = np.arange(1, 9)


def fit(**options):
    return lambda: ngp.gam("y ~ s(x)", DATA, **options)


def model(terms, family="gaussian", data=DATA, **options):
    return lambda: ngp.gam.model(terms, data, family, **options)


def laid(text, response="y", weights=None, **changed):
    return lambda: lay_out(formula(text), FEW | changed, response, weights)


def encode(text, new):
    return lambda: laid(text)()[0].encode(new)


def trials(family="binomial", trials="n", **changed):
    table = {"x": np.linspace(-1, 1, 8), "n": TRIALS, "y": np.minimum(TRIALS, 3)} | changed
    return model("y ~ linear(x)", family, table, trials=trials)


def start(family, rows=4):
    return lambda: quick_glm(as_family(family), np.zeros((rows, 0)), np.ones(rows), np.zeros(rows), np.ones(rows))


TABLE = [
    # Families
    (lambda: as_family("gaussian(log)"), "family must be one of .*but got 'gaussian[(]log[)]'. Counts take 'poisson'"),
    (lambda: as_family("poison"), "Check the spelling"),
    (lambda: as_family("Normal"), r"but got 'Normal'\. Write 'gaussian'\."),
    (lambda: as_family("logistic"), r"Write 'bernoulli'\."),
    (lambda: as_family(np.zeros(9)), r"The second argument is a table with all columns"),
    (lambda: as_family(lambda f: f), "a name, a likelihood, or a function without arguments"),
    (lambda: as_family(ngp.likelihoods.Softmax(3)), "one function, the sum of the terms, but got Softmax, which has 3"),
    (
        lambda: as_family(lambda: lambda f, g: dist.Normal(f, 1 + g**2)),
        "function, which has 2. Write the model yourself",
    ),
    (
        model("y ~ s(x)", ngp.likelihoods.Censored(ngp.likelihoods.Gaussian(1.0), right=DATA["y"] > 1)),
        "family must be a likelihood that new rows have too, but got Censored, with a number for each row. Pass the likelihood of",
    ),
    (
        start(ngp.likelihoods.Gamma(np.ones(5))),
        "shape of Gamma must be one number, or one for each of 4 rows, but got 5",
    ),
    (model("y ~ s(x)", "poisson"), "response 'y' of family 'poisson': obs must be non-negative"),
    (
        model("y ~ s(x)", lambda: lambda f: dist.Poisson(jnp.exp(f)), DATA | {"y": np.arange(ROWS) - 3.0}),
        "response 'y' of family 'function': obs must be in the support .*got -3",
    ),
    # Trials
    (trials(trials=None), "trials must be the name of a column beside family 'binomial', but got None.*trials='n'"),
    (trials("poisson"), "trials must be None beside family 'poisson', but got 'n'"),
    (trials(trials=TRIALS), "trials must be the name of a column, but got an ndarray. Put them into the table"),
    (trials(n=TRIALS - 1), "trials 'n' must be whole numbers from 1 on, but got 0"),
    (trials(y=TRIALS + 1), "response 'y' .*whole numbers from 0 to the trials, but got 2"),
    (trials(y=TRIALS / 2), "response 'y' .*but got 0.5. y counts successes: multiply shares"),
    (trials(ngp.likelihoods.Binomial(TRIALS), None), "family must be one whose trials are a column of the table"),
    # Options
    (fit(engine="mcmc"), "engine must be one of 'svi', 'nuts', 'svgd', but got 'mcmc'"),
    (fit(exposure="w"), r"among .* got \['exposure'\]\. Write \+ offset\(log\(hours\)\)"),
    (fit(event="dead"), 'Write censored="not dead", of a column dead.'),
    (fit(seed=0), r"Write key=jax\.random\.key\(0\)\."),
    (fit(num_steps=0), "num_steps must be at least 1"),
    (fit(batch=1.5), "batch must be a whole number"),
    (fit(key=3), "key must be one JAX random key"),
    (fit(weights=[-1.0] * ROWS), "weights must be finite, and zero or positive"),
    (model("y ~ s(x)", measure="even"), "measure must be one of 'empirical'"),
    (model(s("x")), "response must be the name of a column, but got None"),
    # Terms
    (lambda: formula(["y"]), "formula must be text, but got a list"),
    (model(3), "terms must be a formula or terms, but got an int"),
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
    (model("log(y) ~ s(y)"), r"terms must be of other columns than the response 'log\(y\)'"),
    (model("y ~ C(x)"), r"a term must be one of gam's, but got 'C\(x\)'. Write factor\(x\)"),
    (laid("y ~ e + linear(e)"), r"but got \['linear\(e\)'\] twice. Write each of them once."),
    (laid("y ~ factor(g) + s(e) + g"), r"but got \['factor\(g\)'\] twice"),
    # Tables and their columns
    (model("y ~ s(w)"), "data must be a table with the column 'w', which s.w. reads, but got"),
    (laid("y ~ e", weights=[1]), r"weights must be of shape \(5,\)"),
    (laid("y ~ e", e=[1.0]), "columns must be of one length"),
    (laid("y ~ offset(log(e))"), r"offset\(log\(e\)\) must be finite, but got -inf"),
    (laid("y ~ e", y=list("abcde")), "response 'y' must be numbers in this family, but got text, 'a' and others"),
    (laid("y ~ e", e=[None] * 5), "none of which is complete. Leave out e: no row has"),
    (laid("y ~ e", "log(y)", y=np.arange(5.0) - 1), r"log\(y\) must be .* but got y = -1, 1 of 5 rows"),
    (lambda: lay_out(formula("y ~ e"), {"y": [], "e": []}, "y", None), "data must be of one row or more, but got none"),
    (model("y ~ s(g)"), "column 'g' must be numbers"),
    (model("y ~ x", data=DATA | {"y": np.full(ROWS, np.inf)}), "response 'y' must be finite"),
    (
        model("y ~ s(x)", data=DATA | {"y": np.full(ROWS, 3.0)}),
        "response 'y' must be of values that differ, but got 3 in all 20 rows",
    ),
    (model("y ~ s(n, cyclic=(0, 12))"), r"cyclic of s\(n\) must be the ends of the column"),
    (lambda: RowFeatures(model("y ~ s(x)", measure="gaussian")(), np.zeros((1, 1))), "measure"),
    # Rows to predict
    (encode("y ~ s(x)", {"x": [np.nan]}), "column 'x' must be known in the rows to predict"),
    (encode("y ~ s(x)", {"x": np.zeros(0)}), "table of new rows must be of one row or more, but got none"),
    (encode("y ~ factor(g)", {"g": ["z"]}), r"column 'g' of .* must be one of \['a', 'b'\], but got 'z'"),
    (encode("y ~ s(e) + s(e, by=g)", {"g": ["z"], "e": [1.0]}), r"column 'g' of .* must be one of .*, but got 'z'"),
    (encode("y ~ s(log(y))", {"y": [0.0, 1.0]}), r"'log\(y\)' must be finite in the rows .* got -inf in 1 of 2"),
    (encode("y ~ s(x) + offset(e)", {"x": [1.0]}), r"'e', which offset\(e\) reads, but got the columns \['x'\]"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=[message[:40] for _, message in TABLE])
def test_refusals(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_what_is_near_to_a_refusal_is_none():
    """Numbers of few values are categories; counts may all be one."""
    model("n ~ s(x)", "poisson", DATA | {"n": np.ones(ROWS)})()
    assert model("y ~ s(x, by=n)")().layout.columns[1].is_category
    assert (factor("g") + linear("x")).items == (factor("g"), linear("x"))
