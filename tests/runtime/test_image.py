"""Machine code as images: linked as LLVM's own loader would, mapped without it, and refused where it does not fit."""

from __future__ import annotations

import ast
import ctypes
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from source_tree import TESTS

from staticgrad.base import config, image, plain
from staticgrad.base.image import CodeImage, ImageError, LoadedImage, Relocation
from staticgrad.compiler.emit import parts
from staticgrad.compiler.emit.llvm import IRModule, integer
from staticgrad.compiler.machine.target import GENERIC
from staticgrad.compiler.native import link
from staticgrad.compiler.native import module as native
from staticgrad.compiler.native.codegen import exports, objects
from staticgrad.compiler.native.module import RelocatableObjects, load_code, machine_code
from staticgrad.compiler.native.object_loader import LoadedObjects

needs_images = pytest.mark.skipif(not image.loads_here(), reason="images are for x86-64 and ELF")

# Everything that images have: calls within and to the C library, constants, a jump table, data that is written, data
# that is all zeros, addresses of functions in code and in data.
TEXT = """
@counter = internal global i64 40
@zeros = internal global [5000 x i64] zeroinitializer
@table = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
@functions = internal global [2 x ptr] [ptr @twice, ptr @square]
declare ptr @memset(ptr, i32, i64)
declare i64 @strlen(ptr)
@text = internal constant [6 x i8] c"seven\\00"

define i64 @twice(i64 %x) {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @square(i64 %x) {
  %y = mul i64 %x, %x
  ret i64 %y
}
define i64 @count() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  %place = getelementptr i64, ptr @zeros, i64 4999
  %zero = load i64, ptr %place
  store i64 %new, ptr %place
  %sum = add i64 %new, %zero
  ret i64 %sum
}
define double @constant(i64 %i) {
  %place = getelementptr double, ptr @table, i64 %i
  %value = load double, ptr %place
  ret double %value
}
define i64 @apply(i64 %which, i64 %x) {
  %place = getelementptr ptr, ptr @functions, i64 %which
  %function = load ptr, ptr %place
  %y = call i64 %function(i64 %x)
  ret i64 %y
}
define i64 @address() {
  ret i64 ptrtoint (ptr @square to i64)
}
define i64 @length() {
  %n = call i64 @strlen(ptr @text)
  ret i64 %n
}
define void @fill(ptr %place, i64 %n) {
  call ptr @memset(ptr %place, i32 7, i64 %n)
  ret void
}
define i64 @choose(i64 %x) {
entry:
  switch i64 %x, label %other [ i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e ]
a:
  ret i64 13
b:
  ret i64 8
c:
  ret i64 100
d:
  ret i64 5
e:
  ret i64 77
other:
  ret i64 -1
}
"""


def object_of(text: str) -> tuple[bytes, tuple[str, ...]]:
    (content,) = objects([text], GENERIC)
    return content, exports([text])


def several_texts(length: int) -> tuple[str, ...]:
    """A module that the writer makes, as several: functions that call each other and a constant that two of them read;
    ``run`` and ``other`` are external."""
    module = IRModule(GENERIC)
    for number, name in enumerate(("first", "second", "third"), 2):
        f = module.function(name, ["i64"], "i64")
        read = f.load("i64", f.offset(f.symbol(module.table("numbers", np.arange(10))), number, "i64"))
        f.ret(f.binary("add", read, f.call("second", "i64", *f.params) if name == "third" else f.params[0]))
        f.finish()
    for name in ("run", "other"):
        f = module.function(name, ["i64"], "i64", internal=False)
        inner = f.call("third", "i64", f.call("first", "i64", *f.params))
        f.ret(f.intrinsic("llvm.smax.i64", "i64", inner, integer(0 if name == "run" else 20)))
        f.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART", length)
        return module.texts()


def numbers_of(loaded: native.Loaded) -> list[object]:
    """What the functions of ``several_texts`` do."""
    return [function(loaded, name, ctypes.c_int64, ctypes.c_int64)(4) for name in ("run", "other")]


def function(loaded: native.Loaded, name: str, result: type, *arguments: type) -> Callable[..., object]:
    return ctypes.CFUNCTYPE(result, *arguments)(loaded.address(name))


def behaviour(loaded: native.Loaded) -> list[object]:
    """What the functions of ``TEXT`` do."""
    long = ctypes.c_int64
    buffer = ctypes.create_string_buffer(8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, long)(loaded.address("fill"))(ctypes.addressof(buffer), 5)
    address = function(loaded, "address", ctypes.c_uint64)()
    assert address == loaded.address("square") % 2**64
    count = function(loaded, "count", long)
    return [
        [function(loaded, "apply", long, long, long)(which, 7) for which in (0, 1)],
        [function(loaded, "constant", ctypes.c_double, long)(i) for i in range(4)],
        [function(loaded, "choose", long, long)(i) for i in range(-1, 6)],
        [count(), count(), count()],
        function(loaded, "length", long)(),
        buffer.raw,
    ]


