"""The runtime's parts in C: the texts that are checked in are those that ``make parts`` writes, of functions alone."""

from __future__ import annotations

import re
from types import ModuleType

import make_parts
import pytest
from make_parts import CLANG_MAJOR, TEXTS, Text, cleaned, compiler_major, first_line, header, made, whole_source

from staticgrad.compiler.machine.target import GENERIC, NEON
from staticgrad.compiler.native.codegen import objects

each_text = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
FILLED = re.compile(r"\$\w+")


@each_text
def test_a_text_is_as_new_as_its_source(text: Text) -> None:
    found = text.place.read_text(encoding="ascii").partition("\n")[0]
    assert f"{found}\n" == first_line(text), f"{text.source}, or what it takes from Python, has changed: make parts"


@each_text
def test_a_text_is_what_the_compiler_writes(text: Text) -> None:
    if compiler_major() != CLANG_MAJOR:
        pytest.skip(f"clang {CLANG_MAJOR} writes the texts, here is {compiler_major()}")
    assert text.place.read_text(encoding="ascii") == made(text)


@each_text
def test_a_text_calls_what_its_source_declares(text: Text) -> None:
    """The compiler adds no function of the C library; what it adds of LLVM's is computed in place, or moves memory."""
    found = set(re.findall(r"^declare .*@([\w.]+)\(", text.place.read_text(encoding="ascii"), re.MULTILINE))
    own = {name for name in found if not name.startswith("llvm.")}
    assert own <= set(re.findall(r"^[\w *]*?(\w+)\(.*\);$", whole_source(text), re.MULTILINE))
    assert {name.split(".")[1] for name in found - own} <= {
        "memcpy", "memset", "umul", "umin", "smin", "smax", "fabs", "x86", "aarch64",
    }  # fmt: skip


@each_text
def test_a_text_is_for_every_machine(text: Text) -> None:
    content = FILLED.sub("8", text.place.read_text(encoding="ascii"))
    if "llvm.aarch64" not in content:
        assert objects([content], GENERIC)
    if "llvm.x86" not in content:
        assert objects([content], NEON)


def test_attributes_and_metadata_are_cleaned_away() -> None:
    written = """; ModuleID = 'part.c'
source_filename = "part.c"
target triple = "x86_64-unknown-linux-gnu"

@NUMBER = external local_unnamed_addr constant [0 x i8], align 1

; Function Attrs: nounwind optsize
define dso_local i32 @f(ptr noundef nocapture readonly %place, i64 noundef %at) local_unnamed_addr #0 {
entry:
  %sum = add i64 %at, ptrtoint (ptr @NUMBER to i64)
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %place) #4
  br label %end

end:                                              ; preds = %entry
  %call = tail call i32 @g(i32 noundef ptrtoint (ptr @NUMBER to i32)) #3, !srcloc !5
  ret i32 %call
}

attributes #0 = { nounwind }
!0 = !{i32 1}
"""
    assert (
        cleaned(written, ["NUMBER"])
        == """define i32 @f(ptr %place, i64 %at) {
entry:
  %sum = add i64 %at, $NUMBER
  br label %end

end:
  %call = tail call i32 @g(i32 $NUMBER)
  ret i32 %call
}
"""
    )


class PairWord:
    """A record of two words with a gap between them."""

    FIRST = 0
    SECOND = 3


def test_a_source_takes_constants_and_records_from_python() -> None:
    module = ModuleType("part")
    vars(module).update(PairWord=PairWord, MOST=7, OTHER=8, SIZE=9)
    assert header("struct PairWord x; MOST; FILLED(SIZE);\nFILLED(SIZE);\n", [module]).splitlines() == [
        "#include <stdint.h>",
        "enum { MOST = 7 };",
        "struct PairWord {",
        "    int64_t FIRST;",
        "    int64_t gap1[2];",
        "    int64_t SECOND;",
        "};",
    ]


def test_a_name_that_means_two_things_is_refused() -> None:
    one, other = ModuleType("one"), ModuleType("other")
    vars(one).update(MOST=7)
    vars(other).update(MOST=8)
    assert "MOST = 7" in header("MOST", [one])
    with pytest.raises(ValueError, match="MOST is 7 and 8"):
        header("MOST", [one, other])


def test_every_source_is_made_into_a_text() -> None:
    beside = {path for text in TEXTS for path in text.place.parent.glob("*.c")}
    assert beside == {make_parts.ROOT / text.source for text in TEXTS}
    assert len({text.place for text in TEXTS}) == len(TEXTS)
