"""The house: who stands on whom. A module may import from its own floor and from those below, never upward."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from source_tree import ROOT, modules

# From the ground up. A name stands for itself and for all that is below it, unless a longer name claims that.
FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("errors, switches, values", (
        "staticgrad.errors", "staticgrad.config", "staticgrad.depth", "staticgrad.phases", "staticgrad.collection",
        "staticgrad.extents", "staticgrad.forks", "staticgrad.frozen", "staticgrad.progress", "staticgrad.reach",
        "staticgrad.tables", "staticgrad.plain",
        "staticgrad.boundary", "staticgrad.hints", "staticgrad.tracebacks", "staticgrad.world")),
    ("dtypes, shapes, nests", ("staticgrad.types", "staticgrad.nest")),
    ("files, what is loaded without a compiler", (
        "staticgrad.runtime.image", "staticgrad.runtime.addresses", "staticgrad.runtime.files",
        "staticgrad.runtime.export.interface")),
    ("scalar expressions", ("staticgrad.scalar",)),
    ("op table", ("staticgrad.optable",)),
    ("graph", ("staticgrad.graph", "staticgrad.scopes", "staticgrad.naming", "staticgrad.reruns", "staticgrad.lifting",
        "staticgrad.numpy_calls", "staticgrad.warned")),
    ("operands, sources, control flow", (
        "staticgrad.ops.declare", "staticgrad.ops.batch_rules", "staticgrad.ops.sources", "staticgrad.ops.control")),
    ("its text, its pictures, its interpreter", ("staticgrad.text", "staticgrad.html", "staticgrad.interpreter")),
    ("ops", ("staticgrad.ops",)),
    ("regions of a graph, the machine", (
        "staticgrad.compiler.regions", "staticgrad.compiler.emit.isa", "staticgrad.compiler.emit.machine",
        "staticgrad.compiler.emit.target", "staticgrad.compiler.modes")),
    ("kernels as values", ("staticgrad.compiler.kernels",)),
    ("graph to graph", (
        "staticgrad.compiler.batching", "staticgrad.compiler.autodiff", "staticgrad.compiler.residuals",
        "staticgrad.compiler.tapes", "staticgrad.compiler.passes")),
    ("a program, steps as values", (
        "staticgrad.compiler.program", "staticgrad.compiler.steps.step", "staticgrad.compiler.steps.loops",
        "staticgrad.compiler.steps.schedule")),
    ("graph to steps", ("staticgrad.compiler.lowering",)),
    ("lifetimes and placement", ("staticgrad.compiler.memory",)),
    ("kernels to LLVM IR", ("staticgrad.compiler.emit",)),
    ("graph to steps", ("staticgrad.compiler.lowering",)),
    ("steps to steps", ("staticgrad.compiler.steps",)),
    ("compiler driver", ("staticgrad.compiler",)),
    ("what runs programs", ("staticgrad.runtime",)),
    ("the compiler of a session", ("staticgrad.runtime.compiler", "staticgrad.runtime.autotune")),
    ("tapes", ("staticgrad.runtime.tape",)),
    ("executables", ("staticgrad.runtime.executable",)),
    ("programs out of the process", ("staticgrad.runtime.export",)),
    ("what other frameworks call", ("staticgrad.runtime.derived", "staticgrad.runtime.xla")),
    ("sessions", ("staticgrad.runtime.session",)),
    ("facade, nn, optim, init, random, tools", ("staticgrad",)),
)  # fmt: skip

# Upward imports inside functions that are allowed, and why.
LATE = {
    ("staticgrad.hints", "staticgrad.numpy_calls"): "NumPy's names of our functions",
    ("staticgrad.optable", "staticgrad.graph"): "the types of what op functions take and give",
    ("staticgrad.optable", "staticgrad.ops.linalg.results"): "the types of what functions of matrices give",
    ("staticgrad.graph", "staticgrad.text"): "str(graph)",
    ("staticgrad.graph", "staticgrad.html.graphs"): "what notebooks show of a graph",
    ("staticgrad.ops.control.bodies", "staticgrad.interpreter"): "a body's reference is its interpretation",
    ("staticgrad.compiler.steps.loops", "staticgrad.compiler.memory.plan"): "the type of a part's plan",
    ("staticgrad.runtime.executable", "staticgrad.runtime.export.export"): "exe.export",
    ("staticgrad.runtime.executable", "staticgrad.runtime.export.options"): "the types of its arguments",
    ("staticgrad.runtime.executable", "staticgrad.runtime.export.report"): "the type of what it gives",
}

# A third-party package, and the only places that may import it.
ONLY_IN = {
    "llvmlite": ("staticgrad.compiler.emit", "staticgrad.runtime"),
    "sklearn": ("staticgrad.demo",),
    "tqdm": ("staticgrad.demo",),
    "safetensors": (),
    "mpi4py": ("staticgrad.world",),
    "torch": ("staticgrad.torch",),
    "jax": ("staticgrad.jax",),
    "pytensor": ("staticgrad.pytensor", "staticgrad.pymc"),
    "pymc": ("staticgrad.pymc",),
    "nutpie": ("staticgrad.pymc",),
}

# What `import staticgrad` must not import: each costs more than staticgrad itself, and most runs need none.
LATER = (
    "llvmlite", "networkx", "scipy", "sklearn", "matplotlib", "tqdm", "safetensors", "platformdirs", "ml_dtypes",
    "torch", "jax", "mpi4py", "pytensor", "pymc", "nutpie",
)  # fmt: skip
# The project's own modules that it does import; benchmarks/startup.py says how long that takes.
AT_ONCE = {
    "staticgrad",
    *(
        f"staticgrad.{name}"
        for name in ("boundary", "collection", "errors", "extents", "forks", "frozen", "graph", "hints", "numpy_calls")
    ),
    *(f"staticgrad.{name}" for name in ("optable", "reach", "scopes", "types")),
}


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target`` in ``line``; ``late`` if only when a function runs or types are checked."""

    module: str
    target: str
    line: int
    late: bool


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """All imports, wherever they stand."""

    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, late)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield Import(module, submodule if submodule in modules() else str(node.module), node.lineno, late)
        inner = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        inner = inner or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


