"""Fuzzing of readers by coverage: inputs that reach lines which no other has reached are kept and changed further.

    corpus ::= files as they are written, inputs that were kept
    input  ::= one of the corpus changed a few times, perhaps spliced with another, perhaps sealed

``seal`` gives an input the lengths and digests that its content has, so that what lies behind these is reached. Lines
are counted in the modules of the reader alone (``sys.settrace``), and also how many a read takes: one that takes too
many hangs. A reader may return or raise a ``StaticGradError``; anything else is a ``Finding``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

from staticgrad.errors import StaticGradError
from support.damage import change_bytes

MOST_LINES = 3_000_000  # of a read; the largest of a corpus takes some ten thousand
MOST_BYTES = 100_000  # of an input
NUMBERS = [
    0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 4096,
    2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1,
]  # fmt: skip
TEXTS = [
    b"0", b"-1", b"1", b"2", b"1e999", b"nan", b"true", b"null", b"[]", b"{}", b'""', b"9" * 25, b"1" * 5000,
    b"\\ud800", b"\xed\xa0\x80", b"\0", b"\n", b"\r", b'"', b"'", b"(", b")", b"[" * 200, b"((" * 2000,
]  # fmt: skip


@dataclass
class Reader:
    """What reads bytes, and files that it reads."""

    name: str
    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    modules: Sequence[ModuleType]
    seal: Callable[[bytes], bytes] = lambda data: data


class Finding(AssertionError):
    """An input that a reader neither reads nor refuses."""

    def __init__(self, reader: str, data: bytes, error: BaseException) -> None:
        super().__init__(f"{reader}: {type(error).__name__}: {error!s:.200} for {len(data)} bytes: {data[:200]!r}")
        self.data = data


class TooManyLines(BaseException):
    """A read that takes more than ``MOST_LINES``."""


@dataclass
class Coverage:
    """The lines of some modules that reads have reached."""

    modules: Iterable[ModuleType]
    seen: set[tuple[CodeType, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._files = {module.__file__ for module in self.modules}
        self._left = 0

    def of(self, call: Callable[[], bool]) -> tuple[bool, bool]:
        """Whether a call reaches new lines, and its result."""
        before, outer, self._left = len(self.seen), sys.gettrace(), MOST_LINES
        sys.settrace(self._enter)
        try:
            result = call()
        finally:
            sys.settrace(outer)
        return len(self.seen) > before, result

    def _enter(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
            self._left -= 1
            if self._left < 0:
                raise TooManyLines
        return self._line


def check(reader: Reader, data: bytes) -> bool:
    """Read an input: true if it was read, false if it was refused.

    Raises:
        Finding: neither.
    """
    try:
        reader.read(data)
    except StaticGradError as error:
        str(error).encode()  # it can be printed
        return False
    except FileNotFoundError:  # which the input names
        return False
    except (Exception, TooManyLines) as error:
        raise Finding(reader.name, data, error) from error
    return True


def fuzz(reader: Reader, seed: int, count: int, report: Callable[[Finding], None] | None = None) -> tuple[int, int]:
    """Read a number of drawn inputs; gives how many were kept, and how many were read rather than refused.

    Args:
        report: called with each finding, after which drawing goes on; default: it is raised.
    """
    draw, coverage = random.Random(seed), Coverage(reader.modules)
    corpus, kept, read = list(reader.seeds), 0, 0
    for data in corpus:
        coverage.of(lambda data=data: check(reader, data))  # type: ignore[misc]
    for _ in range(count):
        data = changed(draw, corpus)
        if draw.random() < 0.7:
            data = reader.seal(data)
        try:
            is_new, is_read = coverage.of(lambda data=data: check(reader, data))  # type: ignore[misc]
            if is_new:
                corpus.append(data)
            kept, read = kept + is_new, read + is_read
        except Finding as finding:
            if report is None:
                raise
            report(finding)
    return kept, read


def changed(draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """An input of the corpus, changed; the latest ones are drawn more often."""
    data = corpus[-1 - min(int(draw.expovariate(0.1)), len(corpus) - 1) if draw.random() < 0.5 else 0]
    if draw.random() < 0.5:
        data = draw.choice(corpus)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(6):
            case 0:
                data = change_bytes(draw, data or b"\0")
            case 1:
                data = data[:at] + draw.choice(TEXTS) + data[at + draw.choice((0, 1, 2, 4)) :]
            case 2:
                size = draw.choice((1, 2, 4, 8))
                number = (draw.choice(NUMBERS) % 2 ** (8 * size)).to_bytes(size, draw.choice(("little", "big")))
                data = data[:at] + number + data[at + size :]
            case 3:
                other = draw.choice(corpus)
                data = data[:at] + other[draw.randrange(len(other) + 1) :]
            case 4:
                end = min(len(data), at + draw.choice((1, 4, 16, 64)))
                data = data[:at] + data[at:end] * draw.choice((2, 3, 50)) + data[end:]
            case _:
                if at < len(data) and chr(data[at]).isdigit():
                    data = data[:at] + draw.choice(TEXTS[:12]) + data[at + 1 :]
                elif at < len(data):
                    data = data[:at] + bytes([draw.choice(data)]) + data[at + 1 :]
    return data[:MOST_BYTES]
