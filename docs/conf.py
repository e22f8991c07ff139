"""How Sphinx builds the site: ``make docs`` reads ``docs/`` and writes ``build/docs/``.

Before pages are read, the pictures in them are drawn from the programs that they show (``pictures.py``). Entries of the
reference (``api.py``) and what the compiler makes of programs (``way.py``) are written where blocks stand for them.
Examples run and become pages with their outputs and pictures (``gallery.py``).
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.nodes import TextElement
from sphinx.addnodes import desc_addname, desc_sig_name, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import inspect as sphinx_inspect
from sphinx.util.nodes import make_refnode

import staticgrad
from staticgrad import llms

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "benchmarks")]

import api  # noqa: E402  its folder is on the path now
import figures  # noqa: E402  of ../benchmarks
import gallery  # noqa: E402
import history  # noqa: E402
import pages  # noqa: E402
import pictures  # noqa: E402
import sites  # noqa: E402
import way  # noqa: E402

logging.basicConfig(level=logging.WARNING)  # before a dependency of the theme does, which asks for every INFO

project = "staticgrad"
author = "the staticgrad authors"
release = version = staticgrad.__version__
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx.ext.intersphinx",
    "sphinx_copybutton", "sphinx_gallery.gen_gallery",
]  # fmt: skip
exclude_patterns = ["_made", "recorded", "examples/index.rst"]  # cards on examples.md are the gallery's index

sphinx_gallery_conf = {
    "examples_dirs": str(gallery.SCRIPTS),
    "gallery_dirs": gallery.PAGES.name,
    "filename_pattern": "|".join(rf"/{name}\.py" for name in gallery.TITLE if gallery.runs(name)),
    "reset_modules": ("gallery.begin",),
    "image_scrapers": ("gallery.shown",),
    "capture_repr": (),
    "abort_on_example_error": True,
    "run_stale_examples": True,  # what is shown is what this version computes
    "download_all_examples": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,  # pages say how long the program ran without its picture
    "remove_config_comments": True,
    "inspect_global_variables": False,
    "show_signature": False,
}

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4  # `page.md#a-heading` is a link

SAID = ("Array", "Axis", "DTypeLike", "Order", "ShapeLike", "Size", "Sizes", "TensorLike")  # on reference/signatures.md
autodoc_type_aliases = {name: name for name in SAID}
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|collections|contextlib|os|pathlib|typing|networkx)\..*"),  # other sites
    ("py:class", r"([\w.]+\.)?[A-Z]|PathLike"),  # type variables; of the standard library
    ("py:class", r"Mode|Nonlinearity"),  # strings that the arguments of initializers may be; their docstrings say which
    ("py:class", r"TypeAliasForwardRef"),  # one of SAID in another type
    ("py:class", r"staticgrad\.graph\.sparse\.Read|staticgrad\.compiler\.autodiff\.sparse\.SparsePlaces"),
    ("py:class", r"Reduce"),  # strings that exe.map's docstring lists
    ("py:class", r"Picture"),  # what notebooks show
    ("py:class", r"staticgrad\.nn\.summaries\.NetworkSummary"),  # by the docstring of `sg.nn.summary`
    ("py:class", r"Level"),  # strings that exe.text's docstring lists
    ("py:class", r"Format|InitialState|Optimize"),  # strings that the docstrings of exports list
    ("py:class", r"SignatureName"),  # strings that exe.cfunc's docstring lists
    # Told of where they are made.
    ("py:class", r"staticgrad\.functions\.(function\.ArrayFunction|minimization\.results\.\w+)"),
    (
        "py:class",
        r"staticgrad\.(graph\.scopes\.GradMode|nn\.module\.StateSource)",
    ),  # for nothing but `with`, or as a key
    ("py:class", r"A named tuple|staticgrad\.graph\.(dtypes\.FloatInfo|results\.\w+)"),  # by their docstrings
    ("py:class", r"staticgrad\.runtime\.export\.source\.Exportable"),  # what executables are to `sg.export`
    ("py:class", r"staticgrad\.graph\.naming\.Holder"),  # what modules are, for those who may not know `nn`
]

intersphinx_mapping = sites.inventories(HERE / "_made" / "inventories")

copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor what they answer

html_theme = "furo"
html_title = f"staticgrad {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_theme_options = {"light_logo": "favicon.svg", "dark_logo": "favicon.svg"}
html_copy_source = False
html_show_copyright = False


def draw_pictures(app: Sphinx) -> None:
    """Run the pages that have pictures and draw those into ``docs/_made/``."""
    for page in sorted({HERE / picture.page for picture in pictures.PICTURES}):
        with contextlib.redirect_stdout(io.StringIO()):
            pictures.draw(page, pages.run(page), HERE / "_made")


def write_examples(app: Sphinx) -> None:
    """Write the programs that Sphinx-Gallery runs, and run the notebook."""
    gallery.write_scripts()
    gallery.write_notebook()


def copy_whole_pages(app: Sphinx, error: Exception | None) -> None:
    """Put the pictures that are pages of their own where the frames and links of the built pages look for them, and the
    page for language models where they look for it."""
    shutil.copy(llms.PAGE, app.outdir / "llms.txt")
    for file in sorted((HERE / "_made").glob(f"*.{pictures.WHOLE}")):
        (app.outdir / "_made").mkdir(exist_ok=True)
        shutil.copy(file, app.outdir / "_made")


def fill_in(app: Sphinx, page: str, text: list[str]) -> None:
    """Write what the blocks of a page stand for in their place."""
    if page == way.PAGE:
        text[0] = way.expanded(text[0], HERE / f"{page}.md")
    elif page == "figures":
        text[0] = figures.expanded(text[0], history.load())
    else:
        text[0] = api.expanded(gallery.expanded(text[0]))


MADE_BY_CALLS = ("CFunction", "Executable", "Node", "Tape", "Tensor")  # users never call these classes


def as_written(
    app: Sphinx, what: str, name: str, value: object, options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """A signature with the names of types as the source has them; none for what users do not construct. That of a
    class is its initializer's: of a class with ``__new__``, as modules have, Sphinx would take that."""
    if what == "exception" or name.removeprefix("staticgrad.") in MADE_BY_CALLS:
        return "", None
    if isinstance(value, type) and issubclass(value, staticgrad.nn.Module):
        initializer = sphinx_inspect.signature(value.__init__, bound_method=True, type_aliases=autodoc_type_aliases)
        signature = sphinx_inspect.stringify_signature(
            initializer, show_return_annotation=False, unqualified_typehints=True
        )
    aliases = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return tuple(aliases.sub(r"\1", text) if text else text for text in (signature, result))  # type: ignore[return-value]


