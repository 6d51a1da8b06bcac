"""The benchmark beside peers, without any: its table, its jobs, what it counts, and that each script can be read."""

import argparse
import ast
import csv
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

from examples.studies.peers import peers_tables
from examples.studies.peers.libraries import __main__ as driver
from examples.studies.peers.libraries import in_one_process
from examples.studies.peers.libraries.jobs import ENVIRONMENTS, PLACES, Job, Place, jobs, python_of, quick
from examples.studies.peers.libraries.keep import keep
from examples.studies.peers.libraries.problem import log_density, parts, problem_of
from examples.studies.peers.libraries.programs import counts, largest
from examples.studies.peers.libraries.report import report
from examples.studies.peers.libraries.timing import Stopwatch

pytestmark = pytest.mark.experiments

HERE = Path(driver.__file__).parent
ALL = list(jobs(("concrete",), 2000))


def line(peer, job=Job("adam"), way="", turn=0, **found):  # noqa: B008  # a tuple of numbers
    known = dict(round=turn, quick=False, versions={peer: "1.0"}, memory=900.0, memory_imported=400.0)
    return dict(job._asdict(), peer=peer, way=way, **known, **found)


def told(tmp_path, lines, **options):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return report([file], **options)


def step(peer, milliseconds, turn=0, way="", **found):
    timed = dict(seconds=1e-3 * milliseconds, cpu=2e-3 * milliseconds, first=3.0, start=5.0, others=0.0)
    return line(peer, way=way, turn=turn, **(timed | found))


def test_ratio_is_that_of_medians_to_the_fastest_way_of_the_fastest_peer(tmp_path):
    """30 of 40; the mean of ours is 50, the other way of GPyTorch takes 100, the slower peer 60."""
    ours = [step("ours", value, turn) for turn, value in enumerate((30, 30, 90))]
    peers = [step("GPflow", 60), step("GPyTorch", 100), step("GPyTorch", 40, way="large batch")]
    row = "| Adam step, M = 512, float64 | 30 | GPyTorch (large batch) 40, GPflow 60 | 0.75 |"
    found = told(tmp_path, [*ours, *peers])
    assert row in found
    assert "Rounds: 3. Versions: GPflow 1.0; GPyTorch 1.0; ours 1.0." in found
    assert "busy" not in found
    assert "mean nothing" not in found
    assert "| 60 | GPyTorch (large batch) 80, GPflow 120 | 0.75 |" in told(tmp_path, [*ours, *peers], cpu=True)
    assert "| ours | 5.0 | 3.0 |" in found


def test_kept_rows_take_the_place_of_those_of_their_jobs(tmp_path):
    """30 of 40, and 60 behind; the job that was not run again stays, the one without a peer is not there."""
    path, old = tmp_path / "peers.csv", Job("deep")
    timed = lambda value: dict(seconds=value, cpu=value, others=0.0)  # noqa: E731
    lines = [line("ours", old, **timed(0.1)), line("GPflux", old, **timed(0.2)), dict(step("ours", 80), memory=500.0)]
    assert keep([*lines, dict(step("GPflow", 90), memory=700.0)], path, "older") == 2
    again = [
        dict(step("ours", 30), memory=500.0),
        dict(step("GPJax", 60), memory=1.0),
        dict(step("GPflow", 40), memory=700.0),
    ]
    assert keep([*again, line("ours", Job("latency"), **timed(1.0))], path, "new") == 1
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert peers_tables.table(rows).splitlines()[2:] == [
        "| step of two layers, width 5, M = 512, float64 | 100 | GPflux 200 | 1 | 0.50 |",
        "| Adam step, batch 1024, M = 512, float64 | 30 | GPflow 40, GPJax 60 | 1 | 0.75 |",
    ]
    assert peers_tables.memory(rows).splitlines()[2:] == [
        "| Adam step, batch 1024, M = 512, float64 | 500 | 700 | 100 | 300 | GPflow |"
    ]
    assert keep(again, path, "new", "cpu") == 1
    assert "| 60 | GPflow 80, GPJax 120 |" in peers_tables.table(list(csv.DictReader(path.read_text().splitlines())))


def test_what_is_missing_is_said(tmp_path):
    lines = [step("ours", 30), line("GPflow", failed="not installed"), line("GPJax", failed="stopped: KeyError")]
    assert "| 30 | GPJax stopped: KeyError, GPflow not installed | no peer |" in told(tmp_path, lines)
    lines = [line("ours", failed="stopped: NaN"), step("GPflow", 60, others=0.7), dict(step("GPJax", 70), quick=True)]
    found = told(tmp_path, lines)
    assert "| missing | GPflow 60, GPJax 70 |  |" in found
    assert "Failed, ours, Adam step, M = 512, float64: stopped: NaN" in found
    assert "others kept up to 0.7 cores" in found
    assert "its numbers mean nothing" in found


