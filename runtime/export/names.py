"""Names of C and C++: which an export may give to a function, and what it makes of other texts.

The functions of a program share one namespace with a caller's own code and the standard library. So a name may be no
keyword of C or C++, and nothing that a header of theirs defines (``reserved``): the header of an export would not
compile after it, and a program that links the object would lose a function of the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from staticgrad.base.errors import GraphError
from staticgrad.runtime.export.reserved import is_reserved

MODEL_CONSTANTS = ("H", "ALIGNMENT", "STATE_BYTES", "STATE_SEED", "STATE_RUN")  # after the name of a model
ENTRY_CONSTANTS = ("WORKSPACE_BYTES", "STACK_BYTES", "INS", "OUTS")  # after that of an entry
ON_THREADS = "_on_threads"  # after the name of a function that is given threads
IDENTIFIER = re.compile(r"[A-Za-z]\w*", re.ASCII)


def check_identifier(name: str) -> str:
    """A name that C and C++ allow for a function of its own.

    Raises:
        GraphError: it is none.
    """
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise GraphError(f"export: expected a name that C allows (letters, digits, _), actual {name!r}")
    if is_reserved(name):
        raise GraphError(f"export: expected a name that C allows, actual {name!r}, which C or C++ have given away")
    return name


def identifier(text: str) -> str:
    """A name for a function of C that resembles a text."""
    name = word(text)
    return f"{name}_" if is_reserved(name) else name


def word(text: str) -> str:
    """A text as part of a name."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return plain if plain[:1].isalpha() else f"n{plain}"


def initial_name(model: str) -> str:
    """The name of the constant with the state as it begins."""
    return f"{model}_initial_state"


def fixed_names(model: str, entries: Iterable[str]) -> dict[str, str]:
    """The names in an object and its header that are made of the names of the model and of its entries alone, and which
    of them they are of.

    Raises:
        GraphError: two of them are the same.
    """
    found: dict[str, str] = {}

    def add(owner: str, *names: str) -> None:
        for name in names:
            if name in found:
                both = " and ".join(dict.fromkeys((repr(found[name]), repr(owner))))
                raise GraphError(f"export: expected other names than {both}: in C both would have {name!r}")
            found[name] = owner

    add(model, initial_name(model), *(f"{model.upper()}_{what}" for what in MODEL_CONSTANTS))
    for entry in entries:
        add(entry, entry, f"{entry}{ON_THREADS}", *(f"{entry.upper()}_{what}" for what in ENTRY_CONSTANTS))
    return found
