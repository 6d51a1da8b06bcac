"""A file is written whole, or the one that was there stays; what is read runs nothing, and damage is named."""

import numpy as np
import pytest

from numpyro_gp.programs.files import read_whole, write_whole


def test_damage_and_objects_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, numbers=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"path must be a file, but got .* cannot be read .*Write it anew\."):
        read_whole(path, "path", "a file", "Write it anew.", dict)


def test_a_file_has_the_rights_of_a_new_file(tmp_path):
    """A service that is another user may read it, where files of this user can be read."""
    (tmp_path / "new").touch()
    write_whole(tmp_path / "fit.npz", a=np.ones(2))
    assert (tmp_path / "fit.npz").stat().st_mode == (tmp_path / "new").stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fit.npz", "new"]