def test_seconds_to_the_density_at_which_the_slowest_peer_ends(tmp_path):
    """GPflow ends at -0.5, which GPJax passes in its second look and we in our first; starts count, the best end not."""
    job = Job("density", table="bike")

    def curve(peer, start, *ends, way=""):
        looks = [(0, 0.0, 0.0, -1.4), *((k + 1, 10.0 * (k + 1), 9.0 * (k + 1), end) for k, end in enumerate(ends))]
        return line(peer, job, way, curve=looks, start=start, start_cpu=1.0, seconds=0.1, first=1.0)

    lines = [curve("ours", 5.0, -0.6, -0.4), curve("ours", 5.0, -0.45, -0.3, way="conditional")]
    lines += [curve("GPflow", 8.0, -0.9, -0.5), curve("GPJax", 4.0, -0.7, -0.45)]
    found = told(tmp_path, lines)
    assert (
        "| bike, -0.500 | 15 | GPJax 24, GPflow 28 | 0.62 | -1.400 to -1.400 | ours (conditional) -0.300, GPflow -0.500, GPJax -0.450"
        in found
    )
    assert "| bike, -0.500 | 10 | GPflow 19, GPJax 19 | 0.53 |" in told(tmp_path, lines, cpu=True)
    assert "| bike |  | no peer |" in told(tmp_path, lines[:2])
    lines.append(curve("GPyTorch", 4.0, -1.0, float("nan")))
    assert "GPJax 24, GPflow 28, GPyTorch ends in NaN" in told(tmp_path, lines)
    lines = [curve("ours", 5.0, -0.9, -0.6), curve("GPflow", 8.0, -0.9, -0.5)]
    assert "| bike, -0.500 | never | GPflow 28 |" in told(tmp_path, lines)


def test_memory_above_imports_floors_of_one_operation_each_and_counts_of_programs(tmp_path):
    lines = [dict(step("ours", 1.0), memory=2400.0), dict(step("GPflow", 2.0), memory=650.0)]
    job = Job("floor", 300, rows=0)
    lines += [line("Cholesky", job, turn=turn, seconds=1e-3 * value, cpu=1.0) for turn, value in enumerate((2, 3, 7))]
    lines.append(line("kernel M x N", job._replace(rows=20_000), seconds=5e-3, cpu=1.0))
    counted = dict(program="natural", kernels=250, floating=155, copies=148, temporary=4.26, largest=1.0, floor=2e-3)
    found = told(tmp_path, [*lines, line("ours", Job("programs", 128, "float32"), **counted)])
    assert "| Adam step, M = 512, float64 | 2000 | GPflow 250 | 8.00 |" in found
    assert "| Cholesky, M = 300, float64 | 3 |" in found
    assert "| kernel M x N, M = 300, N = 20000, float64 | 5 |" in found
    assert "| natural step, M = 128, float32 | 250 | 155 | 148 | 4.3 | 1.00 | 2.00 |" in found


@pytest.mark.long
def test_a_prediction_by_hand_is_ours():
    """Without the noise variances would be 0.1 away, without the variance of the function more."""
    job = Job("predict by hand", 40, rows=500)
    found = in_one_process.prediction(job)()
    with jax.numpy_rank_promotion("allow"):
        wanted = in_one_process.prediction_by_hand(job)()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


PROGRAM = """HloModule jit_step

%add (a: f64[], b: f64[]) -> f64[] {
  ROOT %sum = f64[] add(%a, %b)
}

%fused (p: f64[9,9]) -> f64[9,9] {
  %p = f64[9,9]{1,0} parameter(0)
  %large = f64[99,99]{1,0} broadcast(%p), dimensions={}
  ROOT %exp = f64[9,9]{1,0} exponential(%p)
}

%body (s: (s32[], f64[3,4])) -> (s32[], f64[3,4]) {
  %s = (s32[], f64[3,4]{1,0}) parameter(0)
  %value = f64[3,4]{1,0} get-tuple-element(%s), index=1
  %product = f64[3,4]{1,0} dot(%value, %value), lhs_contracting_dims={1}
  ROOT %t = (s32[], f64[3,4]{1,0}) tuple(%s, %product)
}

ENTRY %main (x: f64[9,9]) -> f64[] {
  %x = f64[9,9]{1,0} parameter(0)
  %made = f64[9,9]{1,0} fusion(%x), kind=kLoop, calls=%fused
  %factor = (f64[9,9]{0,1}, s32[]) custom-call(%made), custom_call_target="lapack_dpotrf_ffi"
  %copy.1 = f64[9,9]{1,0} copy(%x)
  %bits = u32[7]{0} fusion(%x), kind=kLoop, calls=%fused
  %loop = (s32[], f64[3,4]{1,0}) while(%init), condition=%cond, body=%body
  ROOT %total = f64[] reduce(%made, %zero), dimensions={0,1}, to_apply=%add
}
"""


