"""The documentation of other projects, whose names are links where the inventories of these sites can be had."""

from __future__ import annotations

import urllib.request
from pathlib import Path

SITES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "matplotlib": "https://matplotlib.org/stable",
}


def inventories(folder: Path, seconds: float = 3.0) -> dict[str, tuple[str, str]]:
    """The sites whose inventories are in the folder, each with its address and file; missing ones are fetched.

    After a site that does not answer within ``seconds`` no other is asked: names of theirs stay plain text.
    """
    found = {}
    folder.mkdir(parents=True, exist_ok=True)
    reached = True
    for name, site in SITES.items():
        file = folder / f"{name}.inv"
        if reached and not file.exists():
            try:
                with urllib.request.urlopen(f"{site}/objects.inv", timeout=seconds) as answer:
                    content = answer.read()
                if content.startswith(b"# Sphinx inventory"):
                    file.write_bytes(content)
            except OSError:
                reached = False
        if file.exists():
            found[name] = (site, str(file))
    return found
