"""Checkpoints: a session's state as a safetensors file.

The file holds every variable of the graph under its name, and in its metadata the seed and how many runs have drawn
random numbers, so that training resumes bit for bit, and a digest of all that; or chosen variables alone. It is
replaced as a whole, and on the way back everything is checked before anything changes.

Of variables whose names follow the order of declaration the metadata also say what line declared them, so that values
are not taken for those of another variable where lines change their order. What one line declares several times has
but its order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from staticgrad.base import files
from staticgrad.base.errors import DuplicateLayerWarning, FormatError, warn
from staticgrad.graph.naming import Unmatched, match
from staticgrad.graph.optable import Array
from staticgrad.runtime.files import checkpoint_file, graphfile, tensorfile
from staticgrad.runtime.running.state import SessionState


def save(store: SessionState, path: str | os.PathLike[str], chosen: Mapping[str, str] | None = None) -> None:
    """Write the state of a session to ``path``, whole or not at all.

    Args:
        chosen: variables of the graph by their names in the file; default: all under their own names, and the random
            state.
    """
    place = files.path_of(path)
    store.graph.settle_names()
    files.replace(place, store.lock.shared(_file, store, chosen))  # values of one moment


def copied(store: SessionState) -> tuple[dict[str, Array], dict[str, str]]:
    """Copies of all that ``save`` writes, of one moment: arrays by name and notes, without the digest."""
    store.graph.settle_names()
    values, random, notes = store.lock.shared(_contents, store, None, np.array)
    return values, checkpoint_file.notes_of(random, notes)


def _file(store: SessionState, chosen: Mapping[str, str] | None) -> bytes:
    return checkpoint_file.to_bytes(*_contents(store, chosen, np.asarray))


def _contents(
    store: SessionState, chosen: Mapping[str, str] | None, as_kept: Callable[[Array], Array]
) -> tuple[dict[str, Array], tuple[int, int] | None, dict[str, str]]:
    written = {key: key for key in store.graph.variables} if chosen is None else chosen
    values = {name: as_kept(store.array(key)) for name, key in written.items()}
    random = (store.seed, store.runs_drawn) if chosen is None else None
    return values, random, _declared_text(store, written)


def restore(
    store: SessionState,
    path: str | os.PathLike[str],
    strict: bool = True,
    chosen: Mapping[str, str] | None = None,
    renamed: bool = False,
) -> Unmatched:
    """Take the state of a session from ``path``.

    Args:
        strict: refuse variables that the file lacks and, unless some are chosen, those that the graph lacks.
        chosen: variables of the graph by their names in the file; default: all under their own names, and the random
            state.
        renamed: whether the user has said which name in the file is which variable's.

    Raises:
        FormatError: a damaged or foreign file, names that are refused or of which none agrees, another shape or dtype,
            or names that follow another order of declaration; nothing has changed.
        OSError: the file can't be read.
    """
    path = files.path_of(path)
    store.graph.settle_names()
    values, notes = _read(path)
    numbers = checkpoint_file.random_state(path, notes)
    wanted = {key: key for key in store.graph.variables} if chosen is None else chosen
    allowed = not strict, not strict or chosen is not None
    rest = match(f"{path}", ("file", "graph"), wanted, values, allowed, lambda rest: _renaming(store, rest, values))
    loaded = {key: values[name] for name, key in wanted.items() if name in values}
    _check_values(store, path, loaded)
    if not renamed:
        _check_order(store, path, loaded, values, _declared(path, notes))
        _warn_of_others(store, path, loaded, values)
    store.change(loaded, random=numbers if chosen is None else None)
    return rest


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the notes of a checkpoint, or of the state in the file of a graph.

    Raises:
        FormatError: a damaged or foreign file.
        OSError: the file can't be read.
    """
    if not graphfile.is_graph(path):
        return checkpoint_file.read(path)
    state = graphfile.read(path).state
    if state is None:
        raise FormatError(f"{path}: a graph without state: sg.save_graph(path, session=sess) writes both")
    return state


def _check_values(store: SessionState, path: str | os.PathLike[str], values: Mapping[str, Array]) -> None:
    for key, value in values.items():
        attrs = store.attributes(key)
        if value.shape != attrs.shape or value.dtype != attrs.dtype:
            raise FormatError(
                f"{path}: variable {key!r}\n  expected {attrs.dtype.name}{list(attrs.shape)}"
                f"\n  actual   {value.dtype.name}{list(value.shape)}"
            )


# -- names that follow the order of declaration -----------------------------------------------------------------------

Declared = Mapping[str, tuple[str, str]]  # base and line of each such name, as ``naming.Origin`` has them


def _declared_text(store: SessionState, written: Mapping[str, str]) -> dict[str, str]:
    """The note of a file about such names, if there are any; a user who renames a variable tells it apart himself."""
    known = store.graph.origins
    origins = {
        name: (known[key].base, known[key].text) for name, key in written.items() if name == key and key in known
    }
    return {"declared": json.dumps(origins)} if origins else {}


