"""RISC-V, Cortex-M and WebAssembly: programs for them, run by emulators, equal the interpreter, and ask for no library.

Boards and browsers have no mathematical functions, few of them have threads, and their addresses have four bytes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cross import MACHINES, Run, emulated, missing
from support.cross_checks import check_drawn, check_edges, check_table, check_training, run_of
from support.object_files import asked_for, loaded_bytes, machine
from support.op_cases import TESTED, typed
from support.sampling import operands, relative_error

import staticgrad as sg
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.square_root import square_root
from staticgrad.compiler.machine.isa import BASELINE_ISA
from staticgrad.compiler.machine.machine import X86_64
from staticgrad.compiler.machine.target import NEON, OTHER_TARGETS, TARGETS, Target, compact, runs_here
from staticgrad.compiler.native.codegen import assembly, objects
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.native.triples import known_names, target_for
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.program.slots import FetchSlot
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import Op

WASM = ("wasm32", "wasm32-simd128")
CORTEX_M = ("cortex-m4", "cortex-m4-soft", "cortex-m7")


def on(*targets: str) -> list[object]:
    """Parameters of a test: targets, whose tests are skipped where their emulator is missing."""
    return [pytest.param(t, marks=pytest.mark.skipif(bool(missing(t)), reason=missing(t))) for t in targets]


# -- names --------------------------------------------------------------------------------------------------------


def test_targets_of_other_machines_are_never_chosen_for_this_one() -> None:
    assert not any(runs_here(target) for target in OTHER_TARGETS.values())
    assert not OTHER_TARGETS.keys() & TARGETS.keys()
    assert all(target_for(name).name == name for name in OTHER_TARGETS)
    assert target_for("aarch64") is NEON


def test_an_unknown_name_lists_those_that_are_known() -> None:
    for name in ("cortex-m5", "cortexm5", "abacus-unknown-none"):
        with pytest.raises(sg.StaticGradError, match=rf"target '{name}': expected one of .*riscv64.*wasm32-simd128"):
            target_for(name)
    assert {"avx2", "aarch64", "cortex-m4"} <= set(known_names())


def test_a_triple_is_a_target() -> None:
    for name, nbytes in (("powerpc64le-unknown-linux-gnu", 8), ("i686-unknown-linux-gnu", 4)):
        target = target_for(name)
        assert (target.isa.pointer_bytes, target.isa.floats) == (nbytes, ())
        assert target.lanes(np.dtype(np.int8)) == 1
    # A triple of three parts has no vendor: read in another way it would be one without Arm's own calls.
    text = "define double @f(double %x) {\n  %y = fadd double %x, %x\n  ret double %y\n}\n"
    assert "__aeabi_dadd" in assembly([text], target_for("thumbv7m-none-eabi"))


@pytest.mark.parametrize(
    ("name", "told"),
    [("s390x-unknown-linux-gnu", "a big-endian machine"), ("avr-unknown-unknown", "addresses of 2 bytes")],
)
def test_a_triple_is_refused(name: str, told: str) -> None:
    with pytest.raises(sg.StaticGradError, match=f"target '{name}': {told}"):
        target_for(name)


@pytest.mark.parametrize(
    ("name", "number", "nbytes"),
    [("riscv64", 243, 8), ("riscv32", 243, 4), *((name, 40, 4) for name in CORTEX_M)],
)
def test_code_is_for_the_machine(name: str, number: int, nbytes: int) -> None:
    (content,) = objects(["define void @f() {\n  ret void\n}\n"], target_for(name))
    assert (machine(content), content[4]) == (number, nbytes // 4)
    assert target_for(name).isa.pointer_bytes == nbytes


# -- what programs ask for ------------------------------------------------------------------------------------------


def check_names(target: Target, ops: Sequence[Op]) -> None:
    """Ops ask for moves of memory and the compiler's own arithmetic, which has two underscores, and for no more."""
    found: dict[str, str] = {}
    for op in ops:
        run = run_of(op, [(op.cases[0], operands(op, op.cases[0], typed(op)[0]))], target.name)
        for content in objects(run.program.modules, target):
            found |= dict.fromkeys(asked_for(content), op.name)
    assert not {name: op for name, op in found.items() if not re.fullmatch(r"mem(cpy|move|set)|__\w+", name)}


