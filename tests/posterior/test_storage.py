"""Files of arrays: what is written is read back bit for bit, and other files are refused."""

import copy
import dataclasses
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.posterior.storage import read_arrays, write_arrays
from tests.fits import KEY, X, Y, at_start, fit, known


def test_round_trip_keeps_names_shapes_and_types(tmp_path):
    """Lists of tuples too, empty where a layer has no parameters, as networks of NumPyro's flows are."""
    groups = {
        "params": {
            "f/loc": jnp.arange(3.0),
            "nested": {"a.b": jnp.ones((2, 2), jnp.float32)},
            "net": [(jnp.ones((2, 3)), jnp.zeros(2)), (), [{"a": jnp.ones(1)}, ()]],
            "[0]": jnp.ones(()),
            "none": [],
        },
        "samples": {"count": jnp.arange(4), "half": jnp.ones(2, jnp.bfloat16), "flag": jnp.array([True, False])},
    }
    write_arrays(tmp_path / "file.npz", "mcmc", groups, {"num_chains": 2})
    kind, found, notes = read_arrays(tmp_path / "file.npz")
    assert (kind, notes) == ("mcmc", {"num_chains": 2})
    for name, wanted in groups.items():
        assert jax.tree.structure(found[name]) == jax.tree.structure(wanted)
        for own, other in zip(jax.tree.leaves(found[name]), jax.tree.leaves(wanted), strict=True):
            assert own.dtype == other.dtype
            np.testing.assert_array_equal(own, other)
    assert [p.name for p in tmp_path.iterdir()] == ["file.npz"], "no temporary file is left"


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "other.npz", header=np.asarray('{"format": "x", "arrays": []}'))
    np.save(tmp_path / "one.npy", np.ones(2))
    np.savez(tmp_path / "pickle.npz", header=np.array([{"a": 1}], dtype=object))  # it would be a pickle
    for name, message in {
        "missing.npz": r"path must be a file written by Posterior\.save",
        "text.npz": r"path must be a file written by Posterior\.save",
        "other.npz": "path must be a file of format 'numpyro_gp posterior 1', but got 'x'",
        "one.npy": r"path must be .*one\.npy', which cannot be read \(File is not a zip file",
        "pickle.npz": r"path must be a file written by Posterior\.save",
    }.items():
        with pytest.raises(ValueError, match=message):
            read_arrays(tmp_path / name)
    with pytest.raises(ValueError, match="the value of 'a' must be an array or a container of arrays, but got a str"):
        write_arrays(tmp_path / "file.npz", "svi", {"params": {"a": "word"}}, {})
    with pytest.raises(ValueError, match="path must be a file in a folder that exists"):
        write_arrays(tmp_path / "no" / "file.npz", "svi", {}, {})


def test_damaged_files_are_refused_in_words_or_read_as_they_were(tmp_path):
    """Every fifth byte is turned over, and files are cut: sums find it, and flags ask for what zip cannot do."""
    params = {"f": np.arange(3.0), "half": jnp.ones(2, jnp.bfloat16)}
    write_arrays(tmp_path / "file.npz", "svi", {"params": params}, {})
    whole, damaged, refused = (tmp_path / "file.npz").read_bytes(), tmp_path / "damaged.npz", list[str]()
    files = [whole[:count] for count in range(0, len(whole), 50)]
    files += [whole[:at] + bytes([255 - whole[at]]) + whole[at + 1 :] for at in range(0, len(whole), 5)]
    flags, method = whole.index(b"PK\1\2") + 8, whole.index(b"PK\1\2") + 10  # encryption, and a method of compression
    files += [whole[:at] + bytes([whole[at] | 1]) + whole[at + 1 :] for at in (flags, method)]
    for file in files:
        damaged.write_bytes(file)
        try:
            jax.tree.map(np.testing.assert_array_equal, read_arrays(damaged)[1]["params"], params)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > len(files) // 2
    words = r"path must be a file written by Posterior\.save, but got '.*', which cannot be read \("
    assert all(re.match(words, one) for one in refused)
    header = '{"format": "numpyro_gp posterior 1", "kind": "svi", "notes": {}, "arrays": [[["params", "f"], "floa64"]]}'
    np.savez(damaged, header=np.asarray(header), array_0=np.ones(2))
    with pytest.raises(ValueError, match=r"path must be a file written by Posterior\.save.*floa64"):
        read_arrays(damaged)
    ngp.PseudoData(np.zeros((1, 1)), np.ones(1), np.eye(1)).save(damaged)
    with pytest.raises(ValueError, match=r"path must be a file that Posterior\.save wrote, but got .*'pseudo-data'"):
        ngp.Posterior.load(damaged, known)


