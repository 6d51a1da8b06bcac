"""What a model of the net is made of: a value of choices from finite sets, and a way to draw many of them.

The draws depend on the seed alone. Hypothesis is not asked: it mixes in constants of the modules that a process has
imported, so that its draws differ between machines, and between the workers of one run.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

# Which processes a likelihood can see, and which beliefs can stand at their sites.
ONE = (
    "gaussian",
    "student",
    "bernoulli",
    "probit",
    "poisson",
    "gamma",
    "exponential",
    "beta",
    "negative binomial",
    "ordinal",
    "own",
    "closure",
    "exposed",
    "scaled",
)
CLOSURES = ("closure", "exposed", "two functions", "three functions")
LIKELIHOODS = {
    "one": ONE,
    "outputs": ("gaussian", "softmax", "robust max", "closure"),
    "two": ("heteroscedastic", "two functions"),
    "three": ("three functions",),
    "additive": ONE,
    "deep": ("gaussian", "bernoulli", "exposed"),
    "regression": ("gaussian",),
    "collapsed": ("gaussian",),
}
PLAIN = ("coupled", "natural", "mean field", "own")
BELIEFS = {
    "one": (*PLAIN, "decoupled", "hybrid", "orthogonal", "decoupled layer"),
    "outputs": (*PLAIN, "decoupled layer"),
    "two": PLAIN,
    "three": PLAIN,
    "additive": ("coupled", "own", "block diagonal", "structured", "block low rank"),
    "deep": PLAIN,
    "regression": ("none",),
    "collapsed": ("none",),
}
CONDITIONED = ("regression", "collapsed")
CHOICES = {
    "hyper": ("sampled", "fixed", "param"),
    "kernel": ("rbf", "sum", "class", "callable"),  # the last two are the user's own
    "around": ("nothing", "mask", "scale", "scope"),  # handlers around the data
    "plates": ("data", "replicates", "groups"),  # groups: a process for each of them
    "kernels": ("shared", "each"),  # each: a batch, one kernel for each group or output
}
IN_GROUPS = ("one", "two", "additive")
# X: a process at its own inducing inputs, asked for; object: X itself passed for both arguments.
INDUCING = ("Z", "X", "object")
SITES = {"one": 1, "outputs": 1, "two": 2, "three": 3, "additive": 1, "deep": 1}


@dataclasses.dataclass(frozen=True)
class Description:
    """What a model is made of; a hashable value."""

    process: str = "one"
    likelihood: str = "gaussian"
    belief: str = "coupled"
    hyper: str = "sampled"
    kernel: str = "rbf"
    around: str = "nothing"
    plates: str = "data"
    kernels: str = "shared"
    inducing: str = "Z"
    noise_last: bool = False  # hyper-parameters of the data are sampled after the process
    mean: bool = False
    seed: int = 0

    @property
    def is_conditioned(self) -> bool:
        """Whether the data are inside the model (`gp_regression`)."""
        return self.process in CONDITIONED

    @property
    def is_deep(self) -> bool:
        return self.process == "deep"

    @property
    def has_rows(self) -> bool:
        """Whether rows can be taken away, batched or cut into chunks: inducing inputs are not the data's."""
        return self.inducing == "Z" and not self.is_conditioned

    @property
    def is_grouped(self) -> bool:
        """Whether processes stand in a plate of groups."""
        return self.plates == "groups"

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites of processes that a likelihood sees."""
        return tuple(f"func_{letter}" for letter in "abc"[: SITES.get(self.process, 0)])

    @functools.cached_property
    def features(self) -> frozenset[tuple[str, Any]]:
        """Everything it is made of but the seed of its values."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "seed"]
        return frozenset((name, getattr(self, name)) for name in names)


def kernels_are_shared(process: str, chosen: dict[str, str]) -> bool:
    """Where there is nothing to have a kernel each; and a function of two sets of inputs is no batch."""
    return chosen["kernel"] == "callable" or not (process == "outputs" or chosen["plates"] == "groups")


def description(random: Random) -> Description:
    """A model that the library claims to serve."""

    def one_of(*choices: Any) -> Any:
        return choices[int(random.random() * len(choices))]

    process = one_of(*LIKELIHOODS)
    chosen = {name: one_of(*values) for name, values in CHOICES.items()}
    outputs = process == "outputs"
    if process not in IN_GROUPS and chosen["plates"] == "groups":
        chosen["plates"] = "replicates"
    if kernels_are_shared(process, chosen):
        chosen["kernels"] = "shared"
    if process in CONDITIONED:
        chosen |= {"hyper": "sampled", "around": "nothing", "plates": "data"}
    return Description(
        process=process,
        likelihood=one_of(*LIKELIHOODS[process]),
        belief=one_of(*BELIEFS[process]),
        **chosen | ({"plates": "data"} if outputs else {}),
        inducing=one_of("Z", *INDUCING) if process == "one" else "Z",
        noise_last=one_of(False, True),
        mean=not outputs and one_of(False, True),
        seed=int(random.random() * 10**6),
    )


def drawn(count: int, seed: int) -> list[Description]:
    """``count`` models: the same of a seed in every process."""
    random = Random(seed)
    return [description(random) for _ in range(count)]


def spread(models: Iterable[Description], count: int) -> list[Description]:
    """The ``count`` models in which rare features are met most often: next is one whose rarest feature is the rarest."""
    left, met, chosen = list(models), Counter[tuple[str, Any]](), []
    for _ in range(count):
        best = min(left, key=lambda one: sorted(met[feature] for feature in one.features))
        left.remove(best)
        chosen.append(best)
        met.update(best.features)
    return chosen
