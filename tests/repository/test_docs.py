"""The pages of the documentation and the README: their programs run, their links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import api
import gallery
import pages
import pictures
import pytest
import sites
import way
from source_tree import ROOT

DOCS = ROOT / "docs"
PROGRAMS = [ROOT / "README.md", ROOT / "staticgrad" / "llms.md", *pages.sources()]
TEXTS = [*PROGRAMS, ROOT / "ARCHITECTURE.md"]
NOT_RUN = {"text", "sh"}
NEEDS = {"docs/ways-in/pymc.md": "support.pymc_models"}  # what has to be imported first, and may be missing


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if name(path) == "README.md" else [pytest.mark.wide]) for path in PROGRAMS],
    ids=name,
)
def test_the_programs_on_a_page_run(path: Path, tmp_path: Path) -> None:
    if name(path) in NEEDS:
        pytest.importorskip(NEEDS[name(path)], exc_type=ImportError)
    for package in pages.needs(path):
        pytest.importorskip(package)
    namespace = pages.run(path)
    for picture in pictures.draw(path, namespace, tmp_path):
        assert picture.stat().st_size > 30, f"{picture.name} is empty"


MIXED = [path for path in PROGRAMS if {"python", "pycon"} <= {block.language for block in pages.blocks(path)}]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if name(path) != "docs/learn/2-network.md" else []) for path in MIXED],
    ids=name,
)
def test_the_programs_on_a_page_run_without_its_sessions(path: Path) -> None:
    """Who pastes the blocks of code one after the other leaves out what is shown as typed at a prompt."""
    for package in pages.needs(path):
        pytest.importorskip(package)
    pages.run(path, languages=("python",))


def test_a_failing_block_is_shown_by_page_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        pages.run(page)
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.filename, last.lineno, last.line) == (str(page), 5, "assert x == 2")


def test_an_example_with_another_result_is_shown_by_page_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\nThen\n```pycon\n>>> x\n1\n>>> x + 1\n3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=rf'(?s)File "{re.escape(str(page))}", line 8.*Expected:\s+3\s+Got:\s+2'):
        pages.run(page)


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_every_block_says_what_it_is(path: Path) -> None:
    """A block in a language that nothing knows would look like a program that runs, and not be run."""
    fences = re.findall(r"^\s*```.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(pages.blocks(path)), f"{name(path)}: a fence that is indented, nested or not closed"
    for block in pages.blocks(path):
        known = {"python", "pycon", *NOT_RUN}
        assert block.language in known or re.fullmatch(r"\{[\w-]+\}.*", block.language), f"{name(path)}:{block.line}"


def entries(page: Path) -> set[Path]:
    """The pages that the tables of contents of a page name."""
    found: set[Path] = set()
    for block in pages.blocks(page):
        if block.language == "{toctree}":
            for line in block.code.splitlines():
                if line and not line.startswith(":"):
                    found |= set(page.parent.glob(f"{line}.md"))
    return found


def test_every_page_is_reached_from_the_first() -> None:
    reached: set[Path] = set()
    ahead = {DOCS / "index.md"}
    while ahead:
        reached |= ahead
        ahead = {entry for page in ahead for entry in entries(page)} - reached
    assert set(pages.sources()) == reached - {gallery.PAGES / "notebook.md"}  # which a build has made


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    made = {DOCS / "_made" / picture.name for picture in pictures.PICTURES}
    made |= {gallery.PAGES / "notebook.md", *(gallery.PAGES / f"{name}.rst" for name in EXAMPLES)}
    for link in pages.links(path):
        if ":" in link.split("/")[0]:
            parts = urlsplit(link)
            assert parts.scheme == "https", f"{name(path)}: {link}"
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), f"{name(path)}: {link}"
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists() or target in made, f"{name(path)} links to {link}: no such file"
        assert not anchor or anchor in pages.anchors(target), f"{name(path)} links to {link}: no such heading"


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.name)
def test_every_picture_is_shown(picture: pictures.Picture) -> None:
    assert (DOCS / "_made" / picture.name).as_posix() in {
        (DOCS / picture.page).parent.joinpath(link).resolve().as_posix() for link in pages.links(DOCS / picture.page)
    }


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    reference = [path for path in pages.sources() if path.parent.name == "reference"]
    listed = Counter(name for path in reference for name in api.listed_on(path.read_text(encoding="utf-8")))
    names = {name.full for name in api.public()}
    missing, twice = names - listed.keys(), {name for name, count in listed.items() if count > 1}
    assert not missing, f"name the module of {sorted(missing)} in a block of a page in docs/reference/"
    assert not twice, f"on several pages: {sorted(twice)}"


EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def test_every_example_is_a_card_of_the_gallery_with_a_picture_and_a_sentence() -> None:
    page = gallery.expanded((DOCS / "examples.md").read_text(encoding="utf-8"))
    cards = re.findall(
        r"^:::\{container\} card\n\[!\[.+\]\((\S+)\)\]\((\S+)\)\n\n\[(.+)\]\(\2\)\n\n(.+[.?])\n:::$", page, re.MULTILINE
    )
    assert sorted(Path(target).stem for _, target, _, _ in cards) == EXAMPLES == sorted(gallery.PICTURES)
    for thumbnail, target, title, sentence in cards:
        assert Path(target).stem in thumbnail
        assert len(title) < 30
        assert len(sentence) > 40
    listed = re.findall(r"^examples/(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted([*EXAMPLES, "notebook"])


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_its_program_below_its_title_in_the_gallery(name: str) -> None:
    made, source = (ast.parse(text) for text in (gallery.script(name), gallery.source(name)))
    assert (ast.get_docstring(made) or "").startswith(f"{gallery.TITLE[name]}\n===")
    assert ast.dump(ast.Module(made.body[1:], [])) == ast.dump(ast.Module(source.body[1:], []))


@pytest.mark.parametrize("name", sorted(path.stem for path in gallery.RECORDED.glob("*.json")))
def test_what_is_recorded_of_an_example_is_of_its_source(name: str) -> None:
    """If not: run ``python docs/gallery.py NAME`` where the packages are installed that it needs."""
    assert gallery.recorded(name)["source"] == gallery.digest(name)
    assert (gallery.RECORDED / f"{name}.svg").stat().st_size > 1000


def test_what_needs_other_systems_is_recorded() -> None:
    needing = {name for name in EXAMPLES if pages.needs(ROOT / "examples" / f"{name}.py")}
    assert needing == {path.stem for path in gallery.RECORDED.glob("*.json")}


def test_a_picture_is_drawn_from_the_variables_of_main(tmp_path: Path) -> None:
    script = tmp_path / "newton.py"
    script.write_text("norms = [3.0]\ndef main():\n    norms = [1.0, 0.1]\n\nmain()\n", encoding="utf-8")
    watch = gallery.Watch(str(script))
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), {"__name__": "__main__"})
    _, run = watch.end()
    assert run["norms"] == [1.0, 0.1]
    pytest.importorskip("matplotlib")
    gallery.draw("newton", run, tmp_path / "newton.svg")
    assert "length of the gradient" in (tmp_path / "newton.svg").read_text(encoding="utf-8")


def test_the_notebook_is_a_page_with_what_its_cells_show() -> None:
    page = gallery.notebook_page()
    assert page.startswith("# ")
    assert page.count("```python\n") > page.count('<div class="shown">') > 3
    assert "% are right" in page


def test_a_site_out_of_reach_is_asked_once_and_its_names_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def unreachable(address: str, timeout: float) -> None:
        asked.append((address, timeout))
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    assert sites.inventories(tmp_path, seconds=0.5) == {}
    assert asked == [("https://docs.python.org/3/objects.inv", 0.5)]


def test_an_inventory_is_fetched_once_and_nothing_else_is_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(b"<html>" if "scipy" in address else b"# Sphinx inventory version 2")

    monkeypatch.setattr("urllib.request.urlopen", answer)
    first = sites.inventories(tmp_path)
    assert first.keys() == sites.SITES.keys() - {"scipy"}
    assert first["numpy"] == (sites.SITES["numpy"], str(tmp_path / "numpy.inv"))
    assert sites.inventories(tmp_path) == first
    assert len(asked) == len(sites.SITES) + 1  # scipy once more


WAY = DOCS / f"{way.PAGE}.md"


def test_the_levels_of_a_program_s_way_are_the_stages_of_the_pipeline() -> None:
    """Each row of the docstring is a heading of the page with a block, in order, and names a module that exists."""
    page = WAY.read_text(encoding="utf-8")
    rows = re.findall(r"^    \S.*$", way.pipeline.__doc__ or "", re.MULTILINE)
    stages = [stage.name for stage in way.stages()]
    assert len(stages) == len(rows)
    assert set(way.STEPS) < set(stages)
    assert ["Declaration", *way.levels()] == re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert way.levels() == re.findall(r"^## (.+)\n\n(?:.+\n)+\n```\{way\} \1\n```$", page, re.MULTILINE)
    for stage in way.stages():
        assert (ROOT / "compiler" / stage.place).exists(), f"{stage.name}: no {stage.place}"


@pytest.mark.wide
def test_a_program_s_way_has_a_text_of_every_level_of_every_program() -> None:
    found = pages.run(WAY)
    made = {name: way.texts(found[name]) for name in way.PROGRAMS}
    for name, texts in made.items():
        assert set(texts) == set(way.levels()), name
        for level, text in texts.items():
            assert text.strip(), f"{name}: nothing of {level}"
    for level in way.levels():
        idle = [re.fullmatch("none|as after .*|memory_budget of .*", texts[level]) for texts in made.values()]
        assert not all(idle), f"{level}: it changes none of the programs"
    page = way.expanded(WAY.read_text(encoding="utf-8"), WAY)
    assert "{way}" not in page
    for title in way.PROGRAMS.values():
        assert len(re.findall(rf"^(?::caption: {title}|\*{title}\*: .+)$", page, re.MULTILINE)) == len(way.levels())


def test_a_stage_shows_of_a_step_what_no_stage_before_has_shown() -> None:
    one, other, planned = "0: row a(x)\n    body", "1: row b(x)\n    body", "0: row a(x)\n    body\n    plan: p"
    made = {"lower": [one, other], "inline": [one, other], "prepare": [], "plan kernels": [planned, other]}
    assert way.steps_texts(made) == {
        "lower": "0: row a(x)\n    body\n1: row b(x)\n    body",
        "inline": "as after lower",
        "prepare": "none",
        "plan kernels": "0: row a(x)\n    plan: p\n1: row b(x)",
    }


def test_a_long_text_is_shortened_by_a_rule_that_counts() -> None:
    assert way.shortened("a\n" * way.LINES) == "a\n" * way.LINES
    assert way.shortened("a\n" * (way.LINES + 3)) == "a\n" * way.LINES + "… 3 more lines"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed: make docs does that, and builds the site")
    options = ["-q", "-W", "--keep-going", "-n", "-E", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    layers = (tmp_path / "site" / "reference" / "nn-layers.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]*>|\s+", " ", layers)
    assert re.search(r"sg\.nn\. +Linear +\( +in_features +: +int", shown), "signatures are not those of initializers"
