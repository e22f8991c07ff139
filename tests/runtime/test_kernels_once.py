"""Kernels that programs have in common are compiled once, in a process and on disk, and mean the same in each."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import image
from staticgrad.compiler.machine.target import current_target
from staticgrad.compiler.native import codegen, kernels
from staticgrad.compiler.native.kernels import KernelObjects, at_once
from staticgrad.compiler.native.link import link
from staticgrad.compiler.native.module import load_code

LINKS = pytest.mark.skipif(not image.loads_here(), reason="images are not loaded here")
pytestmark = LINKS


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what is kept; no kernels are in memory."""
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("STATICGRAD_CACHE", "1")
    monkeypatch.setenv("STATICGRAD_TIERS", "0")
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    kernels._library.cache_clear()


def function(name: str, body: str, linkage: str = "internal") -> str:
    return f"define {linkage} i64 @{name}(i64 %n) {{\nentry:\n{body}\n}}\n"


def compiled(*texts: str) -> tuple[Any, list[str]]:
    """The loaded code of modules, and the first lines of the functions that were made for it."""
    made: list[list[str]] = []

    def compile(new: Any, quick: Any) -> Any:
        made.append([line for text in new for line in text.splitlines() if line.startswith("define")])
        return at_once(current_target())(new, quick)

    code = KernelObjects(texts, current_target()).code([False] * len(texts), compile)
    assert len(made) == 1, "it was not linked, but compiled as a whole"
    return load_code(code), made[0]


def called(code: Any, n: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("main"))(n)
    return result


DOUBLE = function("double", "  %v = shl i64 %n, 1\n  ret i64 %v")
TRIPLE = function("double", "  %v = mul i64 %n, 3\n  ret i64 %v")  # another function of that name
OUTER = function("outer", "  %a = call i64 @double(i64 %n)\n  %v = add i64 %a, 1\n  ret i64 %v")
MAIN = function("main", "  %v = call i64 @outer(i64 %n)\n  ret i64 %v", "")


def test_a_function_that_another_program_has_is_not_compiled_again(fresh: Path) -> None:
    first, made = compiled(DOUBLE + OUTER + MAIN)
    assert (called(first, 5), len(made)) == (11, 3)
    again, made = compiled(MAIN + OUTER + DOUBLE)
    assert called(again, 5) == 11
    assert [line.split("@")[1][:4] for line in made] == ["main"]


def test_functions_of_one_name_that_call_others_of_one_name_are_told_apart(fresh: Path) -> None:
    compiled(DOUBLE + OUTER + MAIN)
    other, made = compiled(TRIPLE + OUTER + MAIN)
    assert called(other, 5) == 16
    assert len(made) == 3, "what calls another function is another function"


def test_constants_of_one_name_are_told_apart(fresh: Path) -> None:
    read = function("outer", "  %v = load i64, ptr @table\n  ret i64 %v")
    found = [
        called(compiled(f"@table = internal constant [1 x i64] [i64 {n}], align 64\n{read}{MAIN}")[0], 0)
        for n in (3, 4)
    ]
    assert found == [3, 4]


def test_memory_that_code_writes_is_each_program_s_own(fresh: Path) -> None:
    counting = function(
        "outer", "  %a = load i64, ptr @count\n  %v = add i64 %a, 1\n  store i64 %v, ptr @count\n  ret i64 %v"
    )
    text = "@count = internal global [1 x i64] zeroinitializer, align 64\n" + counting + MAIN
    one, two = compiled(text)[0], compiled(text)[0]
    assert [called(code, 0) for code in (one, one, two)] == [1, 2, 1]


def test_functions_that_call_each_other_in_a_circle_are_the_program_s_own(fresh: Path) -> None:
    back = function("double", "  %z = icmp eq i64 %n, 0\n  br i1 %z, label %end, label %on\non:\n  %m = sub i64 %n, 1\n"
                    "  %v = call i64 @outer(i64 %m)\n  ret i64 %v\nend:\n  ret i64 7")  # fmt: skip
    for _ in range(2):
        code, made = compiled(back + OUTER + MAIN)
        assert (called(code, 4), len(made)) == (12, 3)


def test_a_program_of_several_modules_finds_functions_of_each(fresh: Path) -> None:
    declared = "declare hidden i64 @double(i64 %n)\n"
    shared = DOUBLE.replace("internal", "hidden")
    compiled(DOUBLE + OUTER + MAIN)
    code, made = compiled(declared + OUTER + MAIN, shared)
    assert (called(code, 5), len(made)) == (11, 1)


def test_an_image_has_what_its_program_uses_alone(fresh: Path) -> None:
    long = "".join(function(f"f{k}", f"  %v = mul i64 %n, {k + 1000}\n  ret i64 %v") for k in range(50))
    uses = "\n".join(f"  %v{k} = call i64 @f{k}(i64 %n)" for k in range(50))
    large = function("main", f"{uses}\n  ret i64 %v49", "")
    compiled(long + large)
    objects = KernelObjects(
        [function("f7", "  %v = mul i64 %n, 1007\n  ret i64 %v") + MAIN.replace("outer", "f7")], current_target()
    )
    small = objects.code([False], at_once(current_target()))
    assert called(load_code(small), 2) == 2014
    assert len(small.contents) < 256


