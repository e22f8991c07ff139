"""The built site: links lead to what is there, browsers complain of nothing, searches find the page."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import gallery
import pages
import pytest
from source_tree import ROOT

SITE = ROOT / "build" / "docs"
SEARCH = ROOT / "tests" / "support" / "search.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPENED = (  # of every kind of page one
    "index", "tasks", "examples", "examples/kalman", "examples/stan_schools", "examples/notebook", "learn/1-regression",
    "guides/memory", "guides/viewer", "guides/notebooks", "ways-in/jax", "ways-out/export-wasm", "reference/optim",
    "reference/ops", "internals/way", "genindex", "search.html?q=optimizer",
)  # fmt: skip
FOUND = {  # words that users search by, and the page that shall be among the first three
    "gradient clipping": "guides/training",
    "clip gradients": "guides/training",
    "early stopping": "guides/training",
    "Greeks": "examples/numpy_monte_carlo",
    "mini-batch": "learn/1-regression",
    "data loader": "learn/1-regression",
    "hessian": "reference/derivatives",
    "memory leak": "guides/memory",
    "checkpoint": "guides/names-and-checkpoints",
    "gradient checkpointing": "guides/memory",
    "learning rate schedule": "guides/training",
    "batch size": "guides/sizes",
    "jit": "guides/which-call",
    "vmap": "reference/derivatives",
    "GPU": "index",
    "dropout": "reference/nn-functions",
    "save model": "guides/names-and-checkpoints",
    "quantization": "ways-in/onnx",
    "WebAssembly": "ways-out/export-wasm",
    "random seed": "reference/random",
    "mixed precision": "reference/dtypes",
    "NaN": "guides/debugging",
}

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def site() -> Path:
    if not (SITE / "index.html").exists():
        pytest.skip("make docs builds the site")
    sources = [*pages.sources(), *(ROOT / "docs").glob("*.py"), *(ROOT / "docs" / "_static").iterdir()]
    if max(path.stat().st_mtime for path in sources) > (SITE / "searchindex.js").stat().st_mtime:
        pytest.skip("the site is older than its sources: make docs builds it anew")
    return SITE


class Page(HTMLParser):
    """What a page refers to, and the anchors in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("id", "name") and tag != "meta":
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.add(value)


def broken(site: Path) -> Iterator[str]:
    """Each link or resource of a page, and each file that a style sheet names, that is not there."""
    found = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in found.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link}, no such file"
            elif parts.fragment and target in found and unquote(parts.fragment) not in found[target].anchors:
                yield f"{path.relative_to(site)}: {link}, no such place"
    for sheet in site.rglob("*.css"):
        for link in re.findall(r"url\([\"']?([^\"')]+)", sheet.read_text(encoding="utf-8")):
            if not link.startswith(("data:", "#", "http")) and not (sheet.parent / urlsplit(link).path).exists():
                yield f"{sheet.relative_to(site)}: {link}, no such file"


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    assert not list(broken(site))


def test_a_broken_link_of_each_kind_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">1</a><a href="#gone">2</a><a href="b.html#x">3</a><a href="a.html#here">4</a>'
        '<img src="no.svg"><a href="https://example.org/none">5</a>',
        encoding="utf-8",
    )
    (tmp_path / "s.css").write_text("a { background: url('no.png') }", encoding="utf-8")
    assert sorted(broken(tmp_path)) == [
        "a.html: #gone, no such place", "a.html: b.html#x, no such file", "a.html: no.svg, no such file",
        "s.css: no.png, no such file",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


class Served(http.server.ThreadingHTTPServer):
    """A folder served on a free port, and what was asked for in vain."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.missing: list[str] = []
        missing = self.missing

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                missing.append(self.path)
                super().send_error(code, message, explain)

        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))

    def __enter__(self) -> Served:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def complaints(browser: str, folder: Path, names: tuple[str, ...], profile: Path) -> list[str]:
    """The errors and warnings that pages write to the console, and what they ask for that is not there."""
    with Served(folder) as server:
        found = []
        for name in names:
            address = f"http://127.0.0.1:{server.server_port}/{name if '.html' in name else name + '.html'}"
            command = [
                browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                "--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", "--dump-dom", address,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            assert "<body" in done.stdout, f"{name} was not shown"
            found += [f"{name}: {line}" for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return [*found, *(path for path in server.missing if path != "/favicon.ico")]


@pytest.mark.parametrize("names", [OPENED[::2], OPENED[1::2]], ids=["some", "others"])
def test_browsers_show_the_site_without_a_complaint(
    browser: str, site: Path, names: tuple[str, ...], tmp_path: Path
) -> None:
    assert not complaints(browser, site, names, tmp_path)


def test_complaints_of_a_browser_are_heard(browser: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "bad.html").write_text(
        "<html><body><img src='gone.svg'><script>undefined_name()</script></body></html>", encoding="utf-8"
    )
    heard = complaints(browser, site, ("bad",), tmp_path / "profile")
    assert any("undefined_name is not defined" in line for line in heard)
    assert "/gone.svg" in heard


@pytest.fixture(scope="module")
def searched(site: Path) -> dict[str, list[str]]:
    """The pages that the site's own search lists for each of the words, best first."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    command = ["node", str(SEARCH), str(site), *FOUND]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return dict(zip(FOUND, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("words", FOUND)
def test_a_search_finds_the_page(words: str, searched: dict[str, list[str]]) -> None:
    first = list(dict.fromkeys(searched[words]))[:3]
    assert FOUND[words] in first


def test_every_example_has_a_page_with_its_picture_and_output(site: Path) -> None:
    for name, title in gallery.TITLE.items():
        text = (site / "examples" / f"{name}.html").read_text(encoding="utf-8")
        assert f"<h1>{title}" in re.sub(r"[’]", "'", text), name
        assert 'class="sphx-glr-script-out' in text, name
        assert "It ran for" in text or "it ran for" in text, name
        assert f"{name}.svg" in text or f"sphx_glr_{name}_001.svg" in text, name
