"""Kernels that are compiled once: LLVM text of a program's modules comes in, objects with all of its functions go out.

Programs have functions in common: those of two ranges of sizes, a training step and the inference beside it, a cell of
a notebook before and after a change. A function is known by a *digest* of its text, in which the functions and
constants that it refers to stand as their digests; one that is called from outside, or refers to memory that the code
writes, is a program's *own*. The others are compiled under their digests as names, each in a section of its own, so
that an object is a library of kernels: a program is linked of the objects that have what it uses, and the linker leaves
out the rest.

Objects stay in memory up to ``LIMIT`` bytes, the least recently used go first. The latest stand on disk as well, in
``native.cache``, with an index that says which digests are in which entry. They depend on their texts and on LLVM
alone, not on the sources of this package. ``STATICGRAD_CACHE=0`` keeps none for other programs.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from staticgrad.base import config, image
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen
from staticgrad.base.image import ImageError
from staticgrad.base.phases import COMPILED, IN_MEMORY, ON_DISK, count, phase
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native import cache, codegen
from staticgrad.compiler.native.link import link
from staticgrad.compiler.native.module import Code, joined

LIMIT = 32 << 20  # bytes of the objects in memory
INDEXED = 128  # objects on disk that are found by the digests of their functions
DIGEST = 16  # bytes
NAME = re.compile(r"@([\w.]+)")

# What modules have at their outermost level; the closing brace of a function is alone in the first column of its line.
_ITEM = re.compile(r"^(?:define .*?^\}\n|(?:@|declare |attributes ).*?\n)", re.MULTILINE | re.DOTALL)
_DEFINE = re.compile(r"define (internal |hidden |)(.*?)@([\w.]+)(\(.*?\))(.*?) \{\n")
_DEFINED = re.compile(r"^define .*?@([\w.]+)\(", re.MULTILINE)
_GLOBAL = re.compile(r"@([\w.]+) = (internal |hidden |external hidden |)(constant |)")

Module: TypeAlias = tuple[bytes, str]
Compile: TypeAlias = Callable[[Sequence[str], Sequence[bool]], Sequence[bytes]]


# -- digests -----------------------------------------------------------------------------------------------------------


@frozen
class _KernelText:
    """A function that is known by its digest: its definition and a declaration under that name."""

    definition: str
    declaration: str


class _Digests:
    """The digests of what modules define.

    Attributes:
        functions: those that are not a program's own, by digest.
        constants: definitions of constants, by digest.
    """

    def __init__(self, items: Iterable[str]) -> None:
        self.functions: dict[str, _KernelText] = {}
        self.constants: dict[str, str] = {}
        self._definitions: dict[str, str] = {}  # of functions, by their names in the modules
        self._digests: dict[str, str | None] = {}  # None of what is a program's own
        self._attributes = ""
        for item in items:
            self._enter(item)
        for name in self._definitions:
            self._digest(name)

    def _enter(self, item: str) -> None:
        if found := _DEFINE.match(item):
            self._definitions[found[3]] = item
        elif found := _GLOBAL.match(item):
            name, linkage, is_constant = found.groups()
            if is_constant:
                content = item[found.end() :]
                self._digests[name] = digest = _digest_of("c", content)
                self.constants[digest] = f"@{digest} = weak_odr hidden constant {content}"
            elif not linkage.startswith("external"):
                self._digests[name] = None
        elif item.startswith("attributes "):
            self._attributes = item

    def digest(self, name: str) -> str | None:
        """The digest under which others know a definition; None if it is a program's own, or of the C library."""
        return self._digests.get(name)

    def renamed(self, text: str) -> str:
        """The text of a function with digests in the place of names."""
        return NAME.sub(lambda found: f"@{self.digest(found[1]) or found[1]}", text)

    def _digest(self, name: str) -> str | None:
        """``digest``, found now; names that no module defines are digests of their own."""
        if name not in self._digests:
            if name not in self._definitions:
                return name
            self._digests[name] = None  # should a circle lead back
            self._digests[name] = self._enter_function(self._definitions[name])
        return self._digests[name]

    def _enter_function(self, item: str) -> str | None:
        found = _DEFINE.match(item)
        assert found is not None
        linkage, result, _, params, attributes = found.groups()
        body = item[found.end() :]
        if not linkage or any(self._digest(name) is None for name in dict.fromkeys(NAME.findall(body))):
            return None
        body = self.renamed(body)
        digest = _digest_of("k", f"{result}{params}{attributes}\n{body}{self._attributes}")
        self.functions[digest] = _KernelText(
            f'define weak_odr hidden {result}@{digest}{params}{attributes} section ".text.{digest}" {{\n{body}',
            f"declare hidden {result}@{digest}{params}\n",
        )
        return digest


def _digest_of(kind: str, text: str) -> str:
    return f"{kind}.{hashlib.blake2b(text.encode(), digest_size=DIGEST).hexdigest()}"


