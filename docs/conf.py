"""How Sphinx builds the site: ``make docs`` reads ``docs/`` and writes ``build/docs/``.

Before pages are read, the pictures in them are drawn from the programs that they show (``pictures.py``).
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from sphinx.application import Sphinx

import staticgrad

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402  its folder is on the path now
import pictures  # noqa: E402

project = "staticgrad"
author = "the staticgrad authors"
release = version = staticgrad.__version__
extensions = ["myst_parser"]
exclude_patterns = ["_made"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4  # `page.md#a-heading` is a link

html_theme = "furo"
html_title = f"staticgrad {release}"
html_copy_source = False
html_show_copyright = False


def draw_pictures(app: Sphinx) -> None:
    """Run the pages that have pictures and draw those into ``docs/_made/``."""
    for page in sorted({HERE / picture.page for picture in pictures.PICTURES}):
        with contextlib.redirect_stdout(io.StringIO()):
            pictures.draw(page, pages.run(page), HERE / "_made")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", draw_pictures)
