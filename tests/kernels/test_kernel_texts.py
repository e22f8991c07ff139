"""Kernels as text: what is written parses back, and each file of ``kernels/`` says how its kernel is run.

    file ::= "# what it is about", kernel, then for each target "== target", its plan and scratch memory,
             and for some "== llvm target", the function

``pytest --update-golden`` writes what stands behind the kernel anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.random_graphs import random_graph

import staticgrad as sg
from staticgrad.base.extents import OpenSize, extent_of
from staticgrad.compiler.emit import families
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.nest import Compute, Constant, Nest
from staticgrad.compiler.kernels.notation import parse_kernel, print_kernel
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.machine.target import TARGETS, Target
from staticgrad.errors import FormatError
from staticgrad.ops.windows import WindowAttributes

FILES = sorted(Path(__file__).parent.glob("*.txt"))
FAMILIES = {"Nest", "Contraction", "Convolution", "Packing", "Batch"}


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The titles of a file and what stands below each; the first one is empty."""
    title, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("== "):
            yield title, "\n".join(lines)
            title, lines = line[3:], []
        elif not line.startswith("#"):
            lines.append(line)
    yield title, "\n".join(lines)


def described(planned: Planned) -> str:
    """How a kernel is run."""
    plan = "nothing to compute" if planned.plan is None else planned.plan.text
    memory = f"scratch: {planned.shared_bytes} bytes, of each worker {planned.worker_bytes}"
    return f"{plan}\n{memory}{'; threads share it' * planned.is_shared}"


def emitted(kernel: Kernel, target: Target) -> str:
    module = IRModule(target)
    families.emit_kernel(module, families.plan_kernel(kernel, target), "kernel")
    return module.text().rstrip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_kernel_is_run_as_its_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    (_, written), *expected = sections(text)
    kernel = parse_kernel(written)
    assert parse_kernel(print_kernel(kernel)) == kernel
    found = {}
    for title, _ in expected:
        target = TARGETS[title.removeprefix("llvm ")]
        llvm = title.startswith("llvm ")
        found[title] = emitted(kernel, target) if llvm else described(families.plan_kernel(kernel, target))
    if request.config.getoption("--update-golden"):
        head = text[: text.index("== ")]
        path.write_text(
            head + "\n".join(f"== {title}\n{said}" for title, said in found.items()) + "\n", encoding="utf-8"
        )
        return
    for title, said in expected:
        assert found[title] == said.rstrip(), f"{path.name}, {title}: if it should, run pytest --update-golden"


def test_the_files_have_every_family_and_every_kind_of_plan() -> None:
    kernels = [parse_kernel(next(sections(path.read_text(encoding="utf-8")))[1]) for path in FILES]
    targets = [TARGETS[name] for name in ("avx512", "avx2")]
    plans = {type(families.plan_kernel(kernel, target).plan).__name__ for kernel in kernels for target in targets}
    assert {type(kernel).__name__ for kernel in kernels} == FAMILIES
    assert plans >= {
        "NestPlan", "ContractionPlan", "BatchPlan", "ForwardPlan", "Planar", "Products", "Depthwise",
        "DepthwiseWeights", "DepthwisePlanes", "WeightGrad", "DotWeights", "PlaneWeights", "WeightProducts",
        "Winograd", "WinogradWeights",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::staticgrad.errors.PromotionWarning")
def test_kernels_of_drawn_programs_parse_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[Kernel, None] = {}
    right = families.plan_kernel

    def noting(kernel: Kernel, target: Target) -> Planned:
        seen[kernel] = None
        return right(kernel, target)

    monkeypatch.setattr(families, "plan_kernel", noting)
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    for seed in range(12):
        advanced = seed % 3 == 0
        dtype = sg.float64 if advanced else (sg.float32, sg.float64, sg.float16)[seed % 3]
        case = random_graph(seed, advanced=advanced, dtype=dtype)
        with case.graph:
            slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        with sg.Session(case.graph) as session:
            session.compile([*case.results, *slopes], list(case.feeds)).text("kernels")
    assert {type(kernel).__name__ for kernel in seen} >= {"Nest", "Contraction", "Batch"}
    for kernel in seen:
        assert parse_kernel(print_kernel(kernel)) == kernel, print_kernel(kernel)


@pytest.mark.parametrize("value", [-0.0, math.inf, -math.inf, math.nan, 1e300, True, -(2**63)])
def test_numbers_come_back(value: float) -> None:
    dtype = np.dtype(bool if value is True else np.int64 if isinstance(value, int) else np.float64)
    found = parse_kernel(print_kernel(Nest((2,), (), (), (Constant(value, dtype),))))
    assert isinstance(found, Nest)
    (constant,) = found.body
    assert isinstance(constant, Constant)
    assert repr(constant) == repr(Constant(value, dtype))


def test_an_attribute_that_equals_its_default_and_is_another_number_comes_back() -> None:
    attrs = WindowAttributes((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), -0.0)
    nest = Nest((2,), (), (), (Compute("identity", attrs, (), np.dtype(np.float32)),))
    assert repr(parse_kernel(print_kernel(nest))) == repr(nest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Nest(outer=(2,)", "line 1"),
        ("Nest(outer=(2,))", "missing"),
        ("(1, 2)", "expected a kernel, actual tuple"),
        ("open('x')", "expected a value, actual"),
        ("Nest(outer=(float33,), inner=(), args=(), body=())", "'float33' is neither a dtype nor a class"),
        ("Nest(outer=(-float32,), inner=(), args=(), body=())", "expected a number after a minus"),
        ("Nest(outer=(2 + 2,), inner=(), args=(), body=())", "expected a value, actual '2 \\+ 2'"),
    ],
)
def test_what_is_no_kernel_is_refused(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_kernel(text)


def test_kernels_of_open_sizes_have_no_text() -> None:
    n = extent_of(OpenSize(0, 1, 16))
    with pytest.raises(FormatError, match="has no text in a kernel"):
        print_kernel(Contraction(np.dtype(np.float32), (), n, 30, 20, (20, 1), (30, 1), (30, 1)))
