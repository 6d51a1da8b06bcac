"""Install the peers, run them and us in turn, print the table: see `examples.studies.peers.libraries`."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from examples.studies.peers.libraries.jobs import ENVIRONMENTS, PLACES, Job, jobs, python_of, quick
from examples.studies.peers.libraries.keep import keep
from examples.studies.peers.libraries.report import lines_in, report, who
from examples.tools.clock import THREADS

ROOT = Path(__file__).resolve().parents[4]
IN_DATA, IN_REPOSITORY = ("kin40k", "protein", "bike"), ("bikehours", "concrete", "energy")


def install(folder: Path) -> None:
    for name, packages in ENVIRONMENTS.items():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        subprocess.run([str(folder / name / "bin" / "pip"), "install", "-q", *packages], check=True)


def lines_of(job: Job, name: str, way: str, options: argparse.Namespace) -> list[dict]:
    """What a process of its own prints, or one line that says why there is nothing."""
    place, nothing = PLACES[name], dict(job._asdict(), peer=name, way=way)
    python = python_of(place, options.environments)
    if python is None:
        return [dict(nothing, failed="not installed")]
    given = dict(job=job._asdict(), way=way, data=str(options.data or ""), began=time.time())
    command = [str(python), "-m", f"examples.studies.peers.libraries.{place.module}", json.dumps(given)]
    known = dict(os.environ, **THREADS, PYTHONPATH=str(ROOT))
    known |= {} if options.gpu else dict(JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")
    try:
        done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return [dict(nothing, failed=f"takes more than {options.timeout:.0f} s")]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        found.append(dict(nothing, failed=f"stopped: {reason}"))
    return found


def run(options: argparse.Namespace) -> None:
    if hasattr(os, "sched_setaffinity"):  # XLA's pool of threads heeds nothing else; processes that we start inherit it
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    tables = tuple(options.tables or (IN_DATA if options.data else IN_REPOSITORY))
    for job, parties in jobs(tables, options.steps):
        title = f"{job.task} {job.size} {job.dtype} {job.table}"
        if options.only and not any(word in title for word in options.only):
            continue
        job = quick(job) if options.quick else job
        for turn in range(1 if job.task in ("programs", "density") else options.rounds):
            for name, way in parties if turn % 2 == 0 else reversed(parties):
                if options.peers and name not in options.peers:
                    continue
                for line in lines_of(job, name, way, options):
                    line |= dict(round=turn, quick=options.quick, load=os.getloadavg()[0], when=time.strftime("%FT%T"))
                    with options.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(title, who(line), line.get("failed", f"{1e3 * line.get('seconds', 0):.3g} ms"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.studies.peers.libraries")
    commands = parser.add_subparsers(dest="command", required=True)
    installing, running, reporting, keeping = (
        commands.add_parser(name) for name in ("install", "run", "report", "keep")
    )
    installing.add_argument("folder", type=Path, help="where the environments of the peers are made")
    home = os.environ.get("PEERS_ENVIRONMENTS")
    running.add_argument(
        "--environments", type=Path, default=home, help="that folder; or the variable PEERS_ENVIRONMENTS"
    )
    running.add_argument("--data", type=Path, help="folder of data sets, as in examples.tools.datasets")
    running.add_argument("--tables", nargs="*", help="data sets whose test density is followed")
    running.add_argument("--steps", type=int, default=2000, help="steps towards a test density, a multiple of 100")
    running.add_argument("--out", type=Path, required=True, help="file of JSON lines, to which rows are added")
    running.add_argument("--rounds", type=int, default=3)
    running.add_argument("--only", nargs="*", help="words, one of which a row has: predict, 'adam 512', float32")
    running.add_argument("--peers", nargs="*", choices=PLACES, help="these alone")
    running.add_argument("--timeout", type=float, default=1800.0, help="seconds for one process")
    running.add_argument(
        "--gpu", action="store_true", help="ours where JAX runs by itself; peers stay on the processor"
    )
    running.add_argument("--quick", action="store_true", help="small sizes, to see that all of it runs")
    reporting.add_argument("rows", type=Path, nargs="+")
    reporting.add_argument("--cpu", action="store_true", help="seconds of the processor in place of those of the clock")
    keeping.add_argument("rows", type=Path, nargs="+")
    keeping.add_argument("--results", type=Path, default=ROOT / "examples" / "studies" / "peers" / "peers.csv")
    keeping.add_argument("--cpu", action="store_true", help="seconds of the processor, where the machine was busy")
    keeping.add_argument("--machine", default="today's", help="what the table says about where these rows are from")
    options = parser.parse_args()
    if options.command == "install":
        install(options.folder)
    elif options.command == "run":
        run(options)
    elif options.command == "keep":
        field = "cpu" if options.cpu else "seconds"
        print(keep(lines_in(options.rows), options.results, options.machine, field), "rows of", options.results)
    else:
        print(report(options.rows, options.cpu))


if __name__ == "__main__":
    main()
