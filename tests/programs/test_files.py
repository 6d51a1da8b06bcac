"""A file is written whole, or the one that was there stays; what is read runs nothing, and damage is named."""

import numpy as np
import pytest

from numpyro_gp.programs.files import check_place, read_whole, write_whole


def test_what_was_written_comes_back_and_a_failure_leaves_the_old_file(tmp_path):
    class Unwritable:
        def __array__(self, *_, **__):
            raise RuntimeError("no array")

    path = tmp_path / "arrays.npz"
    write_whole(path, numbers=np.arange(3.0), word=np.asarray("kept"))
    with pytest.raises(RuntimeError, match="no array"):
        write_whole(path, numbers=Unwritable())
    found = read_whole(path, "path", "a file", "Write it anew.", dict)
    np.testing.assert_array_equal(found["numbers"], np.arange(3.0))
    assert str(found["word"]) == "kept"
    assert [one.name for one in tmp_path.iterdir()] == ["arrays.npz"]


def test_damage_and_objects_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, numbers=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"path must be a file, but got .* cannot be read .*Write it anew\."):
        read_whole(path, "path", "a file", "Write it anew.", dict)


def test_a_place_is_a_file_in_a_folder(tmp_path):
    assert check_place(tmp_path / "a.npz") == tmp_path / "a.npz"
    for place in (tmp_path, tmp_path / "absent" / "a.npz"):
        with pytest.raises(ValueError, match="path must be a file in a folder that exists"):
            check_place(place)


def test_a_file_has_the_rights_of_a_new_file(tmp_path):
    """A service that is another user may read it, where files of this user can be read."""
    (tmp_path / "new").touch()
    write_whole(tmp_path / "fit.npz", a=np.ones(2))
    assert (tmp_path / "fit.npz").stat().st_mode == (tmp_path / "new").stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fit.npz", "new"]
