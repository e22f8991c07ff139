"""What a prompt shows of the values that users hold: one line each, with names, shapes, sizes and counts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staticgrad as sg


class Program:
    """A classifier with everything that one holds of it."""

    def __init__(self) -> None:
        self.graph = sg.Graph()
        with self.graph:
            self.x = sg.placeholder((8, 64), name="x", requires_grad=True)
            self.t = sg.placeholder((8,), sg.int64, name="t")
            self.w = sg.Variable(np.random.default_rng(0).normal(size=(64, 50)), dtype=sg.float32, name="w")
            self.hook = self.x.register_hook(lambda grad: None)
            self.loss = sg.nn.cross_entropy(self.x @ self.w, self.t)
            self.optimizer = sg.optim.SGD(lr=0.1, momentum=0.9)
            self.train = self.optimizer.minimize(self.loss)
        self.session = sg.Session(self.graph)
        self.feeds = {self.x: np.zeros((8, 64), np.float32), self.t: np.zeros(8, np.int64)}
        self.executable = self.session.compile({"loss": self.loss, "train": self.train}, [self.x, self.t])


@pytest.fixture(scope="module")
def program() -> Program:
    return Program()


def same(value: object, pattern: str) -> None:
    """The whole of what is shown; … stands for anything."""
    assert re.fullmatch(re.escape(pattern).replace("…", ".*"), repr(value)), repr(value)


def test_tensors_and_variables_show_name_and_type(program: Program) -> None:
    same(program.x, "<tensor 'x' float32[8, 64]>")
    same(program.w, "<variable 'w' float32[64, 50]>")
    same(program.loss.grad_fn, "<NllLossBackward0>")


def test_a_name_of_several_lines_is_shown_in_one(g: sg.Graph) -> None:
    same(sg.placeholder((), name="a\nb"), "<tensor 'a\\nb' float32[]>")


def test_a_graph_shows_its_counts(program: Program) -> None:
    count = len(program.graph.nodes)
    same(program.graph, f"<graph of {count} ops, {len(program.graph.variables)} variables>")
    same(program.session, f"<session on <graph of {count} ops, … variables>, … programs compiled>")


def test_an_executable_shows_feeds_fetches_and_arena(program: Program) -> None:
    same(
        program.executable,
        "<executable (x float32[8, 64], t int64[8]) -> (cross_entropy, group), arena … KiB>",
    )


def test_an_executable_says_whether_anything_is_compiled(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((sg.dim("batch"),), name="x")
    exe = sg.Session(g).compile(x * 2, x)
    same(exe, "<executable (x float32[batch]) -> (multiply), not compiled yet>")
    exe(np.zeros(3, np.float32))
    state = "arena 0 B for batch from 1 to 16" if backend == "compiled" else "interpreted"
    same(exe, f"<executable (x float32[batch]) -> (multiply), {state}>")


def test_of_many_feeds_a_few_are_shown(g: sg.Graph) -> None:
    feeds = [sg.placeholder((), name=f"x{i}") for i in range(100)]
    exe = sg.Session(g).compile([x + 1 for x in feeds], feeds)
    same(exe, "<executable (x0 float32[], x1 float32[], x2 float32[], … 97 more) -> (add, …, … 97 more), arena … B>")


def test_a_tape_shows_what_it_keeps(program: Program) -> None:
    tape = program.session.forward(program.loss, program.feeds)
    same(tape, "<tape of cross_entropy, … KiB live of … KiB saved>")
    same(tape.memory, "<memory of a tape: saved … KiB, live … KiB, retain_graph=True keeps …, … values>")
    tape.backward(program.loss)
    same(tape, "<tape of cross_entropy, 0 B live of … KiB saved>")
    tape.close()
    same(tape, "<tape of cross_entropy, closed>")


def test_reports_show_their_sums(program: Program) -> None:
    exe = program.executable
    same(exe.memory, f"<memory: arena …, at least … alive at once, {len(exe.memory.buffers)} buffers>")
    same(exe.cost, f"<cost: … flops, … KiB read and written by {len(exe.cost.kernels)} kernels>")
    profile = exe.profile(*program.feeds.values())
    same(profile, f"<profile: … µs in {len(profile.kernels)} kernels, medians of {profile.calls} calls>")


def test_a_hook_shows_its_tensor_until_it_is_removed(program: Program) -> None:
    same(program.hook, "<hook of 'x'>")
    handle = program.x.register_hook(lambda grad: None)
    handle.remove()
    same(handle, "<hook of 'x', removed>")


def test_an_optimizer_shows_its_settings(program: Program, g: sg.Graph) -> None:
    same(program.optimizer, "SGD(lr=0.1, momentum=0.9, …)")
    same(sg.optim.AdamW(weight_decay=0.1), "AdamW(lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.1, …)")
    same(sg.optim.Lion(lr=sg.constant(0.5, name="rate")), "Lion(lr=<tensor 'rate' float32[]>, …)")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (sg.dim("batch"), "batch"),
        (sg.dim("batch") // 2 + 1, "(batch // 2) + 1"),
        (sg.init.normal(std=0.5), "normal(mean=0.0, std=0.5)"),
        (sg.no_grad(), "<gradient mode: off>"),
        (sg.enable_grad(), "<gradient mode: on>"),
    ],
)
def test_small_values(value: object, shown: str) -> None:
    same(value, shown)


def test_nothing_shows_elements_or_addresses(program: Program) -> None:
    with program.graph:
        constant = sg.constant(np.random.default_rng(0).normal(size=(100, 100)))
    tape = program.session.forward(program.loss, program.feeds)
    held: list[Any] = [
        *vars(program).values(), tape, constant, constant.op, constant.op.op, constant.op.attrs,
        program.executable.memory.buffers[0], program.executable.cost.kernels[0], tape.memory.buffers[0],
    ]  # fmt: skip
    for value in held:
        if not isinstance(value, dict):
            assert " object at 0x" not in repr(value)
            assert "\n" not in repr(value)
            assert len(repr(value)) < 400
