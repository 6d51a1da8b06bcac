"""Kernels between particles: how they divide the sites, when they are equal, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.stein import IMQ, RBF, Groups, Moments, PerSite, svgd_direction

SITES = ("f", "lengthscale", "noise")


def test_every_site_lies_in_one_block_with_its_kernel():
    all_groups = Groups(["noise", ["f", "lengthscale"]], [IMQ(), RBF(1.0)])
    coordinates = RBF(per_coordinate=True)
    for kernel, expected in (
        (RBF(), [(SITES, RBF())]),
        (IMQ(per_coordinate=True), [(SITES, IMQ(per_coordinate=True))]),
        (PerSite({"noise": IMQ()}), [(("f",), RBF()), (("lengthscale",), RBF()), (("noise",), IMQ())]),
        (Groups([["noise", "lengthscale"]]), [(("noise", "lengthscale"), RBF()), (("f",), RBF())]),
        (all_groups, [(("noise",), IMQ()), (("f", "lengthscale"), RBF(1.0))]),
        (
            Groups([["noise"]], IMQ(1.5), rest=coordinates),
            [(("noise",), IMQ(1.5)), (("f", "lengthscale"), coordinates)],
        ),
    ):
        assert [(block.sites, block.kernel) for block in kernel.blocks(SITES)] == expected


def test_messages():
    """What ``contracts/misuses_after.py`` does not have."""
    x = {"b": jnp.zeros((3, 2))}
    for call, message in (
        (lambda: Groups([["a"], []]), "groups must be groups of at least one site"),
        (lambda: Groups(["a"], RBF), "kernels must be RBF or IMQ"),
        (lambda: Groups(["a"], rest=PerSite()), "rest must be RBF or IMQ"),
        (lambda: Groups(["a", "b"], [RBF()]), "kernels must be one for each of the 2 groups, but got 1"),
        (lambda: PerSite(default=RBF), "default must be RBF or IMQ"),
        (
            lambda: svgd_direction(x, x, PerSite({"a": RBF()})),
            r"kernels must be names .* among \['b'\], but got \['a'\]",
        ),
        (lambda: svgd_direction(x, x, Groups(["a"])), r"groups must be names .* among \['b'\], but got \['a'\]"),
        (lambda: Moments(IMQ), "kernel must be RBF, IMQ, PerSite or Groups, but got <class"),
        (lambda: Moments(Moments()), "kernel must be RBF, IMQ, PerSite or Groups, but got Moments"),
        (lambda: Moments(weight=0.0), "weight must be a positive number, but got 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_the_profile_of_imq_and_its_derivatives():
    """``(c^2 + r/h)^p`` in NumPy, and central differences of it."""
    kernel, h, r = IMQ(1.2, power=-0.3), 0.7, np.array([0.0, 0.4, 3.0])

    def value(r):
        return (1.44 + r / h) ** -0.3

    found = kernel.profile(r, h)
    np.testing.assert_allclose(found[0], value(r), rtol=1e-12)
    np.testing.assert_allclose(found[1], (value(r + 1e-5) - value(r - 1e-5)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(found[2], (value(r + 1e-3) - 2 * value(r) + value(r - 1e-3)) / 1e-6, rtol=1e-4)
