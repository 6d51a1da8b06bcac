"""Kernels between particles: how they divide the sites, when they are equal, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.stein import IMQ, RBF, Groups, Moments, PerSite, svgd_direction

SITES = ("f", "lengthscale", "noise")


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (RBF(), [SITES]),
        (IMQ(per_coordinate=True), [SITES]),
        (PerSite({"noise": IMQ()}), [("f",), ("lengthscale",), ("noise",)]),
        (Groups([["noise", "lengthscale"]]), [("noise", "lengthscale"), ("f",)]),
        (Groups(["noise", ["f", "lengthscale"]], [IMQ(), RBF(1.0)]), [("noise",), ("f", "lengthscale")]),
    ],
)
def test_every_site_lies_in_one_block(kernel, expected):
    assert [block.sites for block in kernel.blocks(SITES)] == expected


def test_each_block_has_the_kernel_that_was_given():
    assert [type(b.kernel) for b in PerSite({"noise": IMQ()}).blocks(SITES)] == [RBF, RBF, IMQ]
    own = Groups([["noise"]], IMQ(1.5), rest=RBF(per_coordinate=True)).blocks(SITES)
    assert own[0].kernel == IMQ(1.5)
    assert own[1].kernel == RBF(per_coordinate=True)


@pytest.mark.parametrize("make", [RBF, lambda: PerSite({"a": IMQ()}), lambda: Groups(["a"], [IMQ(1.5)])])
def test_equal_kernels_share_a_compiled_program(make):
    assert make() == make()
    assert hash(make()) == hash(make())
    assert jax.tree.structure(make()) == jax.tree.structure(make())
    assert make() != PerSite()


@pytest.mark.long
def test_numbers_may_come_as_arrays_of_no_axes():
    """A bandwidth computed with NumPy or JAX is the number it holds: equal kernels, one compiled program."""
    for make in (np.float32, np.float64, np.asarray, jnp.asarray):
        assert RBF(make(0.5)) == RBF(0.5)
        assert IMQ(make(1.5), make(-0.25), bandwidth=make(2)) == IMQ(1.5, -0.25, bandwidth=2)
    x = jnp.asarray([[0.0], [1.0], [3.0]])
    np.testing.assert_array_equal(svgd_direction(x, -x, RBF(jnp.asarray(0.5))), svgd_direction(x, -x, RBF(0.5)))
    for wrong in (jnp.ones(1), np.asarray(True), jnp.asarray(jnp.nan)):
        with pytest.raises(ValueError, match='bandwidth must be "median" or a positive number'):
            RBF(wrong)
    with pytest.raises(ValueError, match=r'bandwidth must be "median" or a positive number, but got .*Trace'):
        jax.jit(lambda h: RBF(h).profile(x, h))(0.5)


def test_messages():
    x = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match='bandwidth must be "median" or a positive number, but got -1'):
        RBF(-1)
    with pytest.raises(ValueError, match="bandwidth must be"):
        IMQ(bandwidth="mean")
    with pytest.raises(ValueError, match="c must be a positive number, but got 0"):
        IMQ(c=0)
    with pytest.raises(ValueError, match="power must be between -1 and 0, but got 1"):
        IMQ(power=1)
    with pytest.raises(TypeError, match="per_coordinate must be True or False, but got 1"):
        RBF(per_coordinate=1)
    with pytest.raises(ValueError, match="groups must be a list of groups of site names"):
        Groups("ab")
    with pytest.raises(ValueError, match=r"groups must be groups that share no site, but got \['a'\] in two of them"):
        Groups([["a"], ["a", "b"]])
    with pytest.raises(ValueError, match="groups must be groups of at least one site"):
        Groups([["a"], []])
    with pytest.raises(TypeError, match="kernels must be RBF or IMQ"):
        Groups(["a"], RBF)
    with pytest.raises(TypeError, match="rest must be RBF or IMQ"):
        Groups(["a"], rest=PerSite())
    with pytest.raises(TypeError, match="default must be RBF or IMQ"):
        PerSite(default=RBF)
    with pytest.raises(ValueError, match="kernels must be one for each of the 2 groups, but got 1"):
        Groups(["a", "b"], [RBF()])
    with pytest.raises(TypeError, match="kernels must be RBF or IMQ"):
        PerSite({"a": PerSite()})
    with pytest.raises(ValueError, match="kernels must be a dictionary of site names to kernels"):
        PerSite(["a"])
    with pytest.raises(ValueError, match=r"kernels must be names of latent sites among \['b'\], but got \['a'\]"):
        svgd_direction({"b": x}, {"b": x}, PerSite({"a": RBF()}))
    with pytest.raises(ValueError, match=r"groups must be names of latent sites among \['b'\], but got \['a'\]"):
        svgd_direction({"b": x}, {"b": x}, Groups(["a"]))
    with pytest.raises(TypeError, match="kernel must be RBF, IMQ, PerSite or Groups, but got <class"):
        Moments(IMQ)
    with pytest.raises(TypeError, match="kernel must be RBF, IMQ, PerSite or Groups, but got Moments"):
        Moments(Moments())
    with pytest.raises(ValueError, match="weight must be a positive number, but got 0"):
        Moments(weight=0.0)


def test_the_profile_of_imq_and_its_derivatives():
    """``(c^2 + r/h)^p`` in NumPy, and central differences of it."""
    kernel, h, r = IMQ(1.2, power=-0.3), 0.7, np.array([0.0, 0.4, 3.0])

    def value(r):
        return (1.44 + r / h) ** -0.3

    found = kernel.profile(r, h)
    np.testing.assert_allclose(found[0], value(r), rtol=1e-12)
    np.testing.assert_allclose(found[1], (value(r + 1e-5) - value(r - 1e-5)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(found[2], (value(r + 1e-3) - 2 * value(r) + value(r - 1e-3)) / 1e-6, rtol=1e-4)