def in_fresh_process(what: Callable[[], None]) -> str:
    """What a function of this module prints. LLVM's loader ends a process in whose memory it finds no room for all
    sections of an object within two GB of each other, which happens after many tests."""
    code = f"import sys; sys.path.append({str(TESTS)!r}); import test_image; test_image.{what.__name__}()"
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=120
    )
    return child.stdout


def print_what_llvm_s_loader_makes() -> None:
    content, exports = object_of(TEXT)
    print(behaviour(LoadedObjects([content], exports)))


def print_a_choice_of_an_object() -> None:
    image.loads_here = lambda: False
    code = machine_code(TEXT, GENERIC)
    assert isinstance(code, RelocatableObjects)
    loaded = load_code(code)  # the code lives as long as this
    several = load_code(machine_code(several_texts(100), GENERIC))
    print(function(loaded, "choose", ctypes.c_int64, ctypes.c_int64)(3), *numbers_of(several))


@needs_images
def test_an_image_does_what_llvm_s_loader_makes_of_the_object() -> None:
    code, exports = object_of(TEXT)
    made = link.link(code)
    assert sorted(name for name, _ in made.exports) == sorted(exports)
    mapped = behaviour(LoadedImage(made))
    assert mapped == ast.literal_eval(in_fresh_process(print_what_llvm_s_loader_makes))
    assert mapped[:3] == [[14, 49], [1.5, 2.5, 3.5, 4.5], [-1, 13, 8, 100, 5, 77, -1]]
    assert mapped[3:] == [[41, 83, 85], 5, b"\x07" * 5 + b"\0" * 3]


@needs_images
def test_code_that_is_made_quickly_does_the_same() -> None:
    usual, quick = (machine_code(TEXT, GENERIC, quick=quick) for quick in (False, True))
    assert isinstance(usual, CodeImage)
    assert isinstance(quick, CodeImage)
    assert usual != quick
    assert behaviour(LoadedImage(usual)) == behaviour(LoadedImage(quick))


@needs_images
@pytest.mark.parametrize("length", [100, 300, 500])
def test_a_module_as_several_does_what_it_does_as_one(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,), texts = several_texts(10**6), several_texts(length)
    assert 2 <= len(texts) <= parts.MOST_PARTS
    made = [machine_code(texts, GENERIC) for _ in range(2)]
    monkeypatch.setattr(config, "available_cores", lambda: 1)
    assert machine_code(texts, GENERIC) == made[0] == made[1], "an image depends on the cores of its machine"
    one = machine_code(whole, GENERIC)
    assert isinstance(made[0], CodeImage)
    assert isinstance(one, CodeImage)
    assert {name for name, _ in made[0].exports} == {name for name, _ in one.exports} == {"run", "other"}
    assert numbers_of(LoadedImage(made[0])) == numbers_of(LoadedImage(one)) == [13, 20]


def test_what_several_modules_share_is_hidden_and_lies_in_one() -> None:
    texts = several_texts(100)
    assert len([text for text in texts if "@first(" in text]) > 1
    for symbol in ("define hidden i64 @first(", "@numbers = hidden constant", "define i64 @run("):
        assert sum(symbol in text for text in texts) == 1, symbol
    for text in texts:
        known = re.findall(r"^(?:(?:define|declare) [^@]*)?@([\w.]+)", text, re.MULTILINE)
        assert {*re.findall(r"@([\w.]+)", text)} == {*known}


@needs_images
def test_a_malformed_module_among_several_is_told_with_llvm_s_message() -> None:
    with pytest.raises(RuntimeError, match="nowhere"):
        machine_code((*several_texts(100), "define i64 @bad() {\n  ret i64 %nowhere\n}\n"), GENERIC)


@needs_images
def test_what_two_objects_define_is_refused() -> None:
    code = object_of(TEXT)[0]
    with pytest.raises(ImageError, match="defined twice"):
        link.link(code, code)


@needs_images
def test_an_image_survives_being_kept() -> None:
    made = link.link(object_of(TEXT)[0])
    assert image.from_plain(plain.load(plain.dump(image.to_plain(made)))) == made


@needs_images
def test_two_loads_of_an_image_share_no_data() -> None:
    made = link.link(object_of(TEXT)[0])
    loaded = LoadedImage(made), LoadedImage(made)
    first, second = (function(one, "count", ctypes.c_int64) for one in loaded)
    assert [first(), first(), second()] == [41, 83, 41]