@pytest.mark.long
def test_a_pickle_leaves_out_what_does_not_pickle_and_loses_no_array(tmp_path):
    """A model inside a function: its arrays come back, and the posterior says how to use them again."""

    def model(X, y=None):
        known(X, y)

    guide = ngp.AutoGP(model)
    posterior = at_start(model, guide, X, Y, **{"f/mean": jnp.arange(4.0)})
    with pytest.warns(UserWarning, match="does not pickle") as said:
        again = pickle.loads(pickle.dumps(posterior))
    first, second = (str(each.message) for each in said)  # since Python 3.13 the reason begins with "Can't get"
    assert first.startswith(f"The model {model.__qualname__} does not pickle"[:75])
    assert re.match(r"The guide AutoGP does not pickle \(Can't (pickle|get) local object 'test_a_pickle_", second)
    assert {each.filename for each in said} == {__file__}
    with pytest.raises(ValueError, match=r"model must be that of the fit, but got none, as test_a_pickle.*left out of"):
        again.predict(KEY, X)
    again.save(tmp_path / "again.npz")
    loaded = ngp.Posterior.load(tmp_path / "again.npz", model, guide)
    for copied in (loaded, copy.copy(posterior), copy.deepcopy(posterior)):  # copies keep their functions
        np.testing.assert_array_equal(copied.predict(KEY, X).mean, posterior.predict(KEY, X).mean)

    whole = pickle.loads(pickle.dumps(ngp.Posterior.from_mcmc(known, {"f": jnp.ones((3, 2))})))  # without a warning
    assert whole.model is known
    np.testing.assert_array_equal(whole.samples["f"], np.ones((3, 2)))


def process(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.linspace(0.0, 4.0, 20)[:, None])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


def test_whitened_values_are_of_the_precision_of_their_fit(tmp_path):
    """The other precision has a factor of another jitter: twenty values of a sine came back 0.3 off."""
    rows = np.linspace(0.0, 4.0, 20)[:, None]
    gram = np.exp(-0.5 * (rows - rows.T) ** 2)
    v = np.linalg.solve(np.linalg.cholesky(gram + 1e-6 * np.eye(20)), np.sin(3 * rows[:, 0]))
    posterior = ngp.Posterior.from_mcmc(process, {"f": jnp.asarray(v)[None]})
    np.testing.assert_allclose(posterior.predict(KEY, rows).mean, np.sin(3 * rows[:, 0]), atol=3e-3)
    path = tmp_path / "fit.npz"
    posterior.save(path)
    in_pickle = pickle.dumps(posterior)
    with jax.enable_x64(False):
        for read in (lambda: ngp.Posterior.load(path, process), lambda: pickle.loads(in_pickle)):
            with pytest.raises(TypeError, match=r"of float64, while jax_enable_x64 is off\. Switch"):
                read()
    single = ngp.Posterior.from_mcmc(process, {"f": jnp.asarray(v, jnp.float32)[None]})
    with pytest.raises(TypeError, match="site 'f' must be in the precision of the fit, float32, but got float64"):
        single.predict(KEY, rows)
    with jax.enable_x64(False):
        assert single.predict(KEY, rows).mean.dtype == jnp.float32


@pytest.mark.parametrize("text", [np.array(b""), np.array([b"", b""]), np.array([], "S1"), np.array(b"", "S4")])
def test_an_array_that_became_text_is_named_as_damage(text, tmp_path):
    """Four bytes of text were viewed as a number, and others ended in an error of JAX."""
    path = tmp_path / "fit"
    write_arrays(path, "mcmc", {"samples": {"f": np.zeros((3, 2), np.float32)}}, None)
    with np.load(path) as file:
        entries = {name: file[name] for name in file.files} | {"array_0": text}
    with open(path, "wb") as file:
        np.savez(file, **entries)
    with pytest.raises(ValueError, match=r"path must be a file written by Posterior.save, .*array 0 holds \|S"):
        read_arrays(path)


def test_chains_and_what_belongs_to_them_are_saved_and_a_fit_needs_its_guide(tmp_path):
    chains = {"num_chains": 3, "extra_fields": {"energy": jnp.arange(3.0)}}
    posterior = dataclasses.replace(ngp.Posterior.from_mcmc(known, {"f": jnp.ones((3, 4))}), **chains)
    posterior.save(tmp_path / "mcmc.npz")
    loaded = ngp.Posterior.load(tmp_path / "mcmc.npz", known)
    assert (loaded.kind, loaded.num_chains) == ("mcmc", 3)
    np.testing.assert_array_equal(loaded.extra_fields["energy"], np.arange(3.0))
    fit("start").save(tmp_path / "svi.npz")
    with pytest.raises(ValueError, match="guide must be the guide of the fit, but got None"):
        ngp.Posterior.load(tmp_path / "svi.npz", known)