def _declared(path: str | os.PathLike[str], notes: Mapping[str, str]) -> Declared:
    try:
        return {
            name: (str(base), str(text))
            for name, (base, text) in tensorfile.json_of(notes.get("declared", "{}")).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{path}: the note of what was declared is damaged: {error}") from error


def _check_order(
    store: SessionState,
    path: str | os.PathLike[str],
    loaded: Mapping[str, Array],
    values: Mapping[str, Array],
    there: Declared,
) -> None:
    """Refuse names that follow the order of declaration where that is another one in the file, as far as shapes and
    dtypes do not tell the variables apart."""
    here = {key: (origin.base, origin.text) for key, origin in store.graph.origins.items()}
    types = {key: (attrs.shape, attrs.dtype) for key in here for attrs in [store.attributes(key)]}
    alike = _alike(here, types) | _alike(there, {name: (v.shape, v.dtype) for name, v in values.items()})
    for name in loaded:
        if name in alike and name in here and name in there and here[name][1] != there[name][1]:
            raise FormatError(
                f"{path}: {name!r} is named by its place in the order of declaration, which is another one here"
                f"\n  in the file  {there[name][1]}\n  in the graph {here[name][1]}"
                "\n  Name variables, or make modules attributes of one module, to tell them apart;"
                " variables={name in the file: variable} says which is which."
            )


def _alike(declared: Declared, types: Mapping[str, object]) -> set[str]:
    """The names that share base and type with others."""
    groups: dict[object, list[str]] = {}
    for name, (base, _) in declared.items():
        groups.setdefault((base, types.get(name)), []).append(name)
    return {name for group in groups.values() if len(group) > 1 for name in group}


# -- names that several modules claimed -------------------------------------------------------------------------------


def _without_slots(names: Iterable[str]) -> list[str]:
    return [name for name in names if "/" not in name]


def _prefixes(names: Sequence[str], longer: Iterable[str], is_alike: Callable[[str, str], bool]) -> list[str]:
    """The prefixes that a module's kind puts before each of the names to make one of the longer ones, where they are
    alike."""
    if not names:
        return []
    among = set(longer)
    ends = [name for name in longer if name.endswith(f".{names[0]}")]
    found = [end.removesuffix(f".{names[0]}") for end in ends]
    return [
        prefix
        for prefix in found
        if "." not in prefix and all((whole := f"{prefix}.{name}") in among and is_alike(name, whole) for name in names)
    ]


def _same_type(store: SessionState, key: str, value: Array) -> bool:
    attrs = store.attributes(key)
    return (attrs.shape, attrs.dtype) == (value.shape, value.dtype)


def _renaming(store: SessionState, rest: Unmatched, values: Mapping[str, Array]) -> str:
    """A hint for names that differ only in what the kind of a module puts before them; "" where they do not."""
    missing, unexpected = _without_slots(rest.missing_keys), _without_slots(rest.unexpected_keys)
    known = store.graph.variables
    in_file = _prefixes(missing, unexpected, lambda key, name: key in known and _same_type(store, key, values[name]))
    in_graph = _prefixes(unexpected, missing, lambda name, key: key in known and _same_type(store, key, values[name]))
    if not (in_file or in_graph):
        return ""
    where, prefixes = ("file", in_file) if in_file else ("graph", in_graph)
    name = f'f"{prefixes[0]}.{{v.name}}"' if in_file else f'v.name.removeprefix("{prefixes[0]}.")'
    return (
        f"\nthe names in the {where} begin with {' or '.join(repr(f'{prefix}.') for prefix in prefixes)}, since several"
        f" modules there had the same paths\n  variables={{{name}: v for v in net.parameters() + net.buffers()}} takes"
        " them\n  nets that are attributes of one module, in both programs, have the same names in both"
    )


def _warn_of_others(
    store: SessionState, path: str | os.PathLike[str], loaded: Mapping[str, Array], values: Mapping[str, Array]
) -> None:
    """Warn where the file has another module like the one that is restored, which may be the one that is meant."""
    rest = [name for name in values if name not in loaded]
    for root, _ in store.graph.roots.values():
        if not all(name in loaded for name in root.names):
            continue
        prefixes = _prefixes(root.names, rest, lambda key, name: _same_type(store, key, values[name]))
        if prefixes:
            first, other = root.names[0], f"{prefixes[-1]}.{root.names[0]}"
            warn(
                DuplicateLayerWarning,
                f"{path} has {len(prefixes) + 1} modules like this {root.kind}, as a graph in which a cell ran again:"
                f" {first!r} is taken, {other!r} is not, though it may be the one that was trained."
                f' variables={{f"{prefixes[-1]}.{{v.name}}": v for v in net.parameters() + net.buffers()}} takes that;'
                " {v.name: v for v in …} says that the first is meant",
            )
