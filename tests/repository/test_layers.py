"""The house: who stands on whom. A module may import from its own floor and from those below, never upward."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx
import pytest
from source_tree import ROOT, modules, packages

# From the ground up: the folders of each floor, which a module imports from its own and from those below. A folder's
# name stands for its files, and for the folders in it that have no floor of their own.
FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("values", ("base",)),
    ("graphs", ("graph",)),
    ("ops", ("ops",)),
    ("machines, regions, placement", ("compiler/machine", "compiler/regions", "compiler/placement")),
    ("graph to graph, kernels", ("compiler/passes", "compiler/autodiff", "compiler/tapes", "compiler/kernels")),
    ("plans of kernels, programs", ("compiler/plans", "compiler/program")),
    ("graph to program", ("compiler/lowering", "compiler/steps", "compiler/memory")),
    ("program to machine code", ("compiler/emit", "compiler/native", "compiler")),
    ("what runs programs", (
        "runtime/parts", "runtime/running", "runtime/files", "runtime/callers", "runtime/measured", "runtime/session",
        "runtime/export", "runtime/scenarios", "runtime")),
    ("what users have", ("nn", "optim", "callbacks", "functions", "odes", "saving", "bridges", "tools", ".")),
)  # fmt: skip

# A third-party package, and the only places that may import it.
ONLY_IN = {
    "llvmlite": ("staticgrad.compiler.native", "staticgrad.compiler.machine"),
    "sklearn": ("staticgrad.tools.demo",),
    "tqdm": ("staticgrad.tools.demo", "staticgrad.runtime.scenarios.bar"),
    "safetensors": (),
    "mpi4py": ("staticgrad.base.world",),
    "torch": ("staticgrad.bridges.torch", "staticgrad.bridges.aten"),
    "jax": ("staticgrad.bridges.jax", "staticgrad.bridges.jaxpr"),
    "onnx": ("staticgrad.bridges.onnx",),
    "pytensor": ("staticgrad.bridges.pytensor", "staticgrad.bridges.pymc"),
    "pymc": ("staticgrad.bridges.pymc",),
    "nutpie": ("staticgrad.bridges.pymc", "staticgrad.bridges.stan"),
    "stanli": ("staticgrad.bridges.stan",),
}

# What `import staticgrad` must not import: each costs more than staticgrad itself, and most runs need none.
LATER = (
    "llvmlite", "networkx", "scipy", "sklearn", "matplotlib", "tqdm", "safetensors", "platformdirs", "ml_dtypes",
    "torch", "jax", "mpi4py", "onnx", "pytensor", "pymc", "nutpie", "stanli",
)  # fmt: skip
# The project's own modules that it does import; benchmarks/startup.py says how long that takes.
AT_ONCE = {
    "staticgrad",
    "staticgrad.base",
    *(
        f"staticgrad.base.{name}"
        for name in ("boundary", "collection", "errors", "extents", "forks", "frozen", "hints")
    ),
    *(f"staticgrad.base.{name}" for name in ("reach", "types")),
    "staticgrad.graph",
    *(f"staticgrad.graph.{name}" for name in ("graph", "hooks", "numpy_calls", "numpy_methods", "optable", "scopes")),
}


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target`` in ``line``; ``typing`` if only types are checked with it."""

    module: str
    target: str
    line: int
    typing: bool


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """All imports, wherever they stand."""

    def visit(node: ast.AST, typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, typing)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield Import(module, submodule if submodule in modules() else str(node.module), node.lineno, typing)
        inner = typing or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


@functools.cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for module, path in sorted(modules().items()) for found in imports_of(module, path))


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def folder_of(module: str) -> str:
    """The folder of the table in which a module lies."""
    names = [name for _, folders in FLOORS for name in folders]
    return max((name for name in names if is_in(module, package_of(name))), key=len)


def package_of(folder: str) -> str:
    """The package that a folder of the table is."""
    return "staticgrad" if folder == "." else f"staticgrad.{folder.replace('/', '.')}"


def floor_of(module: str) -> int:
    """The number of the floor on which the module's folder is."""
    folder = folder_of(module)
    return next(number for number, (_, folders) in enumerate(FLOORS) if folder in folders)


def floor_name(module: str) -> str:
    return FLOORS[floor_of(module)][0]


def where(found: Import) -> str:
    return f"{modules()[found.module].relative_to(ROOT)}:{found.line}"