class _SplitModule:
    """A module: the digests of its functions, and the text of those that are the program's own."""

    def __init__(self, items: Iterable[str], names: _Digests) -> None:
        self._names = names
        self._declarations: dict[str, str] = {}
        self._attributes = ""
        self.digests: dict[str, None] = {}
        own = []
        for item in items:
            if item.startswith("attributes "):
                self._attributes = item
                continue
            found = NAME.search(item)
            assert found is not None
            digest = names.digest(found[1])
            if item.startswith("declare ") or "= external" in item:
                if digest is None:
                    self._declarations[found[1]] = item
            elif digest is None:
                own.append(names.renamed(item) if item.startswith("define ") else item)
            elif digest in names.functions:
                self.digests[digest] = None
        self.own = "".join(own)

    def own_text(self) -> str:
        """A module of what is the program's own, which calls kernels of others."""
        return self._module(self.own)

    def kernels_text(self, digests: Iterable[str]) -> str:
        """A module of some of the functions that are known by their digests."""
        return self._module("".join(self._names.functions[digest].definition for digest in digests))

    def _module(self, body: str) -> str:
        """The text of a module with these definitions. What else they call is declared; constants that they refer to
        are defined, too: the linker takes the first of several that are the same."""
        functions, constants = self._names.functions, self._names.constants
        defined, used = set(_DEFINED.findall(body)), dict.fromkeys(NAME.findall(body))
        said = [text for name, text in self._declarations.items() if name in used and name not in defined]
        said += [functions[name].declaration for name in used if name in functions and name not in defined]
        said += [constants[name] for name in used if name in constants]
        return "".join([*said, body, self._attributes])


# -- what was made before ----------------------------------------------------------------------------------------------


@frozen
class _KernelObject:
    """An object, and the digests of the functions for whose sake it is kept."""

    code: bytes
    digests: tuple[str, ...]


class _KernelLibrary:
    """Objects by the digests of their functions. May be used from several threads.

    Args:
        name: of the code generator that makes them, for those on disk; "" if none are kept there.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._lock = reentrant_lock()
        self._homes: dict[str, _KernelObject] = {}
        self._objects: OrderedDict[int, _KernelObject] = OrderedDict()  # by identity, the latest last
        self._bytes = 0

    def find(self, digest: str) -> _KernelObject | None:
        """The object in memory that has a function."""
        with self._lock:
            found = self._homes.get(digest)
            if found is not None:
                self._objects.move_to_end(id(found))
            return found

    def find_on_disk(self, digests: Iterable[str]) -> set[str]:
        """Take objects on disk into memory that have some of these functions; which ones now are there."""
        wanted = set(digests)
        found = set[str]()
        for place, names in self._index() if wanted else ():
            if wanted & set(names):
                match cache.load(place):
                    case bytes(code):
                        self._enter(_KernelObject(code, names))
                        found |= wanted & set(names)
                        wanted -= found
        return found

    def add(self, objects: Sequence[_KernelObject]) -> None:
        """Keep objects for the sake of their functions."""
        rows: dict[str, tuple[str, ...]] = {}
        for made in objects:
            self._enter(made)
            place = self._place("kernels", *made.digests)
            if place is not None:
                cache.save(place, made.code)
                rows[place] = made.digests
        if rows:
            rows |= dict(self._index())
            cache.save(self._index_place(), tuple(rows.items())[:INDEXED])

    def _enter(self, made: _KernelObject) -> None:
        with self._lock:
            self._objects[id(made)] = made
            self._bytes += len(made.code)
            self._homes |= dict.fromkeys(made.digests, made)
            while self._bytes > LIMIT and len(self._objects) > 1:
                _, oldest = self._objects.popitem(last=False)
                self._bytes -= len(oldest.code)
                for digest in oldest.digests:
                    if self._homes.get(digest) is oldest:
                        del self._homes[digest]

    def _index(self) -> list[tuple[str, tuple[str, ...]]]:
        """The entries on disk with the digests of their functions, the latest first. Of two processes that change the
        index at once one loses its rows, and its kernels are compiled once more when they are needed."""
        rows = cache.load(self._index_place())
        found = []
        for row in rows if isinstance(rows, tuple) else ():
            match row:
                case (str(place), tuple(names)):
                    found.append((place, tuple(map(str, names))))
        return found

    def _index_place(self) -> str | None:
        return self._place("index of kernels")

    def _place(self, *parts: str) -> str | None:
        is_kept = self._name and cache.directory() is not None
        return cache.key_of(*parts, self._name, needs_sources=False) if is_kept else None


@functools.cache
def _library(target: Target, quick: bool) -> _KernelLibrary:
    """The library that programs share: quick code is not kept on disk."""
    return _KernelLibrary("" if quick else repr(target.isa))


# -- programs ----------------------------------------------------------------------------------------------------------


def at_once(target: Target) -> Compile:
    """Makes objects side by side, while the caller waits."""
    return lambda texts, quick: codegen.objects(texts, target, quick=quick)


def aside(target: Target) -> Compile:
    """Makes optimised objects one after the other, while other threads may compile."""
    return lambda texts, _: codegen.objects_aside(texts, target)


class ProgramObjects(ABC):
    """The objects of which the code of a program is linked.

    Args:
        texts: of its modules.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)

    def are_known(self) -> bool:
        """True if all that other programs could have is in memory, optimised, and the rest is little."""
        return False

    @abstractmethod
    def code(self, quick: Sequence[bool], compile: Compile, more: Sequence[Module] = ()) -> Code:
        """Code of the program and of ``more`` modules, of which each is an object and its text.

        Args:
            quick: for each module of the program whether what is new in it is made without optimization.
            compile: makes objects of texts, each with or without optimization.

        Raises:
            RuntimeError: malformed text; with LLVM's message.
        """


