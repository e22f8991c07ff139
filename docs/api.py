"""The reference pages' entries: which public names there are, where each is defined, and what a page lists.

A page lists names by a block that says in which namespace they are and which modules define them:

    ```{names} staticgrad
    ops.elementwise.arithmetic
    ops.elementwise.rounding
    ```

stands for the names of ``sg`` that are defined in these modules of staticgrad, or below them, in alphabetical order;
without modules, for all names of the namespace. What is no function or class has a kind in the place of a module:
``dtypes``, ``constants``, ``modules``. Further blocks: ``{commands}`` is the help of the command line, ``{ops}``
the op table, ``{methods}`` the functions that tensors have as methods.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import staticgrad
from staticgrad.graph.optable import FUNCTIONS, OPS
from staticgrad.ops import DEFINED
from staticgrad.tools import cli

# What users call of the objects that they are given, and of classes that they derive from.
METHODS = {
    "staticgrad.CFunction": "capsule ctypes header low_level_callable raw refresh",
    "staticgrad.Executable": "cfunc cost export map memory profile ready setup text view wait",
    "staticgrad.Graph": "finalize to_networkx variables",
    "staticgrad.OwnOp": "check",
    "staticgrad.Session": "close compile compile_count forward get grad restore run save seed set set_all set_grad"
    " zero_grad",
    "staticgrad.SparseTensor": "lower todense",
    "staticgrad.Tape": "backward close memory",
    "staticgrad.Tensor": "T astype detach dtype grad_fn is_leaf mT name ndim register_hook"
    " register_post_accumulate_grad_hook requires_grad_ reshape retain_grad shape size",
    "staticgrad.nn.Module": "buffers children eval load_state_dict modules named_buffers named_children named_modules"
    " named_parameters parameters state_dict train",
    "staticgrad.nn.ModuleList": "append",
    "staticgrad.optim.Optimizer": "apply_gradients lr minimize slot step step_count",
}

# What users read of them or write in classes of their own, and what needs no example.
ATTRIBUTES = {
    "staticgrad.CFunction": "address executable signature",
    "staticgrad.Executable": "feeds fetches session",
    "staticgrad.Graph": "entries text",
    "staticgrad.Node": "attrs graph inputs name op outputs",
    "staticgrad.SparseTensor": "T indptr nnz",
    "staticgrad.Tensor": "copy cumprod cumsum diagonal dot graph log_softmax op ravel relu requires_grad retains_grad"
    " sigmoid softmax trace device",
    "staticgrad.callbacks.Callback": "on_begin on_end on_epoch on_step",
    "staticgrad.callbacks.EarlyStopping": "best",
    "staticgrad.callbacks.TrainingLoop": "end_epoch epochs step stop",
    "staticgrad.init.Initializer": "make",
    "staticgrad.nn.Module": "extra_repr forward training",
    "staticgrad.optim.EMA": "average copy_to swap update variables",
    "staticgrad.optim.Optimizer": "name update",
    "staticgrad.optim.ParameterGroup": "lr",
}

BLOCK = re.compile(r"^```\{names\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Name:
    """A public name, the namespace that offers it, what it stands for, and the module or kind that it belongs to."""

    full: str
    namespace: str
    value: Any
    home: str


def names_of(place: ModuleType) -> list[str]:
    """The names that a module offers: those that ``dir`` tells."""
    return sorted(name for name in dir(place) if not name.startswith("_"))


@functools.cache
def public() -> tuple[Name, ...]:
    """All public names, those of the modules among them too."""
    return tuple(offered(staticgrad))


def offered(place: ModuleType) -> Iterator[Name]:
    """The public names of a module and of the modules among them, without those that are names of the module around
    it. A module that offers nothing else is a name like others."""
    homes = {id(getattr(FUNCTIONS, name)): module for module, names in DEFINED.items() for name in names.split()}
    for name in names_of(place):
        value = getattr(place, name)
        if inspect.ismodule(value):
            if any(getattr(place, inner, None) is not getattr(value, inner) for inner in names_of(value)):
                yield from (inner for inner in offered(value) if not _is_same(inner, place))
                continue
            home = "modules"
        elif isinstance(value, np.dtype):
            home = "dtypes"
        elif not callable(value):
            home = "constants"
        elif id(inspect.unwrap(value)) in homes:
            home = f"ops.{homes[id(inspect.unwrap(value))]}"
        else:
            home = inspect.unwrap(value).__module__.removeprefix("staticgrad.")
        yield Name(f"{place.__name__}.{name}", place.__name__, value, home)


def _is_same(name: Name, place: ModuleType) -> bool:
    """True if a module offers the same object under that name."""
    return getattr(place, name.full.rpartition(".")[2], None) is name.value


def listed(namespace: str, body: str) -> list[Name]:
    """The names that a block lists."""
    homes = body.split()
    return [
        name for name in public()
        if name.namespace == namespace
        and (not homes or any(name.home == home or name.home.startswith(f"{home}.") for home in homes))
    ]  # fmt: skip


def listed_on(text: str) -> list[str]:
    """The names that the blocks of a page list."""
    return [name.full for match in BLOCK.finditer(text) for name in listed(match[1], match[2])]


def expanded(text: str) -> str:
    """A page with what its blocks stand for: directives of autodoc, methods, the help of commands, the op table."""
    first = {id(inspect.unwrap(name.value)): name.full for name in reversed(public()) if callable(name.value)}

    def entries(match: re.Match[str]) -> str:
        return "```{eval-rst}\n" + "\n".join(entry(name, first) for name in listed(match[1], match[2])) + "```"

    text = BLOCK.sub(entries, text)
    for block, made in (("commands", commands), ("methods", methods), ("ops", ops)):
        if f"```{{{block}}}\n```\n" in text:
            text = text.replace(f"```{{{block}}}\n```\n", made())
    return text


def entry(name: Name, first: dict[int, str]) -> str:
    """The directive for a name; ``first`` has the name under which each object is documented."""
    value = inspect.unwrap(name.value) if callable(name.value) else name.value
    other = first.get(id(value), name.full)
    if other != name.full:
        return f".. py:function:: {name.full}{inspect.signature(value)}\n\n   The same as :func:`{other}`.\n"
    if inspect.ismodule(value):
        return f".. py:data:: {name.full}\n\n   The functions of ``{name.namespace}`` once more, as a module.\n"
    if isinstance(value, np.dtype):
        return f".. py:data:: {name.full}\n\n   The dtype {value.name}, as NumPy has it.\n"
    if not callable(value):
        return f".. py:data:: {name.full}\n   :value: {value!r}\n"
    if not isinstance(value, type):
        return f".. autofunction:: {name.full}\n"
    if issubclass(value, BaseException):
        return f".. autoexception:: {name.full}()\n   :show-inheritance:\n"
    lines = [f".. autoclass:: {name.full}"]
    if members := documented_of(name.full):
        lines.append(f"   :members: {', '.join(members)}")
    return "\n".join(lines) + "\n"


def documented_of(full: str) -> list[str]:
    """The methods and attributes that the entry of a class lists."""
    return sorted(f"{METHODS.get(full, '')} {ATTRIBUTES.get(full, '')}".split())


def functions_of_tensors() -> list[str]:
    """The functions that tensors have as methods."""
    places = {name.full for name in public()}
    own = sorted(name for name, value in vars(staticgrad.Tensor).items() if inspect.isfunction(value))
    return [name for name in own if f"staticgrad.{name}" in places]


def methods() -> str:
    """The functions that tensors have as methods, each as a link."""
    return ", ".join(f"{{py:func}}`~staticgrad.{name}`" for name in functions_of_tensors()) + "\n"


# -- the command line -----------------------------------------------------------------------------------------------


def commands() -> str:
    """The help of each command under a heading, as the parser prints it; that of ``bench`` is the benchmarks' own."""
    parser = cli.commands()
    parsers = {name: sub for action in parser._actions if action.choices for name, sub in dict(action.choices).items()}
    parts = [f"```text\n{parser.format_help()}```\n"]
    for name, sub in parsers.items():
        if sub.add_help:
            parts.append(f"## `staticgrad {name}`\n\n```text\n{sub.format_help()}```\n")
    return "\n".join(parts)


def ops() -> str:
    """The op table: name, kind, dtypes, what the op does."""
    FUNCTIONS.complete()
    rows = ["| op | kind | dtypes | what it does |", "| --- | --- | --- | --- |"]
    for name, op in sorted(OPS.items()):
        doc = re.sub(r"(``.*?``)|([*<_])", lambda m: m[1] or f"\\{m[2]}", op.doc).replace("|", r"\|")
        rows.append(f"| `{name}` | {cli.kind(op)} | {cli.dtypes(op.dtypes)} | {doc} |")
    return "\n".join(rows) + "\n"
