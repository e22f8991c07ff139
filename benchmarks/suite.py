"""Measure all that the README and the site quote, append it to the history, and write the README's figures anew.

    python benchmarks/suite.py [--only NAMES] [--quick] [--history FOLDER] [--readme FILE]

This is ``make bench``. It needs ``pip install '.[bench]'`` in a checkout, a C compiler, and a machine without other
work; it takes about half an hour. Exit status 1 if a part failed: the others are kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import figures
import history
from instruction_sets import environment

PEERS = "staticgrad,numpy,torch,torch_nhwc,jax"
RUN = ["run.py", "--peer", PEERS, "--no-warm", "--isa"]
SIZES = "mlp_small,lenet"  # workloads whose first answers are timed
PARTS = {
    "run": [[*RUN, "native", "--out", "build/figures"]],
    "from_jax": [["from_jax.py", "--rounds", "5"]],
    "exported": [["exported.py"]],
    "sparse": [["sparse.py"]],
    "stan_models": [["stan_models.py", "--rounds", "3"]],
    "startup": [
        ["startup.py", "--workloads", SIZES, "--peer", f"torch:{sys.executable}", "--peer", f"jax:{sys.executable}"]
    ],
}
HELD = [*RUN, "avx2", "--out", "build/figures-avx2"]


def commands(only: str | None, isa: str) -> list[list[str]]:
    """The commands of the parts, on a machine with this instruction set."""
    names = list(PARTS) if only is None else only.split(",")
    if unknown := set(names) - PARTS.keys():
        raise SystemExit(f"--only {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    found = [command for name in names for command in PARTS[name]]
    return [*found, HELD] if "run" in names and isa == "avx512" else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="some of " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="whether all is well, by run.py alone; nothing is written")
    parser.add_argument("--history", type=Path, default=history.FOLDER, metavar="FOLDER")
    parser.add_argument("--readme", type=Path, default=figures.README, metavar="FILE")
    given = parser.parse_args()
    if given.quick:
        return run(["run.py", "--quick"])
    asked = commands(given.only, history.machine()["isa"])
    failed = [" ".join(command) for command in asked if run([*command, "--history", str(given.history.resolve())])]
    text = given.readme.read_text(encoding="utf-8")
    given.readme.write_text(figures.rendered(text, history.load(given.history)), encoding="utf-8")
    print("".join(f"failed: {command}\n" for command in failed), end="", file=sys.stderr)
    return int(bool(failed))


def run(command: list[str]) -> int:
    """The exit status of a benchmark that is free to use all that the processor has."""
    script, *arguments = command
    return subprocess.run(
        [sys.executable, str(history.HERE / script), *arguments], env=environment("native", os.environ), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
