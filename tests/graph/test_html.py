"""What notebooks show: HTML that stands alone, whatever things are called, and that does not grow with the program."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.program.program import BufferPlan
from staticgrad.graph.html.boxes import MOST, Layers, layers_of
from staticgrad.runtime.measured.profile import KernelTime, Profile
from staticgrad.runtime.measured.reports import MemoryReport

NASTY = "<script>alert(\"1\")</script> & 'x'\n\x00"


class Page(HTMLParser):
    """Reads HTML: elements must close in order; ``counts`` of them by name, the text between them in ``text``."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on")
            assert "url(" not in (value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(value: Any) -> Page:
    """What a notebook shows of a value."""
    read = Page(value._repr_html_())
    assert not {"script", "style", "link", "img"} & set(read.counts)
    return read


class Net(sg.nn.Module):
    """A linear layer and some blocks of two."""

    def __init__(self, blocks: int) -> None:
        self.first = sg.nn.Linear(4, 8)
        self.blocks = sg.nn.Sequential(*[sg.nn.Sequential(sg.nn.Linear(8, 8), sg.nn.Tanh()) for _ in range(blocks)])

    def forward(self, x: sg.Tensor) -> sg.Tensor:
        return self.blocks(self.first(x))


def trained(blocks: int) -> tuple[sg.Tensor, sg.Tensor, sg.Node]:
    x = sg.placeholder((5, 4), name="x")
    loss = sg.mean(sg.square(Net(blocks)(x)))
    return x, loss, sg.optim.SGD(lr=0.1).minimize(loss)


# -- graphs -----------------------------------------------------------------------------------------------------------


def test_an_empty_graph_shows_that_it_is_empty(g: sg.Graph) -> None:
    assert page(g).text.strip() == "graph 0 ops, 0 variables of 0 elements (0 B)"


def test_a_small_graph_shows_each_op_with_its_type(g: sg.Graph) -> None:
    x = sg.placeholder((3,), name="points")
    sg.sum(sg.tanh(x) * sg.Variable(np.ones(3, np.float32), name="w"))
    shown = page(g)
    assert shown.counts["rect"] == len(g.nodes) == 5
    assert shown.counts["path"] == 4
    for text in ("points", "w", "tanh", "multiply", "sum", "float32[3]", "test_html.py"):
        assert text in shown.text


def test_modules_are_shown_with_their_ops_and_parameters(g: sg.Graph) -> None:
    trained(3)
    text = page(g).text
    assert f"{5 * 8 + 3 * 72 + 1} elements" in text  # and the learning rate
    rows = [re.sub("(<[^>]*>)+", "|", row).strip("|") for row in re.findall("<tr>(.*?)</tr>", g._repr_html_())]
    (whole,) = [row for row in rows if row.startswith("Net|")]
    (first,) = [row for row in rows if row.startswith("first|Linear|")]
    assert whole.endswith("|256|1.0 KiB")
    assert re.fullmatch(r"first\|Linear\|1\|\d+\|40\|160 B", first)


def test_derivatives_are_shown_below_what_they_are_derived_of(g: sg.Graph) -> None:
    trained(20)
    layers = layers_of(g)
    row = {box: number for number, boxes in enumerate(layers.rows) for box in boxes}
    derived = [box for box in row if box.nodes[0].primal is not None]
    assert derived
    assert max(row[box] for box in row if box.module and box not in derived) < min(row[box] for box in derived)
    assert "∂ blocks.7" in page(g).text


def checked(layers: Layers) -> int:
    """The number of boxes; arrows lead downwards, and no row is longer than another one may be."""
    row = {box: number for number, boxes in enumerate(layers.rows) for box in boxes}
    assert all(row[source] < row[box] for source, box in layers.arrows)
    assert len(row) == sum(map(len, layers.rows))
    return len(row)


@pytest.mark.parametrize("blocks", [1, 5, 20, 60])
def test_a_net_of_any_depth_has_few_boxes(blocks: int, g: sg.Graph) -> None:
    trained(blocks)
    assert 1 < checked(layers_of(g)) <= MOST
    assert len(g._repr_html_()) < 100_000


def test_a_graph_of_ten_thousand_ops_has_few_boxes(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    for _ in range(2500):
        x = sg.sin(x)
        x = sg.cos(x) + x
        y = sg.exp(x)
    sg.add(x, y)
    assert len(g.nodes) > 10_000
    assert 1 < checked(layers_of(g)) <= MOST
    assert len(g._repr_html_()) < 100_000


def test_many_placeholders_variables_and_modules_are_counted_not_listed(g: sg.Graph) -> None:
    total = sg.stack([sg.placeholder((), name=f"x{i}") for i in range(500)]).sum()
    for i in range(500):
        total = total + sg.Variable(1.0, name=f"w{i}")
    for _ in range(500):
        total = sg.nn.Linear(1, 1)(sg.reshape(total, (1,)))
    shown = page(g)
    for text in ("460 more placeholders", "1460 more variables", "460 more modules"):
        assert text in shown.text
    assert len(g._repr_html_()) < 150_000


# -- programs ---------------------------------------------------------------------------------------------------------


def test_an_executable_shows_feeds_fetches_memory_and_kernels(g: sg.Graph) -> None:
    x, loss, train = trained(3)
    exe = sg.Session(g).compile({"loss": loss, "train": train}, [x])
    shown = page(exe)
    for text in ("feeds (1)", "float32[5, 4]", "fetches (2)", loss.name, train.name, "contraction", "flops", "step 0"):
        assert text in shown.text
    assert shown.counts["rect"] == 1 + len(exe.memory.buffers)


def test_an_executable_without_a_program_says_so(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((sg.dim("batch"),), name="x")
    exe = sg.Session(g).compile(x * 2, x)
    assert "nothing is compiled yet" in page(exe).text
    exe(np.zeros(3, np.float32))
    assert ("interpreted" in page(exe).text) == (backend == "reference")


def test_reports_name_the_sizes_that_the_latest_call_has_bound(g: sg.Graph) -> None:
    batch = sg.dim("batch")
    x, t = sg.placeholder((batch, 4), name="x"), sg.placeholder((batch, None), name="t")
    exe = sg.Session(g).compile(sg.sum(sg.sort(x, axis=0)) + sg.sum(t), [x, t])
    for rows, sizes in ((16, "batch from 1 to 16, t.1 from 1 to 16"), (17, "batch from 17 to 32, t.1 from 1 to 16")):
        exe(np.zeros((rows, 4), np.float32), np.zeros((rows, 3), np.float32))
        for report in (exe.memory, exe.cost):
            assert str(report).splitlines()[0].endswith(f", for {sizes}")
            assert f"for {sizes}" in page(report).text
        assert f"for {sizes}" in page(exe).text
    y = sg.placeholder((3,))
    assert ", for" not in str(sg.Session(g).compile(y * 2, y).memory)


def test_memory_shows_each_buffer_with_its_line(g: sg.Graph) -> None:
    x, loss, train = trained(3)
    exe = sg.Session(g).compile([loss, train], [x])
    tape = sg.Session(g).forward(loss, {x: np.zeros((5, 4), np.float32)})
    for memory in (exe.memory, tape.memory):
        shown = page(memory)
        assert shown.counts["rect"] == 1 + len(memory.buffers)
        assert all(b.name in shown.text for b in memory.buffers)
        assert "test_html.py" in shown.text


def test_a_picture_without_a_path_is_shown_inline(g: sg.Graph) -> None:
    x, loss, train = trained(3)
    exe = sg.Session(g).compile([loss, train], [x])
    tape = sg.Session(g).forward(loss, {x: np.zeros((5, 4), np.float32)})
    for memory in (exe.memory, tape.memory):
        picture = memory.plot()
        assert page(picture).counts["svg"] == 1
        assert repr(picture) == "<picture: notebooks show it; elsewhere give a path to write it to>"


def test_a_profile_shows_a_bar_for_each_kernel(g: sg.Graph) -> None:
    x, loss, train = trained(1)
    profile = sg.Session(g).compile([loss, train], [x]).profile(np.zeros((5, 4), np.float32))
    shown = page(profile)
    assert shown.counts["tr"] == 1 + len(profile.kernels)
    for text in ("µs", "GFLOP/s", "GB/s", "test_html.py", profile.kernels[0].name):
        assert text in shown.text


def test_costs_are_shown(g: sg.Graph) -> None:
    x, loss, _ = trained(1)
    assert "contraction" in page(sg.Session(g).compile(loss, [x]).cost).text


def test_large_programs_show_what_is_largest() -> None:
    buffers = [BufferPlan("b" * 500, 64, 64 * i, i, i + 9, "r" * 5000, None) for i in range(5000)]
    times = [KernelTime("k" * 500, "pointwise", 1e-6, 10, 10, 1e-7, None) for _ in range(5000)]
    for value in (MemoryReport(64 * 5000, 64 * 9, tuple(buffers)), Profile(tuple(times), 10)):
        assert len(value._repr_html_()) < 500_000
        assert re.search(r"4[69]\d\d more|4975 more", page(value).text)


def test_any_name_is_shown_as_it_is(g: sg.Graph) -> None:
    x = sg.placeholder((2,), name=NASTY, requires_grad=True)
    w = sg.Variable(np.ones(2, np.float32), name=NASTY + "w")
    y = sg.sum(sg.exp(x * w)) + sg.sum(sg.identity(x))
    sess = sg.Session(g)
    exe = sess.compile([y, sg.gradients(y, w)[0]], x)
    tape = sess.forward(y, {x: np.zeros(2, np.float32)})
    values = [g, exe, exe.memory, tape.memory, exe.cost, exe.profile(np.zeros(2, np.float32))]
    texts = [page(value).text for value in values]
    assert "<script>alert(\"1\")</script> & \\'x\\'\\n\\x00" in texts[0]
    assert all("\x00" not in text for text in texts)