def test_no_library_is_asked_for() -> None:
    check_names(target_for("cortex-m4-soft"), TESTED[::6])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OTHER_TARGETS, "cortex-m4-size"])
def test_no_library_is_asked_for_by_any_op(name: str) -> None:
    check_names(target_for(name), TESTED)


def test_names_that_are_asked_for_are_found() -> None:
    text = "declare double @cos(double)\ndefine double @f(double %x) nounwind {\n  %y = call double @cos(double %x)\n" \
           "  ret double %y\n}\n"  # fmt: skip
    for name in ("riscv64", "cortex-m4", "wasm32", "avx2"):
        (content,) = objects([text], target_for(name))
        assert asked_for(content) == {"cos"}


@pytest.mark.parametrize(("dtype", "element"), [(np.float32, "float"), (np.float64, "double")])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_square_root_without_instruction_rounds_correctly(dtype: type, element: str, lanes: int) -> None:
    type_ = element if lanes == 1 else f"<{lanes} x {element}>"
    target = Target("without roots", replace(BASELINE_ISA, floats=()), X86_64)
    module = IRModule(target)
    f = module.function("roots", ["ptr", "ptr", "i64"], internal=False)
    x, y, count = f.params
    with f.loop(0, count, lanes) as loop:
        root = square_root(f, f.load(type_, f.offset(x, loop.index, element)))
        f.store(root, f.offset(y, loop.index, element))
    f.finish()
    assert "llvm.sqrt" not in module.text()
    tiny, bits = np.finfo(dtype).smallest_subnormal, np.dtype(f"u{np.dtype(dtype).itemsize}")
    values = np.random.default_rng(0).integers(0, np.iinfo(bits).max, 20_000, bits, endpoint=True).view(dtype)
    squares = np.arange(1, 5001, dtype=dtype) ** 2
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, tiny, 3 * tiny, -tiny, np.finfo(dtype).max], dtype)
    xs = np.concatenate([values, squares, np.nextafter(squares, dtype(0)), edges])
    ys = np.empty_like(xs)
    native = NativeModule(module.text(), target)
    roots = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(native.address("roots"))
    roots(xs.ctypes.data, ys.ctypes.data, xs.size)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(ys.view(bits)[~np.isnan(ys)], np.sqrt(xs).view(bits)[~np.isnan(ys)])
        np.testing.assert_array_equal(np.isnan(ys), np.isnan(np.sqrt(xs)))


# -- how long programs are ------------------------------------------------------------------------------------------


def perceptron(batch: int) -> tuple[Graph, list[Tensor | Node], list[Tensor]]:
    """A step of training a net of three layers by SGD with momentum."""
    with sg.Graph() as graph:
        x, y = sg.placeholder((batch, 64)), sg.placeholder((batch,), sg.int32)
        net = sg.nn.Sequential(
            sg.nn.Linear(64, 32), sg.nn.ReLU(), sg.nn.Linear(32, 32), sg.nn.ReLU(), sg.nn.Linear(32, 10)
        )
        loss = sg.nn.cross_entropy(net(x), y)
        train = sg.optim.SGD(lr=0.01, momentum=0.9).minimize(loss)
    return graph, [loss, train], [x, y]


def compiled(target: Target, batch: int) -> Program:
    graph, fetches, feeds = perceptron(batch)
    return compile_region(cut(graph, fetches, {feed: feed.type for feed in feeds}), CompileOptions(target))


@pytest.mark.parametrize(
    ("target", "batch", "most", "arena"),
    [("cortex-m4", 1, 5200, 1000), ("cortex-m4", 8, 5300, 4200), ("cortex-m4-size", 1, 3600, 1000),
     ("cortex-m4-size", 8, 4300, 4200), ("riscv32-size", 1, 4600, 1000), ("wasm32-size", 1, 3600, 1000)],
)  # fmt: skip
def test_a_training_step_is_short(target: str, batch: int, most: int, arena: int) -> None:
    """Bytes of code before LLVM's passes, and of the memory that the step works in."""
    program = compiled(target_for(target), batch)
    assert sum(map(loaded_bytes, objects(program.modules, target_for(target)))) <= most
    assert program.arena_bytes <= arena


