"""CPythons of other versions, assembled from packages, and a selection of the tests on each of them.

    python tests/pythons.py                      the selection on each Python of PYTHONS, a line for each
    python tests/pythons.py 3.14 3.14t --short   the part of it that the suite runs too, on these
    python tests/pythons.py 3.13 -- FILE ...     pytest with these arguments instead
    python tests/pythons.py 3.14t --only         makes the interpreter and prints its path

No registry serves interpreters as such. ``freeze-core`` on PyPI has, for programs frozen with cx_Freeze, an executable
that is a whole CPython (the libraries of C are linked in and their symbols exported, for extension modules to use) and
the extension modules of the standard library with the libraries that they need. Its ``main`` runs a frozen program; so
the instruction that hands ``main`` to the C library is changed to hand over ``Py_BytesMain``, which is what the
``main`` of ``python3`` calls. The modules in Python come with ``pyodide`` on npm, which leaves out some that no test
needs (``ssl``, ``lzma``, ``sqlite3``, ``venv``, ``curses``, ``tkinter``). Its patch versions differ from the
executable's; modules of one minor version fit.

Each lies in a folder of its own under ``build/pythons``, with what staticgrad and its tests depend on installed into
it, and finds staticgrad where this Python has it installed in editable form.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import platform_tags
from source_tree import ROOT, TESTS

HOME = ROOT / "build" / "pythons"
FREEZE_CORE = "0.8.1"


@dataclass(frozen=True)
class Python:
    """An interpreter to assemble: its name, the ABI of its wheels, which pyodide has its modules."""

    name: str
    abi: str
    pyodide: str

    @property
    def version(self) -> str:
        return self.name.removesuffix("t")

    @property
    def free_threaded(self) -> bool:
        return self.name.endswith("t")

    @property
    def home(self) -> Path:
        return HOME / self.name

    @property
    def library(self) -> Path:
        return self.home / "lib" / f"python{self.name}"

    @property
    def executable(self) -> Path:
        return self.home / "bin" / f"python{self.name}"


PYTHONS = {
    python.name: python
    for python in (
        Python("3.12", "cp312", "0.26.4"),
        Python("3.13", "cp313", "0.28.3"),
        Python("3.14", "cp314", "314.0.7"),
        Python("3.14t", "cp314t", "314.0.7"),
    )
}
# What the selection needs beside the dependencies of the package.
TESTING = ("pytest", "hypothesis", "mpmath", "scipy")
LEFT_OUT = "not test_reports"  # of the selection: needs matplotlib
FOREIGN = ("_pyodide", "pyodide", "_ssl.py", "_sysconfigdata__emscripten_wasm32-emscripten.py")  # not for Linux

# What depends on the version of Python: layouts of objects, frames and source lines, annotations, signals between
# bytecodes, threads, forks, files that are kept; and the contract.
SELECTION = (
    "test_array_functions", "test_c_functions", "test_cache", "test_contract_declaring",
    "test_contract_derivatives", "test_contract_indexing", "test_contract_running", "test_contract_sizes",
    "test_contract_symptoms", "test_foreign_feeds", "test_frozen", "test_functions", "test_interruptions",
    "test_messages", "test_session", "test_signatures", "test_threads", "test_threads_at_once", "test_tracebacks",
    "test_types", "test_vectorcall",
)  # fmt: skip
# Of that what takes a few seconds: which tests of a file, as pytest's -k has it; none is all of them.
SHORT = {
    "test_vectorcall": "",
    "test_foreign_feeds": "",
    "test_threads_at_once": "",
    "test_contract_declaring": "",
    "test_contract_running": "",
    "test_tracebacks": "compiled",
    "test_functions": "",
    "test_frozen": "",
    "test_session": "machine_code or layout or many_threads",
    "test_c_functions": "hands_over or differential or scipy",
    "test_cache": "damaged_program or names_and_lines or imports_are_not",
    "test_threads": "many_callers or forked_child",
    "test_interruptions": "native-False or as_before[1]",
}


def can_assemble() -> bool:
    """True on the machines for which these executables are made, where npm is at hand."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and shutil.which("npm") is not None


def assemble(python: Python) -> Path:
    """The path of the interpreter, which is made if it is not there or was made of other packages."""
    wanted = repr((python, FREEZE_CORE, dependencies(python)))
    stamp = python.home / "made-of.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(python.home, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            _unpack(python, Path(folder, "core"))
            _install(python, Path(folder, "wheels"))
        stamp.write_text(wanted, encoding="utf-8")
    _link_package(python)
    return python.executable