@functools.cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for module, path in sorted(modules().items()) for found in imports_of(module, path))


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def floor_of(module: str) -> int:
    """The number of the floor that claims the module by the longest name."""
    claims = [(len(name), floor) for floor, (_, names) in enumerate(FLOORS) for name in names if is_in(module, name)]
    return max(claims)[1]


def floor_name(module: str) -> str:
    return FLOORS[floor_of(module)][0]


def where(found: Import) -> str:
    return f"{modules()[found.module].relative_to(ROOT)}:{found.line}"


def test_no_import_runs_upward() -> None:
    wrong = {
        f"{where(found)}: {floor_name(found.module)} import {floor_name(found.target)}: {found.target}"
        for found in all_imports()
        if is_in(found.target, "staticgrad")
        and floor_of(found.target) > floor_of(found.module)
        and not (found.late and (found.module, found.target) in LATE)
    }
    assert not wrong, "upward:\n" + "\n".join(sorted(wrong))


def test_allowances_are_needed() -> None:
    used = {(found.module, found.target) for found in all_imports() if found.late}
    assert set(LATE) <= used


def test_no_cycle_at_import_time() -> None:
    """A package's ``__init__`` runs before its modules; the facade's is left out, as everything runs it first."""
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for found in all_imports():
        if not found.late and found.target in graph and found.target not in (found.module, "staticgrad"):
            graph[found.module].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))


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
        "import staticgrad as sg, staticgrad.runtime.session as s\n"
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
    assert run.stdout.split() == [str(ROOT / "runtime" / "session.py"), "3.0"]