def test_equal_pieces_of_code_become_functions_where_that_is_right() -> None:
    """Not on RISC-V, where LLVM jumps to them by a register that they read."""
    texts = {name: assembly(compiled(target_for(name), 8).modules, target_for(name))
             for name in ("riscv64-size", "riscv32-size", "cortex-m4-size")}  # fmt: skip
    assert [name for name, text in texts.items() if "OUTLINED_FUNCTION" in text] == ["cortex-m4-size"]


def test_a_twin_is_shorter_and_known_by_its_name() -> None:
    usual = target_for("cortex-m4")
    assert target_for("cortex-m4-size") is compact(usual)
    assert "minsize" in compiled(compact(usual), 1).modules[0]
    lengths = [sum(map(loaded_bytes, objects(compiled(t, 8).modules, t))) for t in (compact(usual), usual)]
    assert lengths[0] < 0.85 * lengths[1]


@pytest.mark.parametrize("target", ["neon", "wasm32-simd128", "avx2", "avx512"])
def test_vectors_make_no_twin_longer(target: str) -> None:
    usual = target_for(target)
    lengths = [sum(map(loaded_bytes, objects(compiled(t, 8).modules, t))) for t in (compact(usual), usual)]
    assert lengths[0] < 0.85 * lengths[1]


# -- programs -----------------------------------------------------------------------------------------------------

EMULATED = [name for name in MACHINES if name != "neon"]  # which has tests of its own
QUICK = ("cortex-m4",)  # the one that differs most from the machines of the other tests
SHORT = ("cortex-m4", "wasm32-size")
REST = ("riscv64", "wasm32-simd128", "aarch64-unknown-linux-gnu", "cortex-m4-soft", "cortex-m7", "wasm32", "neon-size",
        "riscv64-size", "cortex-m4-size", "cortex-m7-size", "wasm32-simd128-size")  # fmt: skip