def dependencies(python: Python) -> list[str]:
    """The requirements that are installed into an interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tests = project["optional-dependencies"]["test"]
    return [*project["dependencies"], *(each for each in tests if _name(each) in TESTING)]


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0]


def _unpack(python: Python, folder: Path) -> None:
    """Executable, modules and libraries at the places where a CPython looks for them from where it is."""
    (core,) = _download(python, folder, f"freeze-core=={FREEZE_CORE}", alone=True)
    with zipfile.ZipFile(core) as wheel:
        wheel.extractall(folder)
    _run("npm", "pack", "--silent", f"pyodide@{python.pyodide}", cwd=folder)
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder)
    with zipfile.ZipFile(folder / "package" / "python_stdlib.zip") as modules:
        modules.extractall(python.library)
    for name in FOREIGN:
        path = python.library / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.move(folder / "freeze_core" / "lib", python.library / "lib-dynload")
    shutil.move(folder / "freeze_core.libs", python.home / "lib")  # the modules look for it from where they are
    (base,) = (folder / "freeze_core" / "bases").glob("console-cpython-*")
    python.executable.parent.mkdir(parents=True)
    python.executable.write_bytes(with_main(base.read_bytes(), "Py_BytesMain"))
    python.executable.chmod(0o755)
    suffix = next((python.library / "lib-dynload").glob("math.*.so")).name.removeprefix("math")
    values = {"EXT_SUFFIX": suffix, "SOABI": suffix.split(".")[1], "Py_GIL_DISABLED": int(python.free_threaded)}
    flags = "t" if python.free_threaded else ""
    built = python.library / f"_sysconfigdata_{flags}_linux_x86_64-linux-gnu.py"
    built.write_text(f"build_time_vars = {values!r}\n", encoding="utf-8")


def with_main(program: bytes, name: str) -> bytes:
    """An executable (ELF of x86-64 at a fixed address) that begins with the exported function ``name`` instead of
    ``main``: ``_start`` passes the address of either in register rdi."""
    before, after = (b"\x48\xc7\xc7" + struct.pack("<I", _symbol(program, each)) for each in ("main", name))
    if program.count(before) != 1:
        raise ValueError(f"{program.count(before)} places in the executable pass the address of main; expected 1")
    return program.replace(before, after)


def _symbol(program: bytes, name: str) -> int:
    """The address of an exported symbol (System V ABI, "Sections" and "Symbol Table")."""
    (sections,) = struct.unpack_from("<Q", program, 0x28)
    size, count = struct.unpack_from("<HH", program, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", program, sections + size * i) for i in range(count)]
    dynamic = next(header for header in headers if header[1] == 11)  # SHT_DYNSYM
    strings = headers[dynamic[6]][4]
    for at in range(dynamic[4], dynamic[4] + dynamic[5], 24):
        label, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", program, at)
        if program.startswith(name.encode() + b"\0", strings + label):
            return int(value)
    raise ValueError(f"the executable exports no {name}")


def _download(python: Python, folder: Path, *requirements: str, alone: bool = False) -> list[Path]:
    """Wheels for an interpreter: of the requirements and, unless ``alone``, of what they need."""
    abis = [python.abi, "none", *([] if python.free_threaded else ["abi3"])]
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
        "--only-binary=:all:", "--implementation=cp", f"--python-version={python.version}",
        *(f"--abi={abi}" for abi in abis), *(f"--platform={tag}" for tag in (*platform_tags(), "any")),
        *(["--no-deps"] if alone else []), "--dest", folder, *requirements,
    )  # fmt: skip
    return [*folder.glob("*.whl")]


def _install(python: Python, folder: Path) -> None:
    """Unpack what staticgrad needs; ``pip install`` for another Python takes releases that fit this one (24.0)."""
    for path in _download(python, folder, *dependencies(python)):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(python.library / "site-packages")


def _link_package(python: Python) -> None:
    """Have the interpreter find staticgrad where this one has it."""
    here, there = Path(sysconfig.get_path("purelib")), python.library / "site-packages"
    found = [*here.glob("__editable__*staticgrad*"), *here.glob("staticgrad-*.dist-info")]
    if not any(path.suffix == ".pth" for path in found):
        raise FileNotFoundError(f"staticgrad is not installed in editable form in {here}")
    for path in found:
        if path.is_dir():
            shutil.copytree(path, there / path.name, dirs_exist_ok=True)
        else:
            shutil.copy2(path, there)


class NotServed(RuntimeError):
    """A registry did not give what was asked for."""


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise NotServed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def arguments(python: Python, short: bool) -> list[str]:
    """pytest's arguments for a selection."""
    files = [str(path) for name in (SHORT if short else SELECTION) for path in TESTS.glob(f"*/{name}.py")]
    chosen = " or ".join(f"({name} and ({which}))" if which else name for name, which in SHORT.items() if short)
    conditions = [LEFT_OUT] + [f"({chosen})"] * short
    return ["--tb=short", "-m", "not slow", "-k", " and ".join(conditions), *files]


def run_tests(python: Python, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """pytest on an interpreter with these arguments."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "STATICGRAD_"))}
    command = [assemble(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def main() -> int:
    """Run the command line; returns the exit status."""
    own, passed = sys.argv[1:], []
    if "--" in own:
        own, passed = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="VERSION", help=f"of {', '.join(PYTHONS)}; default: all")
    parser.add_argument("--only", action="store_true", help="only make the interpreters and print their paths")
    parser.add_argument("--short", action="store_true", help="the tests that the suite runs too")
    chosen = parser.parse_args(own)
    if unknown := set(chosen.names) - set(PYTHONS):
        parser.error(f"no such Python: {', '.join(sorted(unknown))}; there are {', '.join(PYTHONS)}")
    status = 0
    for name in chosen.names or PYTHONS:
        if chosen.only:
            print(assemble(PYTHONS[name]), flush=True)
            continue
        done = run_tests(PYTHONS[name], passed or arguments(PYTHONS[name], chosen.short))
        lines = done.stdout.strip().splitlines()
        print(f"{name}: {lines[-1] if lines else 'no output'}", flush=True)
        if done.returncode:
            status = 1
            print(done.stdout, done.stderr, sep="\n", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
