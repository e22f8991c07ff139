"""A program by hand, as exporting makes them: entries, most of which share a state, and checks.

- ``step(x float32[4], i int64[]) -> [w, {"count": n}, None]``: w = w + x, n = n + 1; status 1: x[0] is negative; 2: i
  is outside of [0, 3); 3: x[1] is no number
- ``read() -> w * 2``
- ``scale(x float64[2, 2]) -> x * 3``
- ``wait(flag int64[])``: a pair of 1, when it has begun, and the flag as soon as it is not 0, 0 after many looks;
  ``look(flag)``, ``hold(flag)`` the same, while it reads or writes the state

``python -m support.handmade PATH`` writes the file of the first three.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from staticgrad.base.image import CodeImage
from staticgrad.base.types import TensorType, float32, float64, int64
from staticgrad.compiler.machine.target import TARGETS
from staticgrad.compiler.native import link
from staticgrad.compiler.native.codegen import objects
from staticgrad.runtime.export import program_file
from staticgrad.runtime.export.interface import Entry, ExportedCheck, ExportInterface, NamedType, layout
from staticgrad.runtime.parts.entry import entry_image

TEXT = """
declare ptr @memcpy(ptr, ptr, i64)

define i32 @step(ptr %in, ptr %out, ptr %workspace, ptr %state) {
  %px = load ptr, ptr %in
  %ini = getelementptr ptr, ptr %in, i64 1
  %pi = load ptr, ptr %ini
  %pw = load ptr, ptr %out
  %outn = getelementptr ptr, ptr %out, i64 1
  %pn = load ptr, ptr %outn
  %x = load <4 x float>, ptr %px, align 4
  %i = load i64, ptr %pi
  %x0 = extractelement <4 x float> %x, i64 0
  %negative = fcmp olt float %x0, 0.0
  br i1 %negative, label %asserted, label %index
asserted:
  ret i32 1
index:
  %outside = icmp uge i64 %i, 3
  br i1 %outside, label %bounds, label %numbers
bounds:
  %low = getelementptr i64, ptr %workspace, i64 8
  store i64 %i, ptr %low
  %high = getelementptr i64, ptr %workspace, i64 9
  store i64 %i, ptr %high
  ret i32 2
numbers:
  %x1 = extractelement <4 x float> %x, i64 1
  %nan = fcmp uno float %x1, 0.0
  br i1 %nan, label %numerics, label %go
numerics:
  ret i32 3
go:
  %w = load <4 x float>, ptr %state, align 64
  %sum = fadd <4 x float> %w, %x
  store <4 x float> %sum, ptr %workspace, align 64
  %copied = call ptr @memcpy(ptr %state, ptr %workspace, i64 16)
  store <4 x float> %sum, ptr %pw, align 4
  %count = getelementptr i64, ptr %state, i64 8
  %n = load i64, ptr %count
  %more = add i64 %n, 1
  store i64 %more, ptr %count
  store i64 %more, ptr %pn
  ret i32 0
}
define i32 @read(ptr %in, ptr %out, ptr %workspace, ptr %state) {
  %pw = load ptr, ptr %out
  %w = load <4 x float>, ptr %state, align 64
  %twice = fadd <4 x float> %w, %w
  store <4 x float> %twice, ptr %pw, align 4
  ret i32 0
}
define i32 @scale(ptr %in, ptr %out, ptr %workspace, ptr %state) {
  %px = load ptr, ptr %in
  %py = load ptr, ptr %out
  %x = load <4 x double>, ptr %px, align 8
  %y = fmul <4 x double> %x, <double 3.0, double 3.0, double 3.0, double 3.0>
  store <4 x double> %y, ptr %py, align 8
  ret i32 0
}
"""
WAIT = """
define i32 @NAME(ptr %in, ptr %out, ptr %workspace, ptr %state) {
  %flag = load ptr, ptr %in
  %began = load ptr, ptr %out
  %out1 = getelementptr ptr, ptr %out, i64 1
  %seen = load ptr, ptr %out1
  store volatile i64 1, ptr %began
  br label %look
look:
  %k = phi i64 [ 0, %0 ], [ %next, %look ]
  %value = load volatile i64, ptr %flag
  %next = add i64 %k, 1
  %there = icmp ne i64 %value, 0
  %often = icmp uge i64 %next, 34359738368
  %ends = or i1 %there, %often
  br i1 %ends, label %end, label %look
end:
  store i64 %value, ptr %seen
  ret i32 0
}
"""
LAYOUT = layout({"w": TensorType((4,), float32), "n": TensorType((), int64)}, draws=False)
X, W, N = TensorType((4,), float32), TensorType((4,), float32), TensorType((), int64)
CHECKS = (
    ExportedCheck("assertion", "x[0] is negative", "train.py:7: sg.assert_(x[0] >= 0)"),
    ExportedCheck("bounds", "take", "train.py:8: rows[i]", size=3, offset=64),
    ExportedCheck("numerics", "op 'log' made a NaN or infinity"),
)
SQUARE = TensorType((2, 2), float64)
STEP = Entry(
    "step", "slots", (NamedType("x", X), NamedType("i", N)), (NamedType("w", W), NamedType("n", N)),
    ["list", 0, ["dict", ["count"], 1], None], 128, CHECKS, True, is_brief=True,
)  # fmt: skip
READ = Entry("read", "slots", (), (NamedType("twice", W),), 0, 0, (), True, writes_state=False, is_brief=True)
SCALE = Entry(
    "scale", "slots", (NamedType("x", SQUARE),), (NamedType("y", SQUARE),), 0, 0, (), False, writes_state=False,
    is_brief=True,
)  # fmt: skip
FLAG = (NamedType("flag", N),)
WAIT_RESULTS = (NamedType("began", N), NamedType("seen", N))
WAITING, LOOKING, HOLDING = (
    Entry(name, "slots", FLAG, WAIT_RESULTS, ["tuple", 0, 1], 0, (), name != "wait", writes_state=name == "hold")
    for name in ("wait", "look", "hold")
)
W_BEGIN = np.array([1, 2, 3, 4], np.float32)


def initial() -> bytes:
    """The state as it begins."""
    content = bytearray(LAYOUT.nbytes)
    content[:16] = W_BEGIN.tobytes()
    return bytes(content)


def code(target: str = "generic") -> CodeImage:
    """The machine code of all entries for a target."""
    text = TEXT + "".join(WAIT.replace("NAME", entry.name) for entry in (WAITING, LOOKING, HOLDING))
    return link.link(*objects([text], TARGETS[target]))


def interface(*entries: Entry) -> ExportInterface:
    """The interface of a program with these entries, by default the first three."""
    return ExportInterface("handmade", "generic", entries or (STEP, READ, SCALE), LAYOUT)


def content(*entries: Entry, targets: tuple[str, ...] = ("generic",), called: bool = False) -> bytes:
    """The file of a program with these entries, by default the first three; ``called`` in machine code, if it is."""
    caller = entry_image() if called else None
    return program_file.to_bytes(interface(*entries), {name: code(name) for name in targets}, initial(), caller)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(content())
