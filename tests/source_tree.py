"""Where the package's modules lie: three folders of the repository are one import package."""

from __future__ import annotations

import functools
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
FOLDERS = {"staticgrad": "staticgrad", "staticgrad.compiler": "compiler", "staticgrad.runtime": "runtime"}


@functools.cache
def modules() -> dict[str, Path]:
    """The path of every module by its name; a package's name stands for its ``__init__.py``."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def packages() -> dict[str, Path]:
    """The folder of every package by its name."""
    return {name: path.parent for name, path in modules().items() if path.name == "__init__.py"}