def test_no_import_runs_upward() -> None:
    wrong = {
        f"{where(found)}: {floor_name(found.module)} import {floor_name(found.target)}: {found.target}"
        for found in all_imports()
        if is_in(found.target, "staticgrad") and floor_of(found.target) > floor_of(found.module)
    }
    assert not wrong, "upward:\n" + "\n".join(sorted(wrong))


def test_each_folder_is_on_one_floor_of_at_most_ten() -> None:
    folders = [name for _, names in FLOORS for name in names]
    assert len(FLOORS) <= 10
    assert len(folders) == len(set(folders))
    known = {path.relative_to(ROOT).as_posix().removeprefix("staticgrad/") for path in packages().values()}
    tops = {
        "/".join(name.split("/")[:2]) if name.split("/")[0] in ("compiler", "runtime") else name.split("/")[0]
        for name in known
    }
    assert tops - {"staticgrad"} == set(folders) - {"."}


def circles(edges: Iterable[tuple[str, str]]) -> list[set[str]]:
    """The sets of names that lead to each other."""
    graph = networkx.DiGraph(edges)
    return [found for found in networkx.strongly_connected_components(graph) if len(found) > 1]


def imports_of_modules(typing: bool) -> Iterator[tuple[str, str]]:
    """Modules that import others; the facade is left out, which everything runs first and nothing asks for."""
    for found in all_imports():
        if found.target in modules() and found.target not in (found.module, "staticgrad") and typing >= found.typing:
            yield found.module, found.target


def test_no_modules_import_each_other_not_even_in_functions() -> None:
    assert circles(imports_of_modules(typing=False)) == []


def test_types_refer_to_each_other_in_the_graph_alone() -> None:
    """Tensors are made by ops, whose rules take and give tensors."""
    (found,) = circles(imports_of_modules(typing=True))
    assert {folder_of(module) for module in found} == {"graph"}


def test_no_folders_import_each_other() -> None:
    edges = {(folder_of(module), folder_of(target)) for module, target in imports_of_modules(typing=True)}
    assert circles(edge for edge in edges if edge[0] != edge[1]) == []


def test_only_the_facade_s_users_import_the_facade() -> None:
    """Inside the project the defining module is imported, so that the facade can be the last to be built."""
    top = len(FLOORS) - 1
    wrong = [where(f) for f in all_imports() if f.target == "staticgrad" and floor_of(f.module) < top]
    assert not wrong, wrong


@pytest.mark.parametrize("package", ONLY_IN)
def test_third_party_packages_stay_where_they_belong(package: str) -> None:
    wrong = [
        where(found)
        for found in all_imports()
        if is_in(found.target, package) and not any(is_in(found.module, place) for place in ONLY_IN[package])
    ]
    assert not wrong, f"{package} is imported in {wrong}"


@pytest.mark.parametrize("folder", ["staticgrad", "compiler", "runtime", "tests", "benchmarks"])
def test_no_bare_spelling(folder: str) -> None:
    """In the top folder ``import compiler`` works too, and makes a second copy of every class."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            bare = [name for name in names if name.split(".")[0] in ("compiler", "runtime")]
            assert not bare, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: say staticgrad.{bare[0]}"


def python(code: str, folder: Path) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_import_is_light(tmp_path: Path) -> None:
    loaded = python("import sys, staticgrad; print(*sys.modules)", tmp_path).split()
    assert not set(loaded) & set(LATER)


def test_import_brings_few_modules(tmp_path: Path) -> None:
    """What takes time in an import is what it imports: of our own these, and hardly anything beside NumPy's."""
    code = "import sys, numpy; known = {*sys.modules}; import staticgrad; print(*{*sys.modules} - known)"
    loaded = set(python(code, tmp_path).split())
    own = {name for name in loaded if is_in(name, "staticgrad")}
    assert own == AT_ONCE
    assert len(loaded - own) < 15


def test_a_checkout_imports_as_it_stands_beside_an_installed_wheel(tmp_path: Path) -> None:
    """The folder of the checkout comes first in the path and must bring its own compiler and runtime: without what was
    installed (-S), and without the finder of an editable installation."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import staticgrad as sg, staticgrad.runtime.session.session as s\n"
        "with sg.Graph() as g: y = sg.sum(sg.constant([1.0, 2.0]))\n"
        "print(s.__file__, sg.Session(g).run(y))"
    )
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    run = subprocess.run(
        [sys.executable, "-S", "-c", code, str(ROOT), *libraries],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [str(ROOT / "runtime" / "session" / "session.py"), "3.0"]
