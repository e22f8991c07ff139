"""The repository stands alone, and what it says of itself is true."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from make_parts import TEXTS
from pythons import SELECTION, SHORT
from source_tree import FOLDERS, ROOT, modules, packages
from support.selection import LONG, WIDE, takes_its_turn

import staticgrad
from staticgrad.base.config import PREFIX, SWITCHES
from staticgrad.graph.optable import OPS

TOP = {
    ".ci", ".git", ".github", ".gitignore", ".pre-commit-config.yaml", "ARCHITECTURE.md", "CHANGELOG.md",
    "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md",
    "SECURITY.md", "benchmarks", "compiler", "docs", "examples", "pyproject.toml", "runtime", "staticgrad", "tests",
}  # fmt: skip
MADE = {"build", "dist", "demo-out", "_made", "__pycache__"}  # by commands; .gitignore names them
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Spelt in two halves, so that this file passes its own test.
FOREIGN = {
    "a path of somebody's machine": r"(?<![\w.])/(?:wo" r"rk|ro" r"ot|ho" r"me|Use" r"rs)/\w",
    "a file outside the repository": r"(?<![\w/])shar" r"ed/\w",
    "a number in some tracker": r"(?i)\bissu" r"e #\d",
    "a name that no package index knows": r"pip3? insta" r"ll (?:-\S+ )*[\"'`]?staticgrad\b",
}


def repository_files() -> Iterator[Path]:
    """Every file that is not made by a command."""
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder)
        folders[:] = [
            name for name in folders
            if name not in MADE and not name.endswith(".egg-info") and (name[0] != "." or name in TOP - {".git"})
            and here / name != ROOT / "docs" / "examples"  # which the site's build makes of the examples
        ]  # fmt: skip
        yield from (here / name for name in names if here != ROOT or name in TOP)


@pytest.mark.parametrize("what", FOREIGN)
def test_the_repository_stands_alone(what: str) -> None:
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = re.search(FOREIGN[what], text)
        line = text[: found.start()].count("\n") + 1 if found else 0
        assert not found, f"{path.relative_to(ROOT)}:{line}: {what}: {found[0]}"


def test_nothing_else_at_the_top() -> None:
    here = {path.name for path in ROOT.iterdir() if not (path.name.startswith(".") and path.name not in TOP)}
    assert {name for name in here - TOP - MADE if not name.endswith(".egg-info")} == set()
    assert TOP - here <= {".git"}


def test_every_package_is_installed() -> None:
    """A package that pyproject.toml forgets works in the checkout and is missing from the wheel."""
    assert PROJECT["tool"]["setuptools"]["package-dir"] == FOLDERS
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == set(packages())


def test_every_folder_of_modules_is_a_package() -> None:
    assert {path.parent for path in modules().values()} == set(packages().values())


def test_a_class_name_names_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_licences_of_all_that_is_shipped_are_named() -> None:
    project = PROJECT["project"]
    shipped = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert shipped == {ROOT / "LICENSE", *(ROOT / "runtime" / "measured" / "view" / "vendor").glob("LICENSE*")}
    assert project["license"] == "Apache-2.0 AND MIT"


BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def built(what: str, source: Path, into: Path) -> Path:
    """The distribution that setuptools makes of a folder."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD, what, str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.mark.wide