def test_weak_symbols_are_one_and_strong_ones_are_refused_twice() -> None:
    weak = [f'define weak_odr hidden i64 @f(i64 %n) section ".text.f" {{\n  ret i64 {n}\n}}\n' for n in (1, 1)]
    main = "declare hidden i64 @f(i64)\n" + MAIN.replace("outer", "f")
    objects = codegen.objects([main, *weak], current_target())
    assert called(load_code(link(*objects)), 0) == 1
    strong = codegen.objects([main, *(text.replace("weak_odr ", "") for text in weak)], current_target())
    with pytest.raises(image.ImageError, match="defined twice"):
        link(*strong)


def test_objects_in_memory_are_bounded(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LIMIT", 1500)
    monkeypatch.setattr(kernels, "INDEXED", 0)
    for n in range(8):
        text = function("outer", f"  %v = add i64 %n, {n}\n  ret i64 %v") + MAIN
        assert called(compiled(text)[0], 1) == n + 1
    library = kernels._library(current_target(), False)
    assert library._bytes <= 1500
    assert len(library._homes) == len(library._objects) < 8
    assert len(compiled(text)[1]) == 1, "the latest is still there"


# -- programs ----------------------------------------------------------------------------------------------------------


def declared() -> tuple[sg.Tensor, sg.Tensor, sg.Tensor]:
    x = sg.placeholder((24, 24), name="x")
    w = sg.Variable(np.linspace(-1, 1, 24 * 24).reshape(24, 24).astype(np.float32), name="w")
    loss = sg.tanh(x @ w).sum()
    return x, loss, sg.gradients(loss, [w])[0]


FEED = np.linspace(0, 1, 24 * 24).reshape(24, 24).astype(np.float32)


def test_inference_beside_training_finds_kernels_in_memory(fresh: Path) -> None:
    with sg.Graph() as g:
        x, loss, slope = declared()
    with sg.Session(g) as session:
        step, alone = session.compile([loss, slope], [x]), session.compile(loss, [x])
        value = step(FEED)[0]
        assert alone(FEED) == value
        assert step.setup.kernels_compiled > 0
        assert alone.setup.kernels_found_in_memory > 0
        assert f"{alone.setup.kernels_found_in_memory} found in memory" in str(alone.setup)


@pytest.mark.parametrize("tiers", ["0", "1", "first"])
def test_a_second_compilation_of_a_program_compiles_its_entry_alone(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, tiers: str
) -> None:
    monkeypatch.setenv("STATICGRAD_TIERS", tiers)
    with sg.Graph() as g:
        x, loss, slope = declared()
    found = []
    for number in range(2):
        with sg.Session(g) as session:
            exe = session.compile([loss + number, slope], [x], wait=tiers != "first")
            found.append([np.asarray(value).tobytes() for value in exe(FEED)[1:]])
            setup = exe.setup
    assert found[0] == found[1]
    assert setup.kernels_found_in_memory > 0


ANOTHER = """
import sys
import numpy as np
import staticgrad as sg
with sg.Graph() as g:
    x = sg.placeholder((24, 24), name="x")
    w = sg.Variable(np.ones((24, 24), np.float32), name="w")
    loss = sg.tanh(x @ w).sum() * float(sys.argv[1])
    slope = sg.gradients(loss, [w])[0]
with sg.Session(g) as session:
    exe = session.compile([loss, slope], [x], wait=True)
    exe(np.ones((24, 24), np.float32))
print(exe.setup.kernels_compiled, exe.setup.kernels_found_on_disk)
"""


@pytest.mark.parametrize("tiers", ["0", "1"])
def test_another_process_finds_kernels_of_another_program_on_disk(fresh: Path, tiers: str) -> None:
    environment = {**os.environ, "STATICGRAD_TIERS": tiers}
    runs = [
        subprocess.run(
            [sys.executable, "-c", ANOTHER, number], env=environment, capture_output=True, text=True, check=True
        )
        for number in ("2.0", "3.0")
    ]
    (compiled_first, found_first), (_, found) = ([int(n) for n in run.stdout.split()] for run in runs)
    assert compiled_first > 0 == found_first
    assert found > 0


def test_damaged_kernels_on_disk_are_compiled_again(fresh: Path) -> None:
    compiled(DOUBLE + OUTER + MAIN)
    for path in fresh.glob("*.sge"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(bytes(content))
    _forget()
    code, made = compiled(DOUBLE + OUTER + MAIN)
    assert (called(code, 5), len(made)) == (11, 3)


def test_without_a_cache_programs_share_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    for _ in range(2):
        assert len(compiled(DOUBLE + OUTER + MAIN)[1]) == 3
    assert not list(fresh.glob("*"))
