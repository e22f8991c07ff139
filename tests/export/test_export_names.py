"""Names of exported programs: of functions, of constants in the header, of files; whatever users call their tensors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.graph.graph import Graph
from staticgrad.runtime.export.names import check_identifier, identifier, word
from staticgrad.runtime.export.report import ExportReport
from staticgrad.runtime.export.reserved import is_reserved

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")
LANGUAGES = [("gcc", "c99"), ("clang", "c2x"), ("g++", "c++11"), ("clang++", "c++20")]
COMPILERS = [(compiler, standard) for compiler, standard in LANGUAGES if shutil.which(compiler)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


def summed(feeds: Sequence[str], variables: Sequence[str] = (), *, draws: bool = False) -> sg.Executable:
    """An executable with feeds and variables of these names."""
    with Graph() as graph:
        xs = [sg.placeholder((2,), name=name) for name in feeds]
        ws = [sg.Variable([1.0, 2.0], name=name) for name in variables]
        results = [x * 2 for x in (*xs, *ws)]
        if draws:
            results.append(sg.random.normal((2,)))
    return sg.Session(graph).compile(results, xs)


def check_header(report: ExportReport, folder: Path) -> None:
    (header,) = (file for file in report.files if file.suffix == ".h")
    for compiler, standard in COMPILERS:
        source = folder / ("main.cpp" if "++" in compiler else "main.c")
        source.write_text(f'#include "{header}"\nint main(void) {{ return 0; }}\n')
        command = [compiler, f"-std={standard}", *STRICT, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@needs_compiler
@pytest.mark.parametrize(
    ("entries", "name", "feeds", "variables", "draws"),
    [
        (["net"], "net", ["x"], ["seed", "run", "bytes", "Bytes", "alignment", "initial_state"], True),
        (["net", "net_state"], "net", ["x"], ["workspace_bytes", "ins"], False),
        (["net", "net_in", "net_out"], "model", ["workspace_bytes", "ins", "in_x", "x"], ["w"], False),
        (["net"], "net", ["a/b", "a_b", "A_B", "s", "class", "é", "*/", "/*/", "??/", "\\", "1", " "], [], False),
    ],
)
def test_no_name_of_a_tensor_breaks_the_header(
    entries: list[str], name: str, feeds: list[str], variables: list[str], draws: bool, tmp_path: Path
) -> None:
    exe = summed(feeds, variables, draws=draws)
    check_header(sg.export(tmp_path / "a.o", dict.fromkeys(entries, exe), name=name), tmp_path)


def test_a_variable_called_seed_has_an_offset_of_its_own(tmp_path: Path) -> None:
    sg.export(tmp_path / "net.o", {"draw": summed(["x"], ["seed"], draws=True)})
    text = (tmp_path / "net.h").read_text()
    assert "#define NET_STATE_SEED 0 " in text
    assert "#define NET_STATE_SEED_2 64 /* seed: float [2] */" in text


@pytest.mark.parametrize("name", ["nest", "main_1", "contraction_dot_tanh", "program", "seed", "entry"])
def test_an_entry_that_has_the_name_of_a_kernel_is_called_so(name: str, tmp_path: Path) -> None:
    with Graph() as graph:
        x = sg.placeholder((4, 4), name="x")
        result = sg.tanh(x @ x) + sg.sum(x, 0)
    exe = sg.Session(graph).compile([result, sg.cumulative_sum(x, 0)], x)
    exe.export(tmp_path / "a.sgp", "program", name=name)
    program = sg.load(tmp_path / "a.sgp")
    value = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    for found, wanted in zip(program[name](value), exe(value), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("entries", [["net", "Net"], ["m_initial_state"], ["a", "a_on_threads"], ["M_ALIGNMENT"]])
def test_entries_with_one_name_in_c_are_refused(entries: list[str], tmp_path: Path) -> None:
    with pytest.raises(sg.GraphError, match=f"expected other names than .*{entries[-1]!r}: in C both would have"):
        sg.export(tmp_path / "m.o", dict.fromkeys(entries, summed(["x"], ["w"])))
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_names_that_c_or_cpp_have_given_away_are_refused(tmp_path: Path) -> None:
    declared = "#include <stddef.h>\n#include <stdint.h>\nint NAME(const void *const *in);\n"
    taken = (
        "and not export explicit true nullptr asm typename alignas co_await char8_t thread_local constexpr exp free"
        " malloc printf memcmp exit nan size_t ptrdiff_t max_align_t int8_t uintptr_t uint_least16_t INT64_C UINT8_MAX"
        " SIZE_MAX NULL linux index for memcpy main register stdin stdout stderr errno EOF INFINITY NAN assert va_start"
        " va_list FILE time_t SIGINT SIG_DFL BUFSIZ RAND_MAX EXIT_SUCCESS EINTR ENOENT INT_MAX DBL_EPSILON M_PI PRIu64"
        " LC_ALL CHAR_BIT bool complex I isnan signbit setjmp jmp_buf environ read write random getline strdup unix"
        " i386 sinf sinf32x lgamma_r rand_r getc_unlocked lseek64 atomic_int mtx_lock std"
    )
    for given in taken.split():
        with pytest.raises(sg.GraphError, match="a name that C allows"):
            check_identifier(given)
        assert check_identifier(identifier(given)) == f"{given}_"
    free = (
        "train predict step nest x9 a__b threads Exp exp1 total strike isotropic Sigma SIGMA E1 ENTRY M_step read_all"
    )
    for given in free.split():
        assert check_identifier(given) == identifier(given) == word(given) == given
        for compiler, standard in COMPILERS:
            source = tmp_path / ("a.cpp" if "++" in compiler else "a.c")
            source.write_text(declared.replace("NAME", given))
            subprocess.run([compiler, f"-std={standard.replace('c', 'gnu', 1)}", *STRICT, str(source)], check=True)


HEADERS = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
"""
NO_CPP = ("complex", "stdatomic", "stdnoreturn", "tgmath", "threads")  # headers that C++ has otherwise, or not at all


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="no GNU compilers")
@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("gcc", "gnu17"), ("g++", "gnu++17")])
def test_no_name_that_is_allowed_meets_one_of_a_header(compiler: str, standard: str, tmp_path: Path) -> None:
    cpp = "++" in compiler
    command = [compiler, "-x", "c++" if cpp else "c", f"-std={standard}", "-w"]
    headers = "".join(f"#include <{name}.h>\n" for name in HEADERS.split() if not (cpp and name in NO_CPP))

    def output(*arguments: str, source: str = headers) -> str:
        return subprocess.run(
            [*command, *arguments, "-"], input=source, capture_output=True, text=True, check=True
        ).stdout

    macros = set(re.findall(r"^#define ([A-Za-z]\w*)", output("-E", "-dM"), re.MULTILINE))
    assert {"EOF", "INT_MAX", "stdin"} <= macros
    assert not sorted(name for name in macros if not is_reserved(name))
    found = set(re.findall(r"\b[A-Za-z]\w*", output("-E", "-P")))
    allowed = sorted(name for name in found if not is_reserved(name))
    assert len(allowed) > 20  # names of parameters and members
    declared = "".join(f"int {name}(const void *const *in, void *const *out);\n" for name in allowed)
    output("-fsyntax-only", source=headers + (f'extern "C" {{\n{declared}}}\n' if cpp else declared))