@pytest.mark.parametrize("text", [PROGRAM, PROGRAM.replace("%", "")])
def test_kernels_are_what_runs_with_bodies_of_loops_and_without_the_inside_of_fusions(text):
    """Two fusions, one of bits, a factorisation, a product in the loop and a sum; the 99 x 99 array is never written."""
    assert counts(text) == dict(kernels=5, floating=4, copies=1)
    assert largest(text) == 81


def test_every_script_can_be_read_and_says_the_version_that_is_installed():
    pins = dict(pin.lower().split("==") for packages in ENVIRONMENTS.values() for pin in packages)
    for name, place in PLACES.items():
        doc = ast.get_docstring(ast.parse((HERE / f"{place.module}.py").read_text()))
        if place.environment:
            assert doc.startswith(f"{name} {pins[name.lower()]} as of November 2026"), name
            assert python_of(place, Path("nowhere")) is None
    assert {place.environment for place in PLACES.values()} == {"", *ENVIRONMENTS}


def test_jobs_name_known_parties_and_blocks_divide_their_steps():
    for job, parties in ALL:
        assert all(name in PLACES for name, _ in parties)
        for one in (job, quick(job)):
            assert one.steps % one.blocks == 0
    assert len({job for job, _ in ALL}) == len(ALL)
    assert {job.size for job, _ in ALL if job.task == "adam" and job.dtype == "float32"} == {128, 512, 1024}


def test_a_peer_that_is_missing_or_stops_leaves_a_line_with_the_reason(monkeypatch):
    options = argparse.Namespace(environments=None, data=None, timeout=60.0, gpu=False)
    (line,) = driver.lines_of(Job("adam"), "GPflow", "", options)
    assert (line["failed"], line["peer"], line["task"]) == ("not installed", "GPflow", "adam")
    monkeypatch.setitem(driver.PLACES, "GPflow", Place("nowhere"))
    (line,) = driver.lines_of(Job("adam"), "GPflow", "", options)
    assert line["failed"].startswith("stopped: ")
    assert "examples.studies.peers.libraries.nowhere" in line["failed"]


@pytest.mark.long
def test_ours_starts_at_the_prior_and_climbs():
    """Before the first step a new value is N(0, 1 + 0.1), as for every peer; a process of its own, as in a run."""
    options = argparse.Namespace(environments=None, data=None, timeout=300.0, gpu=False)
    job = quick(Job("density", table="concrete"))
    (line,) = driver.lines_of(job, "ours", "", options)
    looks = np.array(line["curve"])
    expected = norm(0.0, np.sqrt(1.1)).logpdf(problem_of(job, "").y_test).mean()
    np.testing.assert_allclose(looks[0, 3], expected, rtol=1e-5)  # without the noise it would be 2e-3 away
    assert looks[-1, 3] > looks[0, 3] + 0.5
    assert looks[:, 0].tolist() == [0, 2, 4, 6, 8]
    assert line["seconds"] > 0 < line["memory"] - line["memory_imported"]


def test_everyone_is_given_the_same_standardised_rows():
    problem = problem_of(Job("density", 20, "float32", table="concrete"), "")
    assert problem.X.shape == (927, 8)
    assert len(problem.X_test) == 103
    assert problem.X.dtype == problem.y_test.dtype == np.float32
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-5)  # of all rows it would be 1e-2
    np.testing.assert_allclose(problem.y.std(), 1.0, atol=1e-5)
    assert [len(part) for part in parts(problem.X, 400)] == [400, 400, 127]
    mean, variance, y = np.array([[0.0], [1.0]]), np.array([[1.0], [4.0]]), np.array([0.5, 3.0])
    expected = norm([0.0, 1.0], [1.0, 2.0]).logpdf(y).mean()
    np.testing.assert_allclose(log_density(mean, variance, y), expected, rtol=1e-12)


def test_the_first_call_is_no_part_of_the_median():
    clock = Stopwatch()
    clock.wall, clock.cpu = [9.0, 2.0, 4.0, 3.0], [8.0, 1.0, 1.0, 1.0]
    assert clock.summary(10) == dict(seconds=0.3, cpu=0.1, first=9.0, others=0.0)
    assert clock(lambda value: value + 1, 1) == 2
    assert len(clock.wall) == 5
