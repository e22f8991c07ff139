"""Systems that refuse memory which is executable and was writable: programs run there, or are told the way out."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import staticgrad as sg
from staticgrad.base import image
from staticgrad.base.image import CODE, DATA, CodeImage, ExecutionRefusedError, LoadedImage
from staticgrad.runtime.parts import locks

needs_images = pytest.mark.skipif(not image.loads_here(), reason="images are for x86-64 and ELF")
needs_files_in_memory = pytest.mark.skipif(sys.platform != "linux", reason="files in memory are of Linux")

# An image whose function adds 1 to a word in its data, which lies behind the protected part, and gives it back:
# mov eax, [rip + place]; inc eax; mov [rip + place], eax; ret
COUNT = CodeImage(
    b"\x8b\x05\xfa\x0f\x00\x00\xff\xc0\x89\x05\xf2\x0f\x00\x00\xc3".ljust(image.PAGE, b"\0") + b"\x29\0\0\0",
    image.PAGE + 8, image.PAGE, (), (), (("count", 0),),
)  # fmt: skip

PROGRAM = """
import ctypes, sys
REFUSE_EXEC_GAIN, SET_MDWE = 1, 65
if ctypes.CDLL(None).prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit(77)
import mmap
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    sys.exit("nothing is refused")
except OSError:
    pass
import staticgrad as sg
x, w = sg.placeholder((3,), name="x"), sg.Variable([1.0, 2.0, 3.0], name="w")
loss = sg.sum(x * w) + sg.sum(sg.py_call(lambda a: a * 2, [x], [(sg.float32, (3,))])[0])
session = sg.Session(num_threads=2)
train = session.compile([loss, sg.optim.SGD(0.5).minimize(loss)], x)
print(train([1.0, 1.0, 1.0])[0], session.get(w))
tape = session.forward(total := sg.sum(sg.matmul(sg.ones((200, 200)), sg.ones((200, 200))) * w[0]))
tape.backward(total)
session.compile(x * w, x).export("program.sgp", format="program")
print(sg.load("program.sgp")([2.0, 2.0, 2.0]))
"""


@needs_images
def test_programs_run_where_nothing_becomes_executable(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    if child.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE, which Linux has since 6.3")
    assert child.returncode == 0, child.stderr
    lines = child.stdout.splitlines()
    assert lines[0] == "12.0 [0.5 1.5 2.5]"
    assert lines[-1] == "[1. 3. 5.]"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rights of memory that images ask the system for."""
    rights = list[int]()
    honest_map, honest_protect = image._CodeMemory.__init__, image._CodeMemory.protect

    def made(self: Any, nbytes: int, wanted: int, file: int = -1) -> None:
        rights.append(wanted)
        honest_map(self, nbytes, wanted, file)

    def protect(self: Any, begin: int, end: int, wanted: int) -> None:
        rights.append(wanted)
        honest_protect(self, begin, end, wanted)

    monkeypatch.setattr(image._CodeMemory, "__init__", made)
    monkeypatch.setattr(image._CodeMemory, "protect", protect)
    return rights


def count_of(loaded: LoadedImage) -> Callable[[], int]:
    function: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address("count"))
    return function


@needs_images
@needs_files_in_memory
def test_memory_of_code_is_never_writable(asked: list[int]) -> None:
    one, other = LoadedImage(COUNT), LoadedImage(COUNT)
    assert asked == [CODE, DATA, CODE, DATA]  # what is made writable had been executable, not the other way round
    assert [count_of(one)(), count_of(one)(), count_of(other)()] == [42, 43, 42]


@needs_images
def test_systems_without_files_in_memory_make_written_memory_executable(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    loaded = LoadedImage(COUNT)
    assert asked == [DATA, CODE]
    assert [count_of(loaded)(), count_of(loaded)()] == [42, 43]


@needs_images
@needs_files_in_memory
def test_kernels_that_do_not_know_the_flag_of_such_files_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, flags = os.memfd_create, list[int]()

    def create(name: str, given: int) -> int:
        flags.append(given)
        if given & image.NO_PROGRAM:
            raise OSError(22, "Invalid argument")
        return honest(name, given)

    monkeypatch.setattr(os, "memfd_create", create)
    loaded = LoadedImage(COUNT)
    assert [count_of(loaded)(), len(flags)] == [42, 2]


@needs_images
@needs_files_in_memory
def test_an_image_keeps_no_file_open_and_gives_its_memory_back() -> None:
    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("memfd:staticgrad")
        return len([*Path("/proc/self/fd").iterdir()]), maps

    gc.collect()  # what is collected later has images, too
    before = held()
    images = [LoadedImage(COUNT) for _ in range(50)]
    files, maps = held()
    assert files == before[0]
    assert maps >= before[1] + 50
    del images
    assert held() == before


@needs_images
@needs_files_in_memory
def test_a_forked_child_has_data_of_its_own() -> None:
    loaded = LoadedImage(COUNT)
    count = count_of(loaded)
    assert count() == 42
    child = os.fork()
    if not child:
        os._exit(count())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (status, count()) == (43, 43)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(image, "_in_file", refuse)
    monkeypatch.setattr(image, "_in_place", refuse)
    monkeypatch.setattr(locks, "_machinery", locks.once(locks._new_machinery))


@needs_images
def test_a_system_that_refuses_both_ways_is_told_with_the_way_out(refused: None) -> None:
    with pytest.raises(ExecutionRefusedError) as caught:
        LoadedImage(COUNT)
    text = str(caught.value)
    assert "a file in memory: Permission denied; memory that was written: Permission denied" in text
    assert "STATICGRAD_BACKEND=reference" in text
    assert "'shared' library" in text


@needs_images
def test_the_reference_backend_runs_where_no_code_does(refused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph() as graph:
        w = sg.Variable([1.0, 2.0], name="w")
        update = sg.assign(w, w * 2)
    with sg.Session(graph) as session:
        session.run(update)
        assert session.get(w).tolist() == [2, 4]
        assert not session.store.lock.is_native