@pytest.mark.parametrize("fetches", [{1.0: 0, "1.0": 1}, {(1, 2): 0, "(1, 2)": [1]}])
def test_keys_that_are_one_text_are_refused(fetches: Any, tmp_path: Path) -> None:
    with Graph() as graph:
        x = sg.placeholder((2,), name="x")
        nested = sg.nest.map(lambda number: x * number, fetches)
    exe = sg.Session(graph).compile(nested, x)
    with pytest.raises(sg.GraphError, match="keys that are different texts"):
        exe.export(tmp_path / "a.sgp", "program")


def test_a_loaded_program_names_its_entries_and_methods_alone(tmp_path: Path) -> None:
    summed(["x"]).export(tmp_path / "a.sgp", "program", name="twice")
    with pytest.raises(AttributeError, match=r"no entry 'twise': a program has copy, entries, get, .*, twice$"):
        _ = sg.load(tmp_path / "a.sgp").twise


# -- files and arguments ----------------------------------------------------------------------------------------------


def test_no_file_of_an_export_replaces_another(tmp_path: Path) -> None:
    exe = summed(["x"], ["w"])
    for name, how in (("a.h", "data"), ("a.h", "file"), ("a.state", "file")):
        for format in ("object", "llvm"):
            with pytest.raises(sg.StaticGradError, match="another ending than that of a file beside it"):
                exe.export(tmp_path / name, format, initial_state=how)
    assert not list(tmp_path.iterdir())
    assert (exe.export(tmp_path / "a.state").files[0]).read_bytes()[1:4] == b"ELF"


def test_wrong_arguments_are_told_before_anything_is_compiled(tmp_path: Path) -> None:
    exe, path = summed(["x"]), tmp_path / "a.o"
    compiled = exe.session.compile_count
    entries: Mapping[str, Any] = {"f": exe}
    wrong: list[tuple[Any, Mapping[str, Any], str]] = [
        (exe, {}, "executables by the names .* actual <executable"),
        ([exe], {}, "executables by the names"),
        ({"f": None}, {}, "actual None as 'f'"),
        ({3: exe}, {}, "a name that C allows .* actual 3"),
        (entries, {"name": 3}, "a name that C allows .* actual 3"),
        (entries, {"target": 3}, "target: expected the name of one, actual 3"),
        (entries, {"target": [], "format": "program"}, "expected one target"),
        (entries, {"target": ["generic", "cortex-m4"], "format": "program"}, "'program' is for .* not for cortex-m4"),
        (entries, {"target": "wasm32", "format": "shared"}, "'shared' is for .* not for wasm32: export an 'object'"),
    ]
    for given, how, match in wrong:
        with pytest.raises(sg.StaticGradError, match=match):
            sg.export(path, given, **how)
    for empty in ("", ".", "/"):
        with pytest.raises(sg.StaticGradError, match="the path of a file"):
            sg.export(empty, entries)
    assert exe.session.compile_count == compiled
    assert not list(tmp_path.iterdir())


def test_a_path_may_be_bytes_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    exe = summed(["x"])
    path = tmp_path / "a.o"
    exe.export(os.fsencode(path))  # type: ignore[arg-type]
    assert path.exists()
    with pytest.raises(FileNotFoundError) as caught:
        exe.export(tmp_path / "none" / "a.o")
    assert caught.value.filename == str(tmp_path / "none" / "a.o")
