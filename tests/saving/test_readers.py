"""Readers of bytes that others may have written: each input gives what it says or a ``StaticGradError``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from source_tree import TESTS
from support.damage import small_graphs
from support.fuzzing import Coverage, Reader, check, fuzz

import staticgrad as sg
from staticgrad.base import image, plain
from staticgrad.compiler import binary
from staticgrad.compiler.native import cache
from staticgrad.compiler.native import module as native
from staticgrad.compiler.placement import placement, problems
from staticgrad.errors import FormatError
from staticgrad.runtime.export import interface, loaded, program_file
from staticgrad.runtime.files import checkpoint, checkpoint_file, elf, graphfile, tensorfile
from staticgrad.saving import filekinds, literals, parser
from staticgrad.saving import graphs as saving

FOUND = TESTS / "data" / "damaged"  # inputs that readers once neither read nor refused
LENGTH = tensorfile.LENGTH


class Readers:
    """All readers, with files that are written into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graphs = dict(small_graphs())
        self.net = self.graphs["a net"]
        self.session = sg.Session(self.net)
        with sg.Graph() as graph:
            x = sg.placeholder((3,), name="x")
            w = sg.Variable([1.0, 2.0, 3.0], name="w")
            y = {"a": (x * w + sg.random.uniform((3,)), [sg.sum(x)]), 3: sg.take(w, sg.argmax(x))}
        self.program = sg.Session(graph).compile(y, x)
        self.all = {reader.name: reader for reader in self._made()}

    def _path(self, data: bytes, name: str) -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    def _made(self) -> Iterator[Reader]:
        texts: list[bytes] = []
        binaries: list[bytes] = []

        def sealed(data: bytes) -> bytes:
            return tensors_sealed(data, self.folder / "unsealed")

        for number, graph in enumerate(self.graphs.values()):
            for name, kind in ((f"{number}.sgt", texts), (f"{number}.sgb", binaries)):
                sg.save_graph(self.folder / name, graph, session=sg.Session(graph) if number == 0 else None)
                kind.append((self.folder / name).read_bytes())
        self.session.save(self.folder / "state.safetensors")
        state = (self.folder / "state.safetensors").read_bytes()
        self.program.export(self.folder / "one.sgp", format="program")
        exported = (self.folder / "one.sgp").read_bytes()
        self.program.export(self.folder / "one.o")
        object_file = (self.folder / "one.o").read_bytes()
        csv = b'id,lower,upper,size\na,0,4,16\nb,1,3,32\n"c,",2,9,8\n'
        offsets = b"id,lower,upper,size,offset\na,0,4,16,0\nb,1,3,32,\nc,5,6,1,64\n"
        graph_modules = [graphfile, tensorfile, parser, literals, saving]
        yield Reader(
            "graph text", lambda data: sg.load_graph(self._path(data, "g.sgt")), texts, graph_modules, text_sealed
        )
        yield Reader(
            "graph binary", lambda data: sg.load_graph(self._path(data, "g.sgb")), binaries, graph_modules, sealed
        )
        plain_texts = [graph.text(full=True).encode() for graph in self.graphs.values()]
        yield Reader("text", lambda data: sg.parse(data.decode(errors="replace")), plain_texts, [parser, literals])
        yield Reader("checkpoint", self._restored, [state], [checkpoint, checkpoint_file, tensorfile], sealed)
        yield Reader("problem", self._placed, [csv, offsets], [problems, placement])
        yield Reader(
            "program", self._loaded, [exported], [program_file, interface, plain, image, loaded], program_sealed
        )
        described = [
            *texts,
            *binaries,
            state,
            exported,
            object_file,
            csv,
            b"; ModuleID = 'a'\ndefine i32 @f()",
            b"BC\xc0\xde",
        ]
        modules: list[ModuleType] = [filekinds, elf, tensorfile, problems, program_file, interface, graphfile]
        yield Reader(
            "file",
            lambda data: filekinds.report(self._path(data, "file")),
            described,
            modules,
            lambda data: any_sealed(data, self.folder / "unsealed"),
        )
        yield Reader("object", lambda data: elf.parse(data, "object"), [object_file], [elf])
        names, kept = kept_program()
        yield Reader("kept program", lambda data: kept_read(data, names), [kept], [binary, plain, native, image])

    def _restored(self, data: bytes) -> None:
        before = {name: self.session.get(x).tobytes() for name, x in self.net.variables.items()}
        try:
            self.session.restore(self._path(data, "s.safetensors"))
        except FormatError:
            assert before == {name: self.session.get(x).tobytes() for name, x in self.net.variables.items()}
            raise

    def _placed(self, data: bytes) -> None:
        intervals = problems.read_csv(self._path(data, "p.csv"))
        if len(intervals) < 100:
            placement.place(intervals)

    def _loaded(self, data: bytes) -> None:
        program = sg.load(self._path(data, "p.sgp"))
        repr([program, *program.entries.values(), program.state])


# -- lengths and digests ----------------------------------------------------------------------------------------------


def text_sealed(data: bytes) -> bytes:
    first, *rest = data.split(b"\n", 2)
    if len(rest) < 2 or not rest[0].startswith(b"digest"):
        return data
    text = rest[1].replace(b"\r\n", b"\n")
    return b"\n".join([first, b"digest sha256 " + hashlib.sha256(text).hexdigest().encode(), rest[1]])


