"""Native code in this process: LLVM IR text comes in, addresses of machine code go out.

    Text ::= that of a module | those of several modules that refer to each other
    Code ::= Image | RelocatableObjects

Code is an image (``base.image``) wherever images can be loaded, and what LLVM's own loader takes everywhere else.
Making it takes LLVM (``native.codegen``); loading an image does not, so LLVM is imported only when something is
compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from staticgrad.base import image
from staticgrad.base.frozen import frozen
from staticgrad.base.image import CodeImage, ImageError, LoadedImage
from staticgrad.base.phases import phase
from staticgrad.base.plain import Plain
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native import cache


@frozen
class RelocatableObjects:
    """Object code for LLVM's loader, of one object or of several that refer to each other, and what they export."""

    contents: tuple[bytes, ...]
    exports: tuple[str, ...]


Text: TypeAlias = str | tuple[str, ...]
Code: TypeAlias = CodeImage | RelocatableObjects


class Loaded(Protocol):
    """Code in memory, which lives as long as this does."""

    def address(self, name: str) -> int: ...


def machine_code(text: Text, target: Target, *, quick: bool = False) -> Code:
    """Compile LLVM text; ``quick`` takes a fifth of the time to make code that is somewhat slower.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """
    from staticgrad.compiler.native import codegen

    texts = _modules(text)
    return joined(codegen.objects(texts, target, quick=quick), texts)


def joined(contents: Sequence[bytes], texts: Sequence[str]) -> Code:
    """The code of objects that refer to each other, which were made of these texts."""
    from staticgrad.compiler.native import codegen
    from staticgrad.compiler.native.link import link

    if image.loads_here():
        with contextlib.suppress(ImageError):  # something new in an object: LLVM's loader knows it
            return link(*contents)
    return RelocatableObjects(tuple(contents), codegen.exports(texts))


def _modules(text: Text) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text


@phase("load")
def load_code(code: Code) -> Loaded:
    """Map code into this process.

    Raises:
        ImageError: an image that does not fit this process.
    """
    if isinstance(code, CodeImage):
        return LoadedImage(code)
    from staticgrad.compiler.native.object_loader import LoadedObjects

    return LoadedObjects(code.contents, code.exports)


def code_to_plain(code: Code) -> Plain:
    """Code as data that can be kept."""
    return image.to_plain(code) if isinstance(code, CodeImage) else (code.contents, code.exports)


def code_from_plain(data: Plain) -> Code:
    """The code that was kept.

    Raises:
        ImageError: the data are not those of code.
    """
    match data:
        case (tuple(contents), tuple(exports)):
            objects = tuple(content for content in contents if isinstance(content, bytes))
            return RelocatableObjects(objects, tuple(str(name) for name in exports))
    return image.from_plain(data)


class NativeModule:
    """Machine code of LLVM text, loaded; its external functions can be asked for by name. ``text`` may also be a
    function that makes it: then ``key`` says what text that is for the target's ISA, as long as the sources of this
    package stay as they are, and it is called only where the code was not kept. ``quick``: see ``machine_code``.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """

    def __init__(
        self, text: Text | Callable[[], Text], target: Target, *, key: str | None = None, quick: bool = False
    ) -> None:
        self.target = target
        self._text = text
        names = (key,) if key is not None else self._modules()
        named = ("module", *names, repr(target.isa), str(quick))
        place = cache.key_of(*named, needs_sources=key is not None)
        known = self._kept(place)
        self.cached = known is not None
        if known is None:
            code = machine_code(self._modules(), target, quick=quick)
            known = load_code(code)
            cache.save(place, code_to_plain(code))
        self._loaded = known

    @staticmethod
    def _kept(place: str | None) -> Loaded | None:
        data = cache.load(place)
        if data is None:
            return None
        try:
            return load_code(code_from_plain(data))
        except ImageError:
            return None

    def _modules(self) -> tuple[str, ...]:
        if callable(self._text):
            self._text = self._text()
        return _modules(self._text)

    def address(self, name: str) -> int:
        """The address of an external function of the module; ``KeyError`` for any other name."""
        return self._loaded.address(name)

    def assembly(self) -> str:
        """The machine code as text, made again from the module."""
        from staticgrad.compiler.native.codegen import assembly

        return assembly(self._modules(), self.target)
