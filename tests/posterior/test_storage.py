"""Files of arrays: what is written is read back bit for bit, and other files are refused."""

import copy
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.posterior.storage import read_arrays, write_arrays


def test_round_trip_keeps_names_shapes_and_types(tmp_path):
    groups = {
        "params": {"f/loc": jnp.arange(3.0), "nested": {"a.b": jnp.ones((2, 2), jnp.float32)}},
        "samples": {"count": jnp.arange(4), "half": jnp.ones(2, jnp.bfloat16), "flag": jnp.array([True, False])},
    }
    write_arrays(tmp_path / "file.npz", "mcmc", groups, {"num_chains": 2})
    kind, found, notes = read_arrays(tmp_path / "file.npz")
    assert (kind, notes) == ("mcmc", {"num_chains": 2})
    assert set(found["params"]) == {"f/loc", "nested"}
    for own, other in (
        (found["params"]["f/loc"], groups["params"]["f/loc"]),
        (found["params"]["nested"]["a.b"], groups["params"]["nested"]["a.b"]),
        *((found["samples"][name], value) for name, value in groups["samples"].items()),
    ):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(own, other)
    assert [p.name for p in tmp_path.iterdir()] == ["file.npz"], "no temporary file is left"


def test_lists_and_tuples_come_back_as_such(tmp_path):
    """Networks of NumPyro's flows are lists of tuples, empty where a layer has no parameters."""
    params = {"net": [(jnp.ones((2, 3)), jnp.zeros(2)), (), [{"a": jnp.ones(1)}, ()]], "[0]": jnp.ones(()), "none": []}
    write_arrays(tmp_path / "file.npz", "svi", {"params": params}, {})
    found = read_arrays(tmp_path / "file.npz")[1]["params"]
    assert jax.tree.structure(found) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file written by Posterior\.save"):
        read_arrays(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(ValueError, match=r"path must be a file written by Posterior\.save"):
        read_arrays(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", header=np.asarray('{"format": "x", "arrays": []}'))
    with pytest.raises(ValueError, match="path must be a file of format 'numpyro_gp posterior 1', but got 'x'"):
        read_arrays(tmp_path / "other.npz")
    np.save(tmp_path / "one.npy", np.ones(2))
    with pytest.raises(ValueError, match=r"path must be .*one\.npy', which cannot be read \(File is not a zip file"):
        read_arrays(tmp_path / "one.npy")
    # An array of objects would be a pickle.
    np.savez(tmp_path / "pickle.npz", header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"path must be a file written by Posterior\.save"):
        read_arrays(tmp_path / "pickle.npz")


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
        ngp.Posterior.load(damaged, _model)


def test_a_pickle_leaves_out_what_does_not_pickle_and_loses_no_array(tmp_path):
    """A model inside a function: its arrays come back, and the posterior says how to use them again."""

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    X, key = jnp.linspace(0.0, 1.0, 4)[:, None], jax.random.key(0)
    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO())
    params = svi.get_params(svi.init(key, X, X[:, 0])) | {"f/mean": jnp.array([1.0, -2.0])}
    posterior = ngp.Posterior.from_svi(model, guide, params)
    with pytest.warns(UserWarning, match="does not pickle") as said:
        again = pickle.loads(pickle.dumps(posterior))
    first, second = (str(each.message) for each in said)  # since Python 3.13 the reason begins with "Can't get"
    assert first.startswith(f"The model {model.__qualname__} does not pickle"[:75])
    assert re.match(r"The guide AutoGP does not pickle \(Can't (pickle|get) local object 'test_a_pickle_", second)
    assert {each.filename for each in said} == {__file__}
    with pytest.raises(ValueError, match=r"model must be that of the fit, but got none, as test_a_pickle.*left out of"):
        again.predict(key, X)
    again.save(tmp_path / "again.npz")
    loaded = ngp.Posterior.load(tmp_path / "again.npz", model, guide)
    for copied in (loaded, copy.copy(posterior), copy.deepcopy(posterior)):  # copies keep their functions
        np.testing.assert_array_equal(copied.predict(key, X).mean, posterior.predict(key, X).mean)

    chains = ngp.Posterior.from_mcmc(_model, {"f": jnp.ones((3, 2))})
    whole = pickle.loads(pickle.dumps(chains))  # a warning is an error in tests
    assert whole.model is _model
    np.testing.assert_array_equal(whole.samples["f"], np.ones((3, 2)))


def _model(X):
    return ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))(X)


def test_values_that_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="the value of 'a' must be an array or a container of arrays, but got a str"):
        write_arrays(tmp_path / "file.npz", "svi", {"params": {"a": "word"}}, {})
    with pytest.raises(ValueError, match="path must be a file in a folder that exists"):
        write_arrays(tmp_path / "no" / "file.npz", "svi", {}, {})
