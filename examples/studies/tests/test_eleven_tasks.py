"""Eleven tasks of a user's day: rows are those of the programs, good beside their peers, and data repeat."""

import numpy as np
import pytest
from scipy import stats

from examples.studies.eleven_tasks import eleven_data
from examples.studies.eleven_tasks import eleven_tasks as own
from examples.studies.eleven_tasks.eleven_peers import Predicted
from examples.tools.tables import read

ROWS = read(own.ROWS, own.NUMBERS)


def test_every_program_has_its_row_with_as_many_lines():
    found = {
        (row["task"], row["by"].partition(", S")[0] if row["task"].startswith("11") else row["by"]) for row in ROWS
    }
    found = {(task, own.OURS if by.startswith(own.OURS) else by) for task, by in found}
    assert found == {(task, by) for task, (_, _, peers) in own.TASKS.items() for by in (own.OURS, *peers)}
    for row in ROWS:
        program, _, peers = own.TASKS[row["task"]]
        by = row["by"]
        assert row["lines"] == own.lines(program if by.startswith(own.OURS) else peers[by]), row


def test_no_task_is_solved_much_worse_than_by_the_best_peer():
    """0.1 nats at most behind the better of the peers, and intervals that hold what they should."""
    for task, (_, _, peers) in own.TASKS.items():
        ours = [row for row in ROWS if row["task"] == task and row["by"].startswith(own.OURS)]
        best = max((row["log density"] for row in ROWS if row["task"] == task and row["by"] in peers), default=-np.inf)
        assert all(row["coverage"] > 0.8 for row in ours), task
        assert all(np.isnan(row["log density"]) or row["log density"] > best - 0.1 for row in ours), task


@pytest.mark.parametrize("task", [one for one in own.TASKS if one not in ("10 many rows", "9 a service")])
def test_tables_repeat_and_their_parts_differ(task):
    (train, new, target), again = own.TASKS[task][1](), own.TASKS[task][1]()
    assert list(train) == list(new)
    assert target in train
    for name, column in train.items():
        np.testing.assert_array_equal(column, again[0][name])
    assert len({len(column) for column in train.values()}) == 1
    assert len(new[target]) >= 40
    if task[0] in "1245":  # a noise that does not repeat
        assert not np.isin(new[target], train[target]).all()


def test_scores_are_of_the_held_out_rows():
    y = np.array([0.0, 1.0, -3.0])
    found = own.scored(Predicted(stats.norm(np.zeros(3), 1.0)), y)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["log density"] == pytest.approx(stats.norm.logpdf(y).mean())
    m, s = 10.0, 2.0
    rescaled = own.scored(own.Rescaled(Predicted(stats.norm(np.zeros(3), 1.0)), m, s), m + s * y)
    assert rescaled["log density"] == pytest.approx(stats.norm(m, s).logpdf(m + s * y).mean(), abs=1e-6)
    assert eleven_data.cut({"a": y}, slice(1))["a"].tolist() == [0.0]
