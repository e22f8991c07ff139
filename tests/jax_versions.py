"""The tests of functions of JAX, converted, on other releases of JAX.

    python tests/jax_versions.py                    on the newest patch of each version, a line for each
    python tests/jax_versions.py 0.5 0.7            on these
    python tests/jax_versions.py 0.5 -- -k control  with these arguments of pytest

Each has an environment of its own under ``build/jax``, into which pip installs the newest release of that version for
this Python, and staticgrad in editable form.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from source_tree import ROOT, TESTS

HOME = ROOT / "build" / "jax"
VERSIONS = ("0.5", "0.6", "0.7", "0.8", "0.9", "0.10")
FILES = [str(TESTS / "bridges" / f"test_{name}.py") for name in ("jax_convert", "jax_sizes")]


def environment(version: str) -> Path:
    """The Python of an environment with that version of JAX, which is made if there is none."""
    python = HOME / version / "bin" / "python"
    done = HOME / version / ".has-jax"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", HOME / version], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        subprocess.run([*pip, "--editable", f"{ROOT}[test]", f"jax=={version}.*"], check=True)
        done.touch()
    return python


def run_tests(python: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """pytest in an environment; its first lines say which JAX it is."""
    code = "import sys, jax, pytest; print(jax.__version__); sys.exit(pytest.main(sys.argv[1:]))"
    command = [python, "-c", code, "-q", "--tb=short", "-p", "no:cacheprovider", *FILES, *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)


def main() -> int:
    """Run the command line; returns the exit status."""
    own, passed = sys.argv[1:], []
    if "--" in own:
        own, passed = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}; default: all")
    chosen = parser.parse_args(own).versions
    if unknown := set(chosen) - set(VERSIONS):
        parser.error(f"no such version: {', '.join(sorted(unknown))}; there are {', '.join(VERSIONS)}")
    status = 0
    for version in chosen or VERSIONS:
        done = run_tests(environment(version), passed)
        release, *lines = done.stdout.strip().splitlines() or ["?"]
        last = next((line for line in reversed(lines) if " in " in line or "%]" in line), "no output")
        print(f"JAX {release}: {'passed' if done.returncode == 0 else 'failed'}, {last.strip()}", flush=True)
        if done.returncode:
            status = 1
            print(done.stdout, done.stderr, sep="\n", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