def program_objects(texts: Sequence[str], target: Target) -> ProgramObjects:
    """The objects of the modules of these texts: of kernels, where programs are linked here."""
    return KernelObjects(texts, target) if target.is_native and image.loads_here() else ModuleObjects(texts)


def _joined(codes: Sequence[bytes], texts: Sequence[str], more: Sequence[Module]) -> Code:
    return joined([*codes, *(code for code, _ in more)], [*texts, *(text for _, text in more)])


class ModuleObjects(ProgramObjects):
    """One object for each module."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(texts)
        self._optimised: dict[int, bytes] = {}

    def code(self, quick: Sequence[bool], compile: Compile, more: Sequence[Module] = ()) -> Code:
        new = [number for number in range(len(self.texts)) if number not in self._optimised]
        codes = compile([self.texts[number] for number in new], [quick[number] for number in new])
        made = dict(zip(new, codes, strict=True))
        contents = [self._optimised.get(number) or made[number] for number in range(len(self.texts))]
        self._optimised |= {number: code for number, code in made.items() if not quick[number]}
        return _joined(contents, self.texts, more)


class KernelObjects(ProgramObjects):
    """Objects with the functions that are new, and those made before that have the others."""

    @phase("name kernels")
    def __init__(self, texts: Sequence[str], target: Target) -> None:
        super().__init__(texts)
        is_shared = config.get("CACHE") != "0"
        self._libraries = {level: _library(target, level) if is_shared else _KernelLibrary() for level in (False, True)}
        self._own: dict[int, bytes] = {}  # objects of modules with what is the program's own, optimised
        modules = [_ITEM.findall(text) for text in texts]
        names = _Digests(itertools.chain.from_iterable(modules))
        self._parts = [_SplitModule(items, names) for items in modules]
        best = self._libraries[False]
        self._on_disk = best.find_on_disk(digest for digest in self._digests() if best.find(digest) is None)

    def _digests(self) -> Iterator[str]:
        return (digest for part in self._parts for digest in part.digests)

    def are_known(self) -> bool:
        is_short = sum(len(part.own) for part in self._parts) < codegen.SHORT
        return is_short and all(self._libraries[False].find(digest) is not None for digest in self._digests())

    def code(self, quick: Sequence[bool], compile: Compile, more: Sequence[Module] = ()) -> Code:
        objects = self._made(quick, compile)
        try:
            return link(*objects, *(code for code, _ in more))
        except ImageError:  # something new in an object, which LLVM's loader knows: it takes whole programs
            return _joined(compile(self.texts, quick), self.texts, more)

    def _made(self, quick: Sequence[bool], compile: Compile) -> list[bytes]:
        """New objects, and those made before that have the other functions."""
        best, made_quickly = self._libraries[False], self._libraries[True]
        objects: dict[int, _KernelObject] = {}
        new: list[tuple[int, list[str]]] = []
        claimed = set[str]()
        for number, part in enumerate(self._parts):
            names = []
            for digest in [digest for digest in part.digests if digest not in claimed]:
                held = best.find(digest) or (made_quickly.find(digest) if quick[number] else None)
                if held is None:
                    names.append(digest)
                else:
                    objects[id(held)] = held
                count(COMPILED if held is None else ON_DISK if digest in self._on_disk else IN_MEMORY)
            claimed |= part.digests.keys()
            new += [(number, names)] if names else []
        own = [number for number, part in enumerate(self._parts) if part.own and number not in self._own]
        texts = [self._parts[number].own_text() for number in own]
        texts += [self._parts[number].kernels_text(names) for number, names in new]
        codes = compile(texts, [quick[number] for number in (*own, *(number for number, _ in new))])
        made = dict(zip(own, codes))
        for level, library in self._libraries.items():
            kept = zip(codes[len(own) :], new, strict=True)
            library.add([_KernelObject(code, tuple(names)) for code, (n, names) in kept if quick[n] == level])
        found = [*self._own.values(), *codes, *(held.code for held in objects.values())]
        self._own |= {number: code for number, code in made.items() if not quick[number]}
        return found
