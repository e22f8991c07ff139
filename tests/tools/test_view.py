"""The page that shows a program in a browser: its figures are the program's, and no text in it is taken for a tag."""

from __future__ import annotations

import html
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import NO_BROWSER, browser

import staticgrad as sg
from staticgrad.runtime.measured.view import SCRIPTS
from staticgrad.tools import cli

EVIL = "</script><!-- <script>alert(1)</script> & \u2028"


class Page(HTMLParser):
    """The elements of a page, and what its data element holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(dict(attrs).get("id") or tag)
        self.scripts += tag == "script"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "data":
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self.open.append(f"/{tag}")

    @property
    def data(self) -> Any:
        return json.loads(self.text)


def training_step(name: str = "x") -> tuple[sg.Executable, list[np.ndarray[Any, Any]]]:
    with sg.Graph() as graph:
        x = sg.placeholder((16, 8), name=name)
        t = sg.placeholder((16,), sg.int64, name="t")
        hidden = sg.tanh(sg.nn.Linear(8, 32)(x))
        hidden.retain_grad()
        loss = sg.nn.cross_entropy(sg.nn.Linear(32, 4)(hidden), t)
        train = sg.optim.Adam(1e-3).minimize(loss)
    step = sg.Session(graph, num_threads=1).compile([loss, train], [x, t])
    return step, [np.ones((16, 8), np.float32), np.zeros(16, np.int64)]


def viewed(step: sg.Executable, path: Path, **options: Any) -> Page:
    step.view(path, **options)
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_has_the_plan(tmp_path: Path) -> None:
    step, _ = training_step()
    data = viewed(step, tmp_path / "step.html").data
    assert (data["arena"], data["bound"]) == (step.memory.arena_bytes, step.memory.lower_bound_bytes)
    assert [k["flops"] for k in data["kernels"]] == [k.flops for k in step.cost.kernels]
    buffers = [m for m in data["memories"] if m["kind"] == "buffer"]
    assert [(b["name"], b["offset"], b["first"], b["last"]) for b in buffers] == [
        (b.name, b.offset, b.first, b.last) for b in step.memory.buffers
    ]
    assert {(m["kind"], m["name"]) for m in data["memories"]} >= {
        ("feed", "x"), ("feed", "t"), ("variable", "linear.weight"), ("result", step.fetches[0].name)
    }  # fmt: skip
    assert "\n".join(k["text"] for k in data["kernels"]) == step.text("kernels")


def test_buffers_live_as_long_as_kernels_touch_them(tmp_path: Path) -> None:
    """Who reads and writes a buffer is found apart from its life: both must tell the same."""
    step, _ = training_step()
    data = viewed(step, tmp_path / "step.html").data
    touching: dict[int, list[int]] = {}
    for number, kernel in enumerate(data["kernels"]):
        for memory in (*kernel["reads"], *kernel["writes"]):
            touching.setdefault(memory, []).append(number)
    buffers = [(n, m) for n, m in enumerate(data["memories"]) if m["kind"] == "buffer" and "scratch" not in m["why"]]
    assert len(buffers) > 5
    for number, buffer in buffers:
        assert (min(touching[number]), max(touching[number]) + 1) == (buffer["first"], buffer["last"])


def test_kernels_and_buffers_lead_to_the_users_lines(tmp_path: Path) -> None:
    step, _ = training_step()
    data = viewed(step, tmp_path / "step.html").data
    found = {item.get("line") for item in (*data["kernels"], *data["memories"])} - {None}
    lines = {data["lines"][number]["text"] for number in found}
    assert any("cross_entropy" in line for line in lines)
    assert {line["file"] for line in data["lines"]} == {__file__}


def test_the_profile_and_the_prices_are_shown_if_there_are_any(tmp_path: Path) -> None:
    step, arrays = training_step()
    plain = viewed(step, tmp_path / "plain.html").data
    assert plain["calls"] is None
    assert {kernel["seconds"] for kernel in plain["kernels"]} == {None}
    profile = step.profile(*arrays)
    timed = viewed(step, tmp_path / "timed.html", profile=profile).data
    assert [kernel["seconds"] for kernel in timed["kernels"]] == [kernel.seconds for kernel in profile.kernels]
    with sg.Graph() as graph:
        x = sg.placeholder((4,), name="x", requires_grad=True)
        shown = sg.print(sg.exp(x), "seen")
    printing = sg.Session(graph).compile(shown, x)
    assert any("print" in price["what"] for price in viewed(printing, tmp_path / "print.html").data["prices"])


def test_texts_of_users_are_never_tags(tmp_path: Path) -> None:
    step, _ = training_step(EVIL)
    page = viewed(step, tmp_path / "evil.html")
    assert page.scripts == 1 + len(SCRIPTS)
    assert EVIL in {memory["name"] for memory in page.data["memories"]}


def test_without_a_path_a_notebook_shows_the_page(tmp_path: Path) -> None:
    step, _ = training_step()
    shown = step.view()
    step.view(tmp_path / "step.html")
    assert shown is not None
    (framed,) = re.findall(r'<iframe srcdoc="([^"]*)"', shown._repr_html_())
    assert html.unescape(framed) == (tmp_path / "step.html").read_text(encoding="utf-8")
    assert repr(shown) == "<picture: notebooks show it; elsewhere give a path to write it to>"


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    step, _ = training_step()
    step.view(tmp_path / "step.html")
    text = (tmp_path / "step.html").read_text(encoding="utf-8")
    assert "src=" not in text.split("<script>")[0]
    assert "<link" not in text


def test_the_command_writes_the_page_of_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((64, 64), name="x")
        (sg.exp(x) @ x).sum()
    (tmp_path / "g.txt").write_text(str(graph), encoding="utf-8")
    assert cli.main(["view", str(tmp_path / "g.txt"), "-o", str(tmp_path / "out.html")]) == 0
    assert "kernels" in capsys.readouterr().out
    data = Page((tmp_path / "out.html").read_text(encoding="utf-8")).data
    assert data["title"] == "g.txt"
    assert any(kernel["family"] == "contraction" for kernel in data["kernels"])


@pytest.mark.slow
def test_a_browser_shows_it_without_a_complaint(tmp_path: Path) -> None:
    found = browser()
    if found is None:
        pytest.skip(NO_BROWSER)
    step, arrays = training_step(EVIL)
    path = tmp_path / "step.html"
    step.view(path, profile=step.profile(*arrays))
    command = [
        found, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom",
        "--enable-logging=stderr", f"{path.as_uri()}#kernel:2",
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert 'data-ready="true"' in run.stdout
    assert "<h2>2: " in run.stdout  # the kernel that was chosen in the address
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
