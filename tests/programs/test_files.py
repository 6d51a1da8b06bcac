"""A file is written whole, or the one that was there stays; what is read runs nothing, and damage is named."""

import numpy as np

from numpyro_gp.programs.files import write_whole


def test_a_file_has_the_rights_of_a_new_file(tmp_path):
    """A service that is another user may read it, where files of this user can be read."""
    (tmp_path / "new").touch()
    write_whole(tmp_path / "fit.npz", a=np.ones(2))
    assert (tmp_path / "fit.npz").stat().st_mode == (tmp_path / "new").stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fit.npz", "new"]