@needs_images
def test_no_memory_is_written_and_executed() -> None:
    loaded = LoadedImage(link.link(object_of(TEXT)[0]))
    place = loaded.address("square")
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= place < high:
            assert rights.startswith("r-x")
            return
    pytest.fail("the code lies nowhere")


@needs_images
def test_what_images_do_not_have_goes_to_llvm_s_loader() -> None:
    text = "@weak = extern_weak global i8\ndefine i1 @there() {\n  %e = icmp ne ptr @weak, null\n  ret i1 %e\n}\n"
    with pytest.raises(ImageError, match="weak"):
        link.link(object_of(text)[0])
    code = machine_code(text, GENERIC)
    assert isinstance(code, RelocatableObjects)
    assert native.code_from_plain(native.code_to_plain(code)) == code


@needs_images
def test_thread_local_data_is_refused() -> None:
    text = "@t = thread_local global i64 3\ndefine i64 @get() {\n  %v = load i64, ptr @t\n  ret i64 %v\n}\n"
    with pytest.raises(ImageError):
        link.link(object_of(text)[0])


def test_objects_load_where_images_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_fresh_process(print_a_choice_of_an_object) == "5 13 20\n"
    monkeypatch.setattr(image, "loads_here", lambda: False)
    with pytest.raises(ImageError, match="x86_64"):
        LoadedImage(CodeImage(b"", 8, image.PAGE, (), (), ()))


@needs_images
def test_a_symbol_that_is_not_there_is_an_image_error() -> None:
    text = "declare void @no_such_function_anywhere()\ndefine void @f() {\n  call void @no_such_function_anywhere()\n"
    with pytest.raises(ImageError, match="no_such_function_anywhere"):
        LoadedImage(link.link(object_of(text + "  ret void\n}\n")[0]))


@pytest.mark.parametrize(
    "change",
    [
        {"contents": bytes(65)},
        {"protected": 100},
        {"protected": 0},
        {"size": 1 << 40},
        {"relocations": (Relocation(57, image.OWN, 0),)},
        {"relocations": (Relocation(-1, image.OWN, 0),)},
        {"relocations": (Relocation(0, 1, 0),)},
        {"relocations": (Relocation(0, -2, 0),)},
        {"exports": (("f", 64),)},
    ],
)
def test_an_image_that_reaches_outside_of_itself_is_refused(change: dict[str, object]) -> None:
    good: dict[str, object] = {
        "contents": b"", "size": 64, "protected": image.PAGE, "relocations": (), "symbols": ("f",), "exports": ()
    }  # fmt: skip
    CodeImage(**good)
    with pytest.raises(ImageError):
        CodeImage(**(good | change))


@pytest.mark.parametrize("data", [None, (), (1, 2), (b"", 64, 4096, ((1, 2),), (), ()), (b"", 64, 4096, (), (1,), ())])
def test_data_of_something_else_make_no_image(data: plain.Plain) -> None:
    with pytest.raises(ImageError):
        image.from_plain(data)


def test_a_damaged_object_is_an_image_error_or_an_image() -> None:
    code = object_of(TEXT)[0]
    draw = random.Random(0)
    for cut in (0, 10, 63, 64, len(code) // 2, len(code) - 1):
        with pytest.raises(ImageError):
            link.link(code[:cut])
    for _ in range(400):
        damaged = bytearray(code)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        try:
            link.link(bytes(damaged))
        except ImageError:
            continue


# -- plain data -----------------------------------------------------------------------------------------------------

VALUES: tuple[plain.Plain, ...] = (
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 0.1, float("inf"), -0.0, "", "straße\0", b"",
    bytes(range(256)), (), ((),), (1, (2.5, ("x", None)), b"y", True),
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_data_come_back(value: plain.Plain) -> None:
    again = plain.load(plain.dump(value))
    assert again == value
    assert repr(again) == repr(value)


@pytest.mark.parametrize("value", [[1], {1: 2}, 1j, object()], ids=lambda value: type(value).__name__)
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        plain.dump(value)


def test_damaged_plain_data_are_a_value_error() -> None:
    content = plain.dump(VALUES)
    for cut in range(len(content)):
        with pytest.raises(ValueError):
            plain.load(content[:cut])
    with pytest.raises(ValueError, match="too many"):
        plain.load(content + b"N")
    with pytest.raises(ValueError, match="deep"):
        plain.load(b"t\1\0\0\0" * 1000 + b"N")
    with pytest.raises(ValueError, match="length"):
        plain.load(b"t\xff\xff\xff\xffN")
    draw = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(content)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            plain.load(bytes(damaged))
        except ValueError:
            continue