def test_a_source_distribution_has_what_its_tests_speak_of(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path / "copy"
    files = {path.relative_to(ROOT) for path in repository_files() if path != ROOT / ".git"}
    for file in files:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, copy / file)
    with tarfile.open(built("build_sdist", copy, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("staticgrad-*/")
    absent = {file.as_posix() for file in files if not (unpacked / file).exists()}
    assert absent == set()
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    collecting = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(collecting, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr

    with zipfile.ZipFile(built("build_wheel", unpacked, tmp_path)) as wheel:
        names = wheel.namelist()
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: Apache-2.0 AND MIT" in metadata
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "LICENSE-cytoscape", "LICENSE-cytoscape-dagre", "LICENSE-dagre"}


def test_types_are_shipped() -> None:
    assert (ROOT / "staticgrad" / "py.typed").exists()
    assert PROJECT["tool"]["setuptools"]["package-data"]["staticgrad"] == ["py.typed", "llms.md"]


def test_texts_of_native_parts_are_made_shipped_and_used() -> None:
    shipped = PROJECT["tool"]["setuptools"]["package-data"]
    texts = {path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*.ll")}
    assert texts == {text.place for text in TEXTS}
    for package, folder in packages().items():
        beside = {Path(text.source).stem for text in TEXTS if text.place.parent == folder}
        sources = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
        assert {name for name in beside if f'"{name}' not in sources} == set()
        assert ("*.ll" in shipped.get(package, [])) == bool(beside)


def test_version_is_said_once() -> None:
    assert version("staticgrad") == PROJECT["project"]["version"] == staticgrad.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {PROJECT['project']['version']}" in changes


def test_the_oldest_dependencies_are_those_that_are_allowed() -> None:
    """What ``make test-oldest`` installs are the lower bounds that users are promised."""
    allowed = {
        re.split("[<>=]", text)[0]: text.split(">=")[1].split(",")[0] for text in PROJECT["project"]["dependencies"]
    }
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    assert dict(line.split("==") for line in lines if not line.startswith("#")) == {
        name: f"{bound}.*" for name, bound in allowed.items()
    }


def test_the_command_is_there() -> None:
    scripts = {entry.name: entry.value for entry in distribution("staticgrad").entry_points}
    assert scripts == {"staticgrad": "staticgrad.__main__:main"}
    assert "staticgrad.__main__" in modules()


def test_modules_say_what_they_are() -> None:
    for path in modules().values():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path}: no docstring"


# First words with which a docstring names a question or a part in the place of what is returned.
HEADLESS = re.compile(r"(?:Of|What|Whether|When|Where|Which|Who|How)\b")


def test_docstrings_begin_with_what_is_returned_or_done() -> None:
    """The first words are a noun phrase, a verb, or "True if"; those of the ops' documentation as well."""
    found = [f"{op.name}: {op.doc}" for op in OPS.values() if HEADLESS.match(op.doc)]
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if HEADLESS.match(text):
                    found.append(f"{name}, line {getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    assert found == []


# Phrases in the place of a number or of who acts, also over the end of a comment's line.
VAGUE = re.compile(r"\b(?:so|as)\s+(?:[#;]\s+)?many\b|\b(?:some|no)body\b", re.IGNORECASE)
MOST_VAGUE = 20  # places in the product: idioms, such as "so many that …"


def test_sentences_of_the_product_say_numbers_and_who_acts() -> None:
    found = []
    for path in sorted({path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*")}):
        if path.suffix in (".py", ".c", ".h"):
            text = path.read_text(encoding="utf-8")
            lines = (text[: match.start()].count("\n") + 1 for match in VAGUE.finditer(text))
            found += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    assert len(found) <= MOST_VAGUE, "\n".join(found)


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_commands_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    said = set(re.findall(r"(?:^ *|`)make ([a-z][a-z-]*)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
    assert said <= targets
    assert name != "README.md" or {"demo", "test"} <= said


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_files_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    folders = re.findall(r"`((?:staticgrad|compiler|runtime|tests|benchmarks)/[\w./-]*)`", text)
    for path in (*folders, *re.findall(r"`([\w-]+/[\w./-]+\.(?:py|ll|c))`", text)):
        assert (ROOT / path).exists(), f"{name} speaks of {path}"


def test_modules_that_sources_name_exist() -> None:
    """By their last names, such as ``native.codegen``, also with a name that they define."""
    known = {name.split(".", 1)[1] for name in modules() if "." in name}
    ends = {name[at:] for name in known for at in (0, *(place.end() for place in re.finditer(r"\.", name)))}
    rooms = "base|bridges|compiler|emit|native|plans|runtime"
    missing = []
    for path in modules().values():
        for found in re.findall(rf"``(?:staticgrad\.)?((?:{rooms})(?:\.[a-z_]+)+)``", path.read_text(encoding="utf-8")):
            if found not in ends and found.rpartition(".")[0] not in ends:
                missing.append(f"{path.relative_to(ROOT)}: {found}")
    assert missing == []


def test_code_on_the_map_stands_in_the_house() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert shown
    for code in shown:
        assert any(code in path.read_text(encoding="utf-8") for path in modules().values()), code


def test_every_package_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in packages().values():
        assert f"`{folder.relative_to(ROOT).as_posix()}/`" in text, f"ARCHITECTURE.md says nothing of {folder}"


def test_every_module_is_on_the_map_and_nothing_else() -> None:
    """Each package's part of ARCHITECTURE.md, which begins with the package's folder, names its modules."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = text[text.index("## Rooms") : text.index("## Ideas")]
    folders = {folder.relative_to(ROOT).as_posix(): folder for folder in packages().values()}
    parts = re.split(r"^(?:### )?`([\w/]+)/` — ", rooms, flags=re.MULTILINE)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert folders.keys() <= said.keys()
    for name, folder in folders.items():
        named = set(re.findall(r"`(\w+\.py)`", said[name]))
        there = {path.name for path in folder.glob("*.py") if not path.name.startswith("__")}
        assert named == there, f"{name}/: not named {sorted(there - named)}, not there {sorted(named - there)}"


# What asks a clock, and a limit that is too short for a busy machine.
CLOCKS = r"\b(?:time\.(?:time|sleep|perf_counter|monotonic|process_time|thread_time)(?:_ns)?|timeit|perf_counter)\b"
PATIENCE = 60  # seconds that a guard against hanging waits at least
HARMLESS = {
    ("tests/runtime/test_cache.py", "time.time"): "gives a file an age in hours",
}


def test_long_tests_exist_and_any_two_cases_take_turns() -> None:
    for test in LONG:
        file, name = test.split("::", 1)
        (path,) = (ROOT / "tests").glob(f"*/{file}")
        assert f"def {name.split('::')[-1]}(" in path.read_text(encoding="utf-8"), test
        assert takes_its_turn(test, 0) != takes_its_turn(test, 1)


def test_every_list_of_tests_names_files_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    in_makefile = [name for names in re.findall(r"foreach name,([\w\s]+),", makefile) for name in names.split()]
    listed = {*WIDE, *SELECTION, *SHORT, *(f"test_{name}" for name in in_makefile)}
    assert len(in_makefile) > 15
    assert listed <= {path.stem for path in (ROOT / "tests").glob("*/test_*.py")}


def test_no_test_depends_on_the_clock() -> None:
    """On a busy machine everything takes longer. What a test measures is counted: calls, instructions, imports; how
    long something takes is for benchmarks to say."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for match in re.finditer(CLOCKS, text) if path != Path(__file__).resolve() else ():
            found[name, match[0]] = text[: match.start()].count("\n") + 1
    assert found.keys() <= HARMLESS.keys(), f"the clock is asked in {found}"
    assert HARMLESS.keys() <= found.keys(), "no longer there"


def limits(tree: ast.AST) -> Iterator[tuple[int, str, object]]:
    """Line, name and value of each time limit of a module: ``timeout=``, ``deadline=``, ``join(…)``, ``wait(…)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [(k.arg, k.value) for k in node.keywords if k.arg in ("timeout", "deadline")]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "wait") and len(node.args) == 1:
                given.append((node.func.attr, node.args[0]))
            for name, value in given:
                if isinstance(value, ast.Constant) and not isinstance(value.value, str):
                    yield node.lineno, str(name), value.value


def test_time_limits_are_guards_against_hanging() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for line, name, value in limits(ast.parse(path.read_text(encoding="utf-8"))):
            harmless = value is None or (name != "deadline" and isinstance(value, int | float) and value >= PATIENCE)
            assert harmless, f"{path.relative_to(ROOT)}:{line}: {name} of {value} seconds"


def switches_table() -> str:
    rows = ["| variable | default | values | meaning |", "|---|---|---|---|"]
    for switch in SWITCHES.values():
        default = f"`{switch.default}`" if switch.default else ""
        values = ", ".join(f"`{value}`" for value in switch.values if value)
        rows.append(f"| `{PREFIX}{switch.name}` | {default} | {values} | {switch.doc} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_switches_is_complete() -> None:
    assert switches_table() in (ROOT / "README.md").read_text(encoding="utf-8"), "README.md needs\n" + switches_table()