@pytest.mark.parametrize("target", on(*QUICK))
def test_the_first_case_of_each_op(target: str, tmp_path: Path) -> None:
    check_table(target, tmp_path, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("target", on(*REST))
def test_the_first_case_of_each_op_elsewhere(target: str, tmp_path: Path) -> None:
    check_table(target, tmp_path, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("target", on("riscv64", "cortex-m4", "cortex-m7", *WASM, "riscv64-size"))
def test_all_cases_of_each_op(target: str, tmp_path: Path) -> None:
    check_table(target, tmp_path, whole=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", on(*EMULATED))
def test_edge_values_of_each_elementwise_op(target: str, tmp_path: Path) -> None:
    check_edges(target, tmp_path)


@pytest.mark.parametrize("target", on("cortex-m4", "wasm32"))
def test_angles_of_any_size_are_reduced(target: str, tmp_path: Path) -> None:
    """By products of limbs of 32 bits; some lie as near to a multiple of pi/2 as doubles do."""
    nearest = [6381956970095103 * 2.0**797, 5319372648326541 * 2.0**-253 * 2.0**508]
    values = [1e5, 1e22, 1e300, *nearest, 2.0**1023 * 1.9, -3e200, *np.random.default_rng(1).uniform(1e10, 1e307, 40)]
    with sg.Graph() as graph:
        x = sg.placeholder((len(values),), sg.float64)
        ys = [sg.sin(x), sg.cos(x), sg.tan(x)]
    run = Run(graph, ys, {x: np.array(values)}, target)
    (found,) = emulated([run], tmp_path)
    for got, want in zip(found.results, run.interpreted().results, strict=True):
        assert relative_error(got, want) <= 1e-14


def looping() -> Run:
    """A scan, a loop with a condition and a branch, whose parts are handed tables of addresses."""
    with sg.Graph() as graph:
        x, n = sg.placeholder((7, 3)), sg.placeholder((), sg.int64)
        w = sg.Variable(np.arange(9, dtype=np.float32).reshape(3, 3) / 9, name="w")
        last, rows = sg.scan(lambda c, row: (sg.tanh(c @ w + row), c * row), sg.zeros((3,)), x)
        turns, total = sg.while_loop(
            lambda s: (s[0] < n) & (sg.sum(s[1]) < 50.0),
            lambda s: (s[0] + 1, s[1] + last * last),
            (0, sg.ones((3,))),
            max_steps=9,
        )
        chosen = sg.cond(sg.sum(last) > 0, lambda: last * 2.0, lambda: total - 1.0)
        (slope,) = sg.gradients(sg.sum(rows) + sg.sum(chosen), [w])
    feeds = {x: np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32), n: np.array(5)}
    return Run(graph, [last, rows, turns, total, chosen, slope], feeds)


@pytest.mark.parametrize("target", on("cortex-m4", "wasm32", "riscv64"))
def test_loops_and_branches(target: str, tmp_path: Path) -> None:
    run = looping()
    run = Run(run.graph, run.fetches, run.feeds, target)
    (found,) = emulated([run], tmp_path)
    for got, want in zip(found.results, run.interpreted().results, strict=True):
        assert relative_error(got, want) <= 1e-5


@pytest.mark.parametrize("target", on("cortex-m4-size", "cortex-m4", "wasm32-simd128"))
@pytest.mark.parametrize("batch", [1, 8])
def test_a_training_step_of_a_small_net(target: str, batch: int, tmp_path: Path) -> None:
    graph, fetches, (x, y) = perceptron(batch)
    rng = np.random.default_rng(batch)
    feeds = {x: rng.standard_normal((batch, 64)), y: rng.integers(0, 10, batch)}
    run = Run(graph, fetches, feeds, target)
    (found,), wanted = emulated([run], tmp_path), run.interpreted()
    assert len(found.state) >= 6
    for key, got in found.arrays.items():
        assert relative_error(got, wanted.arrays[key]) <= 1e-5, key


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "conv"])
@pytest.mark.parametrize("target", on(*EMULATED, "cortex-m4-size"))
def test_a_training_step_of_the_demo(target: str, name: str, tmp_path: Path) -> None:
    check_training(target, name, 8, tmp_path)


@pytest.mark.parametrize("target", on(*SHORT))
def test_a_few_drawn_programs_where_products_are_computed_by_rows(target: str, tmp_path: Path) -> None:
    """``contraction/plain.py``, which no host takes."""
    check_drawn(target, range(3, 6), tmp_path)  # of 0 to 2 one needs more memory than the board has


@pytest.mark.slow
@pytest.mark.parametrize("target", on("riscv64", *WASM))
def test_drawn_programs(target: str, tmp_path: Path) -> None:
    check_drawn(target, range(10), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", on(*SHORT, "riscv64-size", "cortex-m4-size", "wasm32-simd128-size"))
def test_drawn_programs_that_are_short(target: str, tmp_path: Path) -> None:
    check_drawn(target, range(6, 66), tmp_path)


@pytest.mark.parametrize("target", on("cortex-m4", "wasm32"))
def test_a_write_beside_memory_is_told(target: str, tmp_path: Path) -> None:
    """By the bytes around what a caller hands over: a result that is longer than the room for it."""
    with sg.Graph() as graph:
        x = sg.placeholder((5,))
        y = x * 2.0
    run = Run(graph, [y], {x: np.arange(5, dtype=np.float32)}, target)
    (found,) = emulated([run], tmp_path)
    assert found.results[0].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    short = replace(y.type, shape=(3,))
    slots = [replace(slot, type=short) if isinstance(slot, FetchSlot) else slot for slot in run.program.slots]
    run.program = replace(run.program, slots=tuple(slots))
    with pytest.raises(RuntimeError, match="a program has written beside its memory"):
        emulated([run], tmp_path)
