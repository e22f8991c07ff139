"""Programs that run in a page of the site: WebAssembly and the modules that call it, all inside the page.

A widget is a form ``docs/widgets/<name>.html`` and a module ``<name>.mjs`` beside it. Its page declares the entries,
which are exported and linked when the site is built. Nothing is loaded when the page is read, so that it works from a
file too, where browsers refuse to fetch: the module, its interface and its data are JSON in the page, and the
JavaScript modules are one script. Where there is no ``wasm-ld``, the page says so in the place of the form.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import staticgrad as sg

ROOT = Path(__file__).resolve().parent.parent
WIDGETS = ROOT / "docs" / "widgets"
LINKER = "wasm-ld"
TARGET = "wasm32-simd128"

MISSING = (
    f'<p class="widget-note">This copy of the site was built without <code>{LINKER}</code> (Debian: <code>lld</code>), '
    "so the program is not in this page.</p>\n"
)
NO_SCRIPT = '<noscript><p class="widget-note">The program of this page runs where JavaScript is on.</p></noscript>\n'


def linked(entries: Mapping[str, Any], folder: Path) -> tuple[bytes, str]:
    """The WebAssembly module of some executables, by the names of their entries, and its interface as JSON.

    Args:
        folder: gets what is made on the way.
    """
    report = sg.export(folder / "program.o", entries, target=TARGET)
    state = ["program_initial_state"] if report.interface.state.nbytes else []
    exports = [f"--export={name}" for name in (*entries, *state, "__heap_base")]
    module = folder / "program.wasm"
    subprocess.run([LINKER, "--no-entry", "--strip-all", *exports, folder / "program.o", "-o", module], check=True)
    return module.read_bytes(), report.json()


def script(name: str) -> str:
    """The modules of a widget as one: imports are what stands before, so nothing is left to import."""
    files = (ROOT / "examples" / "wasm" / "loader.mjs", WIDGETS / "plot.mjs", WIDGETS / f"{name}.mjs")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r"^import .*\n|^export ", "", text, flags=re.MULTILINE)


def html(name: str, entries: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What a page shows of a widget.

    Args:
        name: of its files.
        entries: executables by the names under which its module calls them.
        data: what else its module reads, for JSON.
    """
    if shutil.which(LINKER) is None:
        return MISSING
    with tempfile.TemporaryDirectory() as folder:
        code, interface = linked(entries, Path(folder))
    program = {"code": base64.b64encode(code).decode("ascii"), "interface": json.loads(interface), **data}
    text = json.dumps(program, separators=(",", ":")).replace("<", "\\u003c")
    form = (WIDGETS / f"{name}.html").read_text(encoding="utf-8")
    return (
        f'<div class="widget" id="{name}" hidden>\n{form}</div>\n{NO_SCRIPT}'
        f'<script type="application/json" id="{name}-program">{text}</script>\n'
        f'<script type="module">\n{script(name)}</script>\n'
    )
