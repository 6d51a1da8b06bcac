"""How a process measures, and the line that it prints. Times are seconds, wall and of the processor."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.peers.libraries.jobs import Job


def asked() -> tuple[Job, str, str, float]:
    """From the command line: the job, the way of doing it, the folder of data, and when the driver started us."""
    given = json.loads(sys.argv[1])
    return Job(**given["job"]), given["way"], given["data"], given["began"]


def peak() -> float:
    """The most memory that the process has held, in MiB.

    What Linux says of resources begins at the peak of the process that forked this one, its status does not.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (2**20 if sys.platform == "darwin" else 2**10)


def machine_seconds() -> float:
    """Seconds of processor that the whole machine has spent; nothing where the system does not say."""
    try:
        user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    except OSError:
        return 0.0
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Times of calls one by one, and how many cores other processes kept busy meanwhile."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.others = 0.0

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        wall, cpu, machine = time.perf_counter(), time.process_time(), machine_seconds()
        found = call(*arguments)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        self.others += max(machine_seconds() - machine - self.cpu[-1], 0.0)
        return found

    def summary(self, units: int = 1) -> dict[str, float]:
        """Medians of all but the first call, for one of its ``units``; ``first`` is what the first one took."""
        wall, cpu = (float(np.median(times[1:] or times)) / units for times in (self.wall, self.cpu))
        return dict(seconds=wall, cpu=cpu, first=self.wall[0], others=self.others / max(sum(self.wall), 1e-9))


class Report:
    """Prints lines of a job: made when all is imported, before the data are there."""

    def __init__(self, peer: str, *packages: str) -> None:
        self.job, self.way, self.folder, self.began = asked()
        self.peer, self.base = peer, peak()
        self.versions = {name: version(name) for name in packages}

    def line(self, **found: Any) -> None:
        fields = dict(self.job._asdict(), peer=self.peer, way=self.way, versions=self.versions, **found)
        fields |= dict(memory=peak(), memory_imported=self.base)
        print(json.dumps(fields), flush=True)

    def training(self, run: Callable[[int], None], density: Callable[[], float]) -> None:
        """Steps in equal blocks, ``run(steps)`` returning when they are done; for a density with a look after each."""
        job, clock = self.job, Stopwatch()
        looks = job.task == "density"
        begun = dict(start=time.time() - self.began, start_cpu=time.process_time())
        curve = [(0, 0.0, 0.0, density())] if looks else []
        for number in range(job.blocks):
            clock(run, job.steps // job.blocks)
            if looks:
                steps = (number + 1) * (job.steps // job.blocks)
                curve.append((steps, sum(clock.wall), sum(clock.cpu), density()))
        self.line(**clock.summary(job.steps // job.blocks), **begun, curve=curve)

    def repeated(self, call: Callable[[], object]) -> None:
        clock = Stopwatch()
        for _ in range(self.job.repeats + 1):
            clock(call)
        self.line(**clock.summary())

    def one_row_at_a_time(self, X: np.ndarray, predict: Callable[[np.ndarray], object]) -> None:
        """``predict`` takes a row as an array ``(1, D)`` of NumPy, and its answer can be read when it returns."""
        clock = Stopwatch()
        for number in range(self.job.repeats + 1):
            clock(predict, X[number % len(X)][None])
        self.line(**clock.summary())
