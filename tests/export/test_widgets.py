"""The programs that run in pages of the site: in a browser they train, and give Python's figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pictures
import pytest
import widget
from source_tree import ROOT
from support.browser import NO_BROWSER, Tab, browser, tab

import staticgrad as sg

TRAIN, GREEKS = (ROOT / "docs" / "learn" / f"{name}-here.md" for name in ("train", "greeks"))
PHONE = 390  # pixels across

pytestmark = pytest.mark.wide
in_a_browser = pytest.mark.skipif(
    browser() is None or shutil.which(widget.LINKER) is None,
    reason=NO_BROWSER if browser() is None else f"no {widget.LINKER}: make cross (apt-get install lld)",
)


class Built:
    """A page that shows its widget and nothing else, a file, and what the program of its site's page has left."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.found = pages.run(page)
        (shown,) = pictures.draw(page, self.found, folder)
        self.body = shown.read_text(encoding="utf-8")
        self.file = folder / "page.html"
        self.write(self.body)

    def write(self, body: str) -> None:
        css = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        )
        self.file.write_text(
            f'<!doctype html><html lang="en">{head}<style>{css}</style><body data-theme="auto">{body}</body></html>',
            encoding="utf-8",
        )


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(TRAIN, tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def greeks(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(GREEKS, tmp_path_factory.mktemp("greeks"))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Tab]:
    with tab(tmp_path) as opened:
        yield opened


def state(here: Tab) -> dict[str, float]:
    """What the training page says of itself."""
    here.wait("document.querySelector('#train')?.dataset.steps")
    found = here.value("({...document.querySelector('#train').dataset})")
    return {name: float(value or "nan") for name, value in found.items()}


def move(here: Tab, slider: str, value: float) -> None:
    here.value(
        f"(() => {{ const slider = document.querySelector('[name={slider}]'); slider.value = {value}; "
        "slider.dispatchEvent(new Event('input')); })()"
    )


@in_a_browser
def test_the_page_trains_the_net(train: Built, here: Tab) -> None:
    here.open(f"{train.file.as_uri()}?steps=600")
    found = state(here)
    assert (found["steps"], found["points"]) == (600, 240)
    assert found["loss"] < 0.05
    assert found["right"] > 0.98
    assert "Step 600, loss" in here.value("document.querySelector('#train-said').textContent")
    assert here.complaints == []


@in_a_browser
@pytest.mark.parametrize("steps", [1, 40])
def test_the_page_has_the_losses_of_the_session(steps: int, train: Built, here: Tab) -> None:
    here.open(f"{train.file.as_uri()}?steps={steps}")
    page, seed, loss = train.found, 1, np.float32(0)
    with sg.Session(page["g"], seed=0) as session:
        step = session.compile([page["loss"], page["train"]], {page["x"]: (32, 2), page["t"]: (32,)})
        for _ in range(steps):
            chosen = []
            for _ in range(32):  # the points that the page draws
                seed = (seed * 1664525 + 1013904223) % 2**32
                chosen.append(seed * len(page["points"]) >> 32)
            loss, _ = step(page["points"][chosen], page["labels"][chosen])
    np.testing.assert_allclose(state(here)["loss"], loss, rtol=1e-4)


@in_a_browser
def test_buttons_sliders_and_clicks_do_what_they_say(train: Built, here: Tab) -> None:
    here.open(train.file.as_uri())
    first = here.value("document.querySelector('canvas').toDataURL()")
    assert state(here)["steps"] == 0
    move(here, "batch", 0)
    move(here, "lr", -3)
    outputs = here.value("[...document.querySelectorAll('output')].map((output) => output.textContent)")
    assert outputs == ["0.001", "8", "5"]
    here.click("[name=run]")
    here.wait("document.querySelector('#train').dataset.steps > 20")
    here.click("[name=run]")
    paused = state(here)["steps"]
    here.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert state(here)["steps"] == paused
    here.click("canvas", 0.25, 0.75)
    here.click("[name=class][value='1']")
    here.click("canvas", 0.75, 0.25)
    assert state(here)["points"] == 242
    here.click("[name=clear]")
    assert here.value("document.querySelector('#train-said').textContent").startswith("There are no points")
    here.click("[name=run]")  # nothing to train on
    here.click("[name=run]")
    here.click("[name=spirals]")
    here.click("[name=again]")
    assert (state(here)["steps"], state(here)["points"]) == (0, 240)
    assert here.value("document.querySelector('canvas').toDataURL()") == first
    assert here.complaints == []


def shown(here: Tab) -> dict[str, list[float]]:
    """The table of Greeks, by the headings of its columns."""
    here.wait("document.querySelector('#greeks data')?.value")
    heads = here.value("[...document.querySelectorAll('#greeks th')].map((head) => head.textContent)")
    rows = here.value(
        "[...document.querySelectorAll('#greeks tbody tr')].map((row) => [...row.cells].map("
        "(cell) => Number(cell.querySelector('data')?.value ?? cell.textContent)))"
    )
    return dict(zip(heads, map(list, zip(*rows, strict=True)), strict=True))


@in_a_browser
def test_the_page_has_the_greeks_of_python(greeks: Built, here: Tab) -> None:
    here.open(greeks.file.as_uri())
    shown(here)
    spots, program = greeks.found["spots"], greeks.found["greeks"]
    settings = {
        "strike": 100, "rate": 0.03, "maturity": 1, "volatility": 0.2, "vol_of_vol": 0.5, "correlation": -0.7
    }  # fmt: skip
    for moved in ({}, {"volatility": 0.6, "maturity": 3.0}, {"strike": 130, "correlation": 0.9, "rate": 0.1}):
        settings |= moved
        for name, value in moved.items():
            move(here, name, value)
        wanted = {"price": spots, **program(spots, *(float(settings[name]) for name in greeks.found["names"]))}
        for name, values in shown(here).items():
            np.testing.assert_allclose(values, wanted[name][::10], rtol=1e-9, atol=1e-9, err_msg=name)
    assert "µs a call" in here.value("document.querySelector('#greeks-said').textContent")
    assert here.complaints == []


@in_a_browser
@pytest.mark.parametrize("name", ["train", "greeks"])
def test_a_widget_fits_on_a_phone_and_follows_the_colours(name: str, here: Tab, request: pytest.FixtureRequest) -> None:
    here.open(request.getfixturevalue(name).file.as_uri(), width=PHONE, dark=True)
    here.wait(f"document.querySelector('#{name} .widget-said').textContent")
    assert here.value("document.documentElement.scrollWidth") <= PHONE
    unnamed = f"[...document.querySelectorAll('#{name} input')].filter((input) => !input.labels[0]?.textContent.trim())"
    assert here.value(f"{unnamed}.length") == 0
    assert here.value(f"document.querySelectorAll('#{name} canvas:not([role=img])').length") == 0
    dark = here.value(f"document.querySelector('#{name} canvas').toDataURL()")
    here.value("document.body.dataset.theme = 'light'")  # as the button of the site does
    here.wait(f"document.querySelector('#{name} canvas').toDataURL() !== {json.dumps(dark)}")
    assert here.complaints == []


@in_a_browser
def test_a_program_that_does_not_load_is_said_in_the_page(greeks: Built, here: Tab, tmp_path: Path) -> None:
    broken = Built.__new__(Built)
    broken.file = tmp_path / "broken.html"
    broken.write(greeks.body.replace('"code":"AGFzb', '"code":"AAAAA'))
    here.open(broken.file.as_uri())
    here.wait("document.querySelector('#greeks [role=alert]')")
    assert "does not run" in here.value("document.querySelector('#greeks').textContent")


def test_without_a_linker_the_page_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(widget, "LINKER", "no-such-linker")
    unused: dict[str, Any] = {"points": np.zeros((1, 2)), "labels": np.zeros(1), "GRID": 1, "entries": {}}
    (drawn,) = pictures.draw(TRAIN, unused, tmp_path)
    assert drawn.read_text(encoding="utf-8") == widget.MISSING
