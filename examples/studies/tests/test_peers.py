"""The benchmark beside peers, without any: its table, its jobs, what it counts, and that each script can be read."""

import csv
import json

from examples.studies.peers import peers_tables
from examples.studies.peers.libraries.jobs import Job
from examples.studies.peers.libraries.keep import keep
from examples.studies.peers.libraries.report import report


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