def call_it_sg(app: Sphinx, page: nodes.document) -> None:
    """Show public names as users write them, ``sg.nn.Linear``; links and searches find them by their whole names."""
    namespaces = {f"{name.namespace}." for name in api.public()}
    for prefix in page.findall(desc_addname):
        if prefix.astext() in namespaces:
            prefix.children[:] = [desc_sig_name("", prefix.astext().replace("staticgrad", "sg", 1))]


def find_public(
    app: Sphinx, environment: BuildEnvironment, node: pending_xref, shown: TextElement
) -> nodes.reference | None:
    """Where a name leads that is written as in the module that defines it: to the public name of the same object."""
    domain = environment.domains.python_domain
    last = node.get("reftarget", "").rpartition(".")[2]
    found = [name for name, entry in domain.objects.items() if name.rpartition(".")[2] == last and not entry.aliased]
    if node.get("refdomain") != "py" or not found:
        return None
    name = min(found, key=len)
    page, anchor = domain.objects[name].docname, domain.objects[name].node_id
    return make_refnode(app.builder, node["refdoc"], page, anchor, shown, name)


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Give a page its first sentence as description, which searches show below its title."""
    paragraphs = tree.findall(nodes.paragraph) if tree else ()
    texts = (" ".join(each.astext().split()) for each in paragraphs if isinstance(each.parent, nodes.section))
    text = next(texts, "")
    if sentence := re.match(r".+?[.?!](?= |$)|.+", text):
        context["metatags"] += f'<meta name="description" content="{html.escape(sentence[0])}">\n'


def defining_module(app: Sphinx, module: str, name: str) -> str | None:
    """The module in which a function of ops is entered: that of an elementwise one is made by another."""
    homes = {found.full: found.home for found in api.public()}
    home = homes.get(f"{module}.{name}", "")
    return f"staticgrad.{home}" if home.startswith("ops.") else None


def source_with_entries(app: Sphinx, module: str) -> tuple[str, dict[str, tuple[str, int, int]]]:
    """A module's source with the lines of its functions and classes, and of what it assigns, as entries of ops."""
    analyzer = ModuleAnalyzer.for_module(module)
    analyzer.find_tags()
    tags = dict(analyzer.tags)
    for node in ast.parse(analyzer.code).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                tags.setdefault(target.id, ("def", node.lineno, node.end_lineno or node.lineno))
    return analyzer.code, tags


def lead_back(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Lead from sources to the entries of the reference. Sphinx takes one namespace for all names that a module
    defines; where no entry has the name, there is no link."""
    if not page.startswith("_modules/"):
        return
    objects = app.env.domains.python_domain.objects
    namespaces = sorted({name.namespace for name in api.public()}, key=len, reverse=True)

    def link(match: re.Match[str]) -> str:
        space = next(space for space in namespaces if match[1].startswith(f"{space}."))
        found = [f"{other}{match[1].removeprefix(space)}" for other in namespaces]
        names = sorted((name for name in found if name in objects), key=lambda name: (name != match[1], len(name)))
        if not names:
            return ""
        entry = objects[names[0]]
        target = f"{app.builder.get_relative_uri(page, entry.docname)}#{entry.node_id}"
        return f'<a class="viewcode-back" href="{target}">{match[2]}</a>'

    whole = r'<a class="viewcode-back" href="[^"#]*#([^"]+)">(.*?)</a>'
    context["body"] = re.sub(whole, link, context.get("body", ""))


def setup(app: Sphinx) -> None:
    app.connect("viewcode-follow-imported", defining_module)
    app.connect("viewcode-find-source", source_with_entries)
    app.connect("doctree-read", call_it_sg)
    app.connect("missing-reference", find_public)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", lead_back)
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-signature", as_written)
    app.connect("builder-inited", draw_pictures)
    app.connect("builder-inited", write_examples, priority=400)  # before Sphinx-Gallery reads them
    app.connect("build-finished", copy_whole_pages)
