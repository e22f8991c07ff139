"""The pages of the documentation as programs and as links, read without Sphinx.

The fenced blocks of a page run from top to bottom in one namespace: ``python`` as written, ``pycon`` as doctests.
``python docs/pages.py`` lists the addresses outside the site, which nothing else looks at.
"""

from __future__ import annotations

import contextlib
import doctest
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
FENCE = re.compile(r"^(`{3,})(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
# Packages that a page may be about.
OPTIONAL = ("casadi", "flax", "jax", "nutpie", "onnx", "optax", "pymc", "pytensor", "stanli", "torch")
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|<(https?://[^>\s]+)>")

SHOWN = re.compile(r"(?:(?<=^:file: )|(?<=<iframe src=\")|(?<=<a href=\"))[^\s\"]+", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the number of its first line of code in the page, its code."""

    language: str
    line: int
    code: str


def sources() -> list[Path]:
    """The pages of the site."""
    docs = ROOT / "docs"
    return sorted(
        path for path in docs.rglob("*.md") if not {"_made", "examples"} & {*path.relative_to(docs).parts[:-1]}
    )


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, from top to bottom."""
    text = path.read_text(encoding="utf-8")
    return [Block(m[2].strip(), text[: m.start(3)].count("\n") + 1, m[3]) for m in FENCE.finditer(text)]


def needs(path: Path) -> list[str]:
    """The optional packages that the programs of a page, or a module with those beside it, import."""
    code = path.read_text(encoding="utf-8")
    if path.suffix == ".py" and path.parent.parent.name == "bridges":  # a system's own folder
        code = "".join(module.read_text(encoding="utf-8") for module in path.parent.glob("*.py"))
    if path.suffix == ".md":
        code = "".join(block.code for block in blocks(path) if block.language == "python")
    return [name for name in OPTIONAL if re.search(rf"^ *(?:import|from) {name}\b", code, re.MULTILINE)]


def run(path: Path, *, languages: tuple[str, ...] = ("python", "pycon")) -> dict[str, Any]:
    """Run the blocks of a page in an empty folder, beginning with an empty default graph; warnings are errors.

    Lines keep their numbers: a traceback names the page and quotes it.

    Args:
        languages: of the blocks that run.

    Returns:
        The namespace in which they ran.

    Raises:
        AssertionError: a ``pycon`` block printed something else; the message says what, and in which line.
    """
    import staticgrad

    staticgrad.reset_default_graph()
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks(path):
            if block.language not in languages:
                continue
            if block.language == "python":
                code = compile("\n" * (block.line - 1) + block.code, str(path), "exec", dont_inherit=True)
                exec(code, namespace)
            else:
                _compare(block, path, namespace)
    return namespace


def _compare(block: Block, path: Path, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, {}, path.name, str(path), block.line - 1)
    test.globs = namespace
    report: list[str] = []
    if doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False).failed:
        raise AssertionError("".join(report))


# -- links ------------------------------------------------------------------------------------------------------------


def prose(path: Path) -> str:
    """A page's text without its code, fenced or in backticks."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)


def links(path: Path) -> list[str]:
    """Where the links and pictures of a page lead, as written, with the files that its blocks are read from or show."""
    files = [SHOWN.findall(block.code) for block in blocks(path)]
    return [*(match[1] or match[2] for match in LINK.finditer(prose(path))), *(file for some in files for file in some)]


def anchors(path: Path) -> set[str]:
    """What can stand behind ``#`` in a link to a page: its headings, as GitHub and MyST spell them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} +(.*?) *$", text, re.MULTILINE):
        spelt = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        again = sum(1 for anchor in found if re.fullmatch(re.escape(spelt) + r"(-\d+)?", anchor))
        found.add(f"{spelt}-{again}" if again else spelt)
    return found


def external(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Each address outside the site with the page that names it."""
    for path in paths:
        for link in links(path):
            if ":" in link.split("/")[0]:
                yield link, path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    found = sorted(set(external([*sources(), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])))
    print(f"{len(found)} links lead out of the site; nobody has followed them:", file=sys.stderr)
    print("\n".join(f"{link}  ({page})" for link, page in found), file=sys.stderr)