def tensors_sealed(data: bytes, path: Path) -> bytes:
    """Files of arrays: the length of a header that is JSON, and the digest of arrays that can be read."""
    end = data.rfind(b"}", 0, 20_000) + 1
    with contextlib.suppress(ValueError, RecursionError):
        head = json.dumps(json.loads(data[LENGTH:end])).encode()
        data = len(head).to_bytes(LENGTH, "little") + head + data[end:].lstrip(b" ")
    path.write_bytes(data)
    try:
        values, notes = tensorfile.read(path)
        return tensorfile.to_bytes(values, notes | {"digest": tensorfile.digest_of(values, notes)})
    except (FormatError, UnicodeEncodeError):
        return data


def program_sealed(data: bytes) -> bytes:
    size = program_file._PREFIX.size
    if len(data) < size:
        return data
    header = data.rfind(b"}]}", 0, 50_000) + 3 - size
    head = program_file._PREFIX.pack(program_file.MAGIC, bytes(32), len(data), program_file.VERSION, max(header, 0))
    return program_file.sealed(head + data[size:])


def any_sealed(data: bytes, path: Path) -> bytes:
    if data.startswith(program_file.MAGIC):
        return program_sealed(data)
    return text_sealed(data) if data.startswith(graphfile.MAGIC) else tensors_sealed(data, path)


# -- programs on disk -------------------------------------------------------------------------------------------------


def kept_program() -> tuple[binary.Digest, bytes]:
    """What is kept of a program, and the names of its region."""
    made: list[tuple[binary.Digest, bytes]] = []
    honest = binary.to_plain

    def note(known: binary.Interface, code: native.Code, names: binary.Digest) -> plain.Plain:
        data = honest(known, code, names)
        made.append((names, plain.dump(data)))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATICGRAD_CACHE", "1")
        patch.setenv("STATICGRAD_TIERS", "0")  # what is kept is written before the run
        patch.setattr(binary, "to_plain", note)
        patch.setattr(cache, "load", lambda key: None)
        with sg.Graph() as graph:
            x, w = (
                sg.placeholder((sg.dim("n", max=9), 3), name="x"),
                sg.Variable(np.ones((3, 300), np.float32), name="w"),
            )
            y = sg.take(sg.exp(x @ w), sg.argmax(x, 1), 1) + np.arange(3.0, dtype=np.float32)[0]
        sg.Session(graph).run(y, {x: np.ones((2, 3), np.float32)})
    return made[-1]


def kept_read(data: bytes, names: binary.Digest) -> None:
    try:
        _, code = binary.from_plain(plain.load(data), names)
        if isinstance(code, image.CodeImage):  # LLVM's own loader has no errors to be told
            native.load_code(code)
    except (ValueError, image.ImageError) as error:  # a miss
        raise FormatError(str(error)) from error


# -- tests ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return Readers(tmp_path_factory.mktemp("readers")).all


NAMES = ("graph text", "graph binary", "text", "checkpoint", "problem", "program", "file", "object", "kept program")


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_were_found_are_read_or_refused(name: str, readers: dict[str, Reader]) -> None:
    for path in sorted((FOUND / name.replace(" ", "_")).glob("*")):
        check(readers[name], path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_drawn_inputs_are_read_or_refused(name: str, readers: dict[str, Reader]) -> None:
    assert all(check(readers[name], data) for data in readers[name].seeds)
    kept, _ = fuzz(readers[name], 0, 150)
    assert kept


@pytest.mark.parametrize("kind", [2, 11])
def test_tables_of_an_object_that_overlap_are_refused_at_once(kind: int, readers: dict[str, Reader]) -> None:
    """Files of a few MB: in one 60,000 tables of symbols are all the same bytes, in one all names end where it does."""
    symbols, count = 40_000, 60_000
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 0)
    header = struct.Struct("<IIQQQQIIQQ")
    places = 64, 64 + symbols * len(symbol)
    table = header.pack(0, kind, 0, 0, places[0], symbols * len(symbol), 1, 0, 1, len(symbol))
    begin = struct.pack("<16s24xQ10xHHH", elf.MAGIC + b"\2\1", places[1], 64, count, 0)
    strings = header.pack(0, 3, 0, 0, 0, places[1], 0, 0, 1, 0)
    names = b"".join(struct.pack("<IBBHQQ", n + 64, 0x12, 0, 1, 0, 0) for n in range(symbols)).replace(b"\0", b"\1")
    for content in (
        begin + symbol * symbols + table * count,
        begin[:-4] + struct.pack("<HH", 2, 1) + names + table + strings,
    ):
        coverage = Coverage([elf])
        assert not coverage.of(lambda content=content: check(readers["object"], content))[1]  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("name", NAMES)
def test_many_drawn_inputs_are_read_or_refused(name: str, seed: int, readers: dict[str, Reader]) -> None:
    fuzz(readers[name], seed, 10_000)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_are_read_or_refused(name: str, readers: dict[str, Reader]) -> None:
    reader = readers[name]

    @settings(max_examples=60)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        seed = data.draw(st.sampled_from(reader.seeds))
        at = data.draw(st.integers(0, len(seed)))
        end = data.draw(st.integers(at, min(len(seed), at + 16)))
        content = seed[:at] + data.draw(st.binary(max_size=24)) + seed[end:]
        check(reader, reader.seal(content) if data.draw(st.booleans()) else content)

    draw()


def test_a_name_that_no_file_can_hold_is_told_of_in_a_message_that_can_be_printed() -> None:
    """Half a pair of surrogates in a name of a size, found in a damaged text."""
    with sg.Graph():
        x = sg.placeholder((sg.dim("\ud800n"), 2))
        with pytest.raises(sg.GraphError, match=r"\\ud800n") as error:
            sg.linalg.inv(x)
    assert str(error.value).encode()
