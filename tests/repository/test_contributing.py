"""The recipes of CONTRIBUTING.md are applied to a copy of the repository, and their commands run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from source_tree import ROOT

GUIDE = ROOT / "CONTRIBUTING.md"
COPIED = ("compiler", "docs", "runtime", "staticgrad", "tests", "pyproject.toml")


def recipes() -> dict[str, list[pages.Block]]:
    """The blocks of each recipe."""
    text = GUIDE.read_text(encoding="utf-8")
    titles = [(text[: match.start()].count("\n") + 1, match[1]) for match in re.finditer(r"(?m)^## (.+)$", text)]
    found: dict[str, list[pages.Block]] = {}
    for block in pages.blocks(GUIDE):
        title = max((line, title) for line, title in titles if line < block.line)[1]
        found.setdefault(title, []).append(block)
    return {title.removeprefix("Recipe: "): blocks for title, blocks in found.items()}


def test_there_are_recipes_for_an_op_a_pass_a_kernel_family_and_a_converter() -> None:
    assert list(recipes()) == ["an op", "a pass", "a kernel family", "a converter"]


@pytest.mark.wide
@pytest.mark.parametrize("name", ["an op", "a pass", "a kernel family", "a converter"])
def test_a_recipe_can_be_followed(name: str, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "_made"))
        else:
            shutil.copy2(ROOT / part, tmp_path / part)
    folder = os.path.dirname(sys.executable)
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path), "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")]),
        "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }  # fmt: skip
    for block in recipes()[name]:
        command = ["git", "apply", "-"] if block.language == "diff" else ["sh", "-e"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, input=block.code, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{GUIDE.name}:{block.line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert block.language != "sh" or " failed" not in done.stdout
