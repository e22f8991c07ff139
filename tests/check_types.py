"""Strict type check of the whole package, the examples and a typed program: exit status 0 if all are free of errors.

mypy finds subpackages by their place in the tree, and ``compiler/`` and ``runtime/`` lie beside ``staticgrad/``, not in
it: asked for ``-p staticgrad`` it would pass after the first folder alone. So it checks a copy with the three
nested, and the number of files it has seen must be the number there is. ``examples/`` and ``tests/typed/`` are checked
in it as programs of users, who have the types of the installed package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from source_tree import FOLDERS, ROOT, modules

COPY = ROOT / "build" / "check"
PROGRAMS = {"examples": ROOT / "examples", "typed": ROOT / "tests" / "typed"}  # by their folder in the copy


def without_python(folder: str, names: list[str]) -> list[str]:
    """The folders among some names in a folder that hold no module."""
    places = [Path(folder, name) for name in names]
    return [p.name for p in places if p.is_dir() and (p.name == "__pycache__" or not any(p.rglob("*.py")))]


def nest() -> None:
    """Copy the three folders into one package, and the programs beside it. The files keep their times, so that mypy's
    cache holds. A folder without Python in it would count as a package, so it is left out."""
    shutil.rmtree(COPY, ignore_errors=True)
    for package, folder in FOLDERS.items():
        place = COPY.joinpath(*package.split("."))
        shutil.copytree(ROOT / folder, place, dirs_exist_ok=True, ignore=without_python)
    for folder, place in PROGRAMS.items():
        shutil.copytree(place, COPY / folder, ignore=without_python)


def main() -> int:
    nest()
    expected = len(modules()) + sum(len([*place.rglob("*.py")]) for place in PROGRAMS.values())
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "staticgrad", *PROGRAMS]
    result = subprocess.run(
        [*command, "--cache-dir", str(ROOT / "build" / "mypy")], cwd=COPY, capture_output=True, text=True, check=False
    )
    output = re.sub(r"^staticgrad/(compiler|runtime)/", r"\1/", result.stdout, flags=re.MULTILINE)
    print(re.sub(r"^typed/", "tests/typed/", output, flags=re.MULTILINE), end="")
    print(result.stderr, end="", file=sys.stderr)
    seen = re.search(r"(?:in|checked) (\d+) source files?", result.stdout)
    if result.returncode == 0 and (seen is None or int(seen[1]) != expected):
        print(f"mypy saw {seen[1] if seen else 'no'} files of {expected}", file=sys.stderr)
        return 1
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
