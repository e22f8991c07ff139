"""Graphs in files: what comes back is what was saved, files are replaced as one, what is damaged is refused whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from source_tree import TESTS
from support import saved_graphs
from support.damage import Originals
from support.declaring import f32
from support.random_graphs import random_graph

import staticgrad as sg
from staticgrad.base.types import DTYPES, open_size
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.text import MOST_EXPANDED
from staticgrad.ops.sources import CONSTANT, ConstantAttributes
from staticgrad.runtime.files import graphfile, tensorfile

Array = np.ndarray[Any, np.dtype[Any]]
FORMS = (".sgt", ".sgb")
FIXTURES = TESTS / "data" / "graphs"
VERSIONS = sorted({path.stem for path in FIXTURES.glob("*.json")})


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def beside(path: Path) -> list[Path]:
    """The files of arrays beside a text."""
    return sorted(path.parent.glob(f"{path.name}.*.safetensors"))


def same(graph: Graph, path: Path, **given: Any) -> Graph:
    """The graph that comes back from a file, which is compared in all that a text says and in its flags."""
    sg.save_graph(path, graph, **given)
    again = sg.load_graph(path)
    entries, graph.entries = graph.entries, {}
    kept, again.entries = again.entries, {}
    assert again.text(full=True) == graph.text(full=True)
    graph.entries, again.entries = entries, kept
    assert again.random_ops == graph.random_ops
    assert list(again.variables) == list(graph.variables)
    for old, new in zip(graph.nodes, again.nodes, strict=True):
        assert old.op is new.op or (old.op.own and new.op.own)  # a user's ops are in no table: the text has them
        assert (old.name, old.op.name, old.blocked) == (new.name, new.op.name, new.blocked)
        for x, y in zip(old.outputs, new.outputs, strict=True):
            assert (x.requires_grad, x.is_leaf, x.retains_grad) == (y.requires_grad, y.is_leaf, y.retains_grad)
    return again


def in_graph(graph: Graph, nest: Any) -> Any:
    """A nest of tensors and ops of another graph, by their names."""
    nodes = {node.name: node for node in graph.nodes}

    def find(item: Tensor | Node) -> Tensor | Node:
        return nodes[item.name] if isinstance(item, Node) else nodes[item.op.name].outputs[item.index]

    return sg.nest.map(find, nest)


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_random_graphs_compute_the_same_from_files(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for seed in range(20):
        case = random_graph(seed)
        with case.graph:
            gradients = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        fetches, feeds = [case.results, gradients, case.train], case.feeds
        again = same(case.graph, tmp_path / f"graph{form}")
        found = []
        for graph, fetched, fed in (
            (case.graph, fetches, feeds),
            (again, in_graph(again, fetches), {in_graph(again, x): value for x, value in feeds.items()}),
        ):
            with sg.Session(graph, seed=3) as sess, np.errstate(all="ignore"):
                runs = [sess.run(fetched, fed), sess.run(fetched, fed)]
                found.append([*sg.nest.flatten(runs), *(sess.get(x) for x in graph.variables.values())])
        for one, other in zip(*found, strict=True):
            assert (one is None and other is None) or (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())


@pytest.mark.parametrize("form", FORMS)
@given(dtype=st.sampled_from(DTYPES), data=st.binary(max_size=700), repeated=st.sampled_from((1, 4)))
def test_arrays_come_back_to_the_bit(
    form: str, tmp_path_factory: pytest.TempPathFactory, dtype: np.dtype, data: bytes, repeated: int
) -> None:
    whole = data[: len(data) // dtype.itemsize * dtype.itemsize] * repeated
    bits = bytes(byte % 2 for byte in whole) if dtype.kind == "b" else whole
    g = Graph()
    g.add(CONSTANT, (), ConstantAttributes(dtype, (len(bits) // dtype.itemsize,), bits))
    path = tmp_path_factory.mktemp("bits") / f"graph{form}"
    sg.save_graph(path, g)
    (node,) = sg.load_graph(path).nodes
    assert node.attrs == g.nodes[0].attrs


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_any_names_come_back(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    folder = tmp_path_factory.mktemp("names")
    with Graph() as g:
        for name in names:
            sg.Variable(np.arange(300.0), name=name)
            x = sg.placeholder((sg.dim(name),), name=f"of {name}")
            g.entries[name] = sg.graph.GraphEntry({name: [x, None, (x,)]}, {x: x.shape})
    for form in FORMS:
        again = same(g, folder / f"graph{form}")
        assert list(again.variables) == names
        assert [entry.fetches.keys() for entry in again.entries.values()] == [{name} for name in names]


def test_arrays_in_bodies_and_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with Graph() as g:
        c = sg.constant(np.arange(300.0), name="c")
        x = sg.placeholder((2, 300), sg.float64, name="x")
        sg.scan(lambda carry, row: (carry + row * sg.constant(np.arange(300.0) * 2, name="c"), None), c, x)
    for form in FORMS:
        again = same(g, tmp_path / f"graph{form}")
        with sg.Session(again) as sess:
            last = sess.run(in_graph(again, g.nodes[-1].outputs[0]), {in_graph(again, x): np.ones((2, 300))})
        assert np.array_equal(last, np.arange(300.0) * 5)


def test_sizes_of_one_name_and_their_ranges_come_back(tmp_path: Path) -> None:
    own = open_size("n", (5, 9))
    with Graph() as g:
        sg.placeholder((own, sg.dim("n", max=7), open_size("n"), own), name="x")
    again = same(g, tmp_path / "graph.sgt")
    first, second, third, fourth = (size.terms[0][0][0] for size in again.nodes[0].outputs[0].shape)
    assert first is fourth
    assert len({first, second, third}) == 3
    assert [symbol.ends for symbol in (first, second, third)] == [(5, 9), (7,), ()]


def test_equal_elements_need_no_memory_until_they_are_used(tmp_path: Path) -> None:
    with Graph() as g:
        sg.Variable(np.ones((1 << 10, 1 << 10)), name="ones")
    sg.save_graph(tmp_path / "graph.sgt", g)
    text = (tmp_path / "graph.sgt").read_text().split("\n", 2)[2].replace("1024, 1024", f"{1 << 20}, {1 << 30}")
    graph = sg.parse(text)
    assert graph.variables["ones"].shape == (1 << 20, 1 << 30)
    assert str(graph) == text.rstrip()


def test_large_constants_of_equal_elements_lie_beside(tmp_path: Path) -> None:
    elements = MOST_EXPANDED // 8 * 2 // 3
    with Graph() as g:
        for _ in range(2):
            g.add(CONSTANT, (), ConstantAttributes(sg.float64, (elements,), bytes(8 * elements)))
    sg.save_graph(tmp_path / "graph.sgt", g)
    text = (tmp_path / "graph.sgt").read_text()
    assert (text.count("full(0.0)"), text.count("array(")) == (1, 1)
    assert [node.attrs for node in sg.load_graph(tmp_path / "graph.sgt").nodes] == [node.attrs for node in g.nodes]
    with pytest.raises(sg.FormatError, match="line 2: constants of equal elements of more than 67108864 bytes"):
        sg.parse("\n".join([line := str(g).split("\n")[0], line.replace("%constant ", "%constant_1 ")]))


# -- entries ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def net(g: Graph) -> Iterator[tuple[sg.Session, Tensor, Tensor, Node]]:
    """A session, a feed of an open size, a result and an update."""
    x = sg.placeholder((None, 2), name="x")
    w = sg.Variable(f32([1, 10], [2, 20]), name="w")
    y = x @ w
    train = sg.optim.SGD(lr=0.5).minimize(sg.sum(y))
    with sg.Session(g) as sess:
        yield sess, x, y, train


@pytest.mark.parametrize("form", FORMS)
def test_entries_are_arguments_of_compile(form: str, net: Any, tmp_path: Path) -> None:
    sess, x, y, train = net
    nest = {"y": y, "both": (y, [train, None]), "one": (x,)}
    sg.save_graph(tmp_path / f"g{form}", entries={
        "nest": (nest, [x]), "lone": (y, x), "known": (y, {x: (3, None)}), "nothing": ((), ()),
        "open": sess.compile(y, x), "fixed": sess.compile([y], {x: (4, 2)}),
    })  # fmt: skip
    again = sg.load_graph(tmp_path / f"g{form}")
    (fed,) = again.entries["lone"].feeds
    assert (fed.name, fed.graph) == ("x", again)
    assert again.entries["nest"].fetches == in_graph(again, nest)
    assert {name: list(entry.feeds.values()) for name, entry in again.entries.items()} == {
        "nest": [fed.shape], "lone": [fed.shape], "known": [(3, 2)], "nothing": [], "open": [fed.shape],
        "fixed": [(4, 2)],
    }  # fmt: skip
    with sg.Session(again) as other:
        step = other.compile(*again.entries["nest"])
        assert step([[1, 1]])["both"][0].tolist() == [[3, 30]]
        assert step([[1, 1]])["both"][0].tolist() == [[2, 29]]
    assert same(again, tmp_path / f"again{form}").entries.keys() == again.entries.keys()  # they are the graph's own
    assert not same(again, tmp_path / f"again{form}", entries={}).entries


def test_entries_are_a_part_of_the_text(net: Any) -> None:
    _, x, y, train = net
    y.graph.entries["a step"] = sg.graph.GraphEntry([y, train], {x: (3, 2)})
    text = str(y.graph)
    assert text.splitlines()[-1] == "entry 'a step' (%x[3, 2]) -> [%matmul, op %group]"
    assert str(sg.parse(text)) == text


def test_entries_of_other_graphs_and_other_things_are_refused(net: Any, tmp_path: Path) -> None:
    _, x, y, _ = net
    with Graph():
        foreign = sg.placeholder((2,), name="foreign")
    wrong: dict[str, Any] = {
        "'foreign' belongs to another graph": (foreign, [x]),
        "'foreign' belongs to": (y, [foreign]),
        r"expected an executable or \(fetches, feeds\), actual <tensor": y,
        r"of type float32\[.*\] cannot be fed the shape \(3, 3\)": (y, {x: (3, 3)}),
        r"cannot be fed the shape \(3,\)": (y, {x: (3,)}),
        "expected tensors to be fed once each": (y, [x, x]),
        "expected tensors and ops, actual 'x'": ("x", [x]),
        "dicts with texts as keys": ({1: y}, [x]),
    }
    for message, entry in wrong.items():
        with pytest.raises(sg.GraphError, match=message):
            sg.save_graph(tmp_path / "g.sgt", y.graph, entries={"e": entry})
    with pytest.raises(sg.GraphError, match="expected texts as names of entries, actual 1"):
        sg.save_graph(tmp_path / "g.sgt", y.graph, entries={1: (y, [x])})  # type: ignore[dict-item]
    assert not names_in(tmp_path)


# -- state ------------------------------------------------------------------------------------------------------------


def dropped(graph: Graph) -> tuple[Tensor, Node]:
    """A loss with random numbers, and an update."""
    with graph:
        w = sg.Variable(sg.init.normal(), shape=(300,), name="w")
        loss = sg.sum(sg.nn.dropout(w, 0.5) ** 2)
        return loss, sg.optim.Adam(lr=0.1).minimize(loss)


@pytest.mark.parametrize("form", FORMS)
def test_training_goes_on_bit_for_bit(form: str, tmp_path: Path) -> None:
    graph = Graph()
    loss, train = dropped(graph)
    path = tmp_path / f"net{form}"
    with sg.Session(graph, seed=7) as sess:
        step = sess.compile([loss, train])
        step()
        sg.save_graph(path, session=sess, entries={"step": step})
        expected = [step()[0].tobytes() for _ in range(3)]
    again = sg.load_graph(path)
    with sg.Session(again) as sess:
        assert sess.restore(path) == ([], [])
        step = sess.compile(*again.entries["step"])
        assert [step()[0].tobytes() for _ in range(3)] == expected
    with sg.Session(again, seed=7) as fresh:  # without the state: from the beginning
        assert fresh.compile(*again.entries["step"])()[0].tobytes() != expected[0]
    sg.save_graph(path, again)
    with sg.Session(again) as sess, pytest.raises(sg.FormatError, match="a graph without state"):
        sess.restore(path)


def test_a_graph_takes_the_state_of_another_program_by_name(tmp_path: Path) -> None:
    with Graph() as g:
        sg.Variable(f32(1, 2), name="w")
        sg.Variable(f32(3, 4), name="other")
    sg.save_graph(tmp_path / "g.sgb", session=sg.Session(g))
    with Graph() as h:
        w = sg.Variable(f32(0, 0), name="w")
    with sg.Session(h) as sess:
        with pytest.raises(sg.FormatError, match="other"):
            sess.restore(tmp_path / "g.sgb")
        sess.restore(tmp_path / "g.sgb", variables=w)
        assert sess.get(w).tolist() == [1, 2]


def test_a_session_is_one_of_the_graph(net: Any, tmp_path: Path) -> None:
    sess = net[0]
    with pytest.raises(sg.GraphError, match="a session of the graph"):
        sg.save_graph(tmp_path / "g.sgt", Graph(), session=sess)
    sess.close()
    with pytest.raises(sg.StaticGradError, match="closed"):
        sg.save_graph(tmp_path / "g.sgt", session=sess)
    with pytest.raises(sg.GraphError, match="expected a graph, actual 'g'"):
        sg.save_graph(tmp_path / "g.sgt", "g")  # type: ignore[arg-type]
    assert not names_in(tmp_path)


# -- what is no text --------------------------------------------------------------------------------------------------


def test_python_functions_are_refused_when_they_are_saved(tmp_path: Path) -> None:
    class Own:
        def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
            return np.zeros(shape, dtype)

    declared: dict[str, Callable[[Tensor], object]] = {
        "'py_call' cannot be saved: <function .*> is no text": lambda x: sg.py_call(np.sin, [x], [(sg.float32, (2,))]),
        "'x' cannot be saved: it has hooks": lambda x: x.register_hook(lambda grad: grad),
        "'w' cannot be saved: <Own> is no text": lambda x: sg.Variable(Own(), shape=(2,), name="w"),
    }
    for message, declare in declared.items():
        with Graph() as g:
            declare(sg.placeholder((2,), name="x", requires_grad=True))
        with pytest.raises(sg.GraphError, match=message.replace("<function .*>", "<.*>")) as caught:
            sg.save_graph(tmp_path / "g.sgt", g)
        assert caught.value.source is not None
    assert not names_in(tmp_path)


# -- files ------------------------------------------------------------------------------------------------------------


def graph_of(value: float) -> Graph:
    """A graph with a constant that lies beside a text."""
    with Graph() as g:
        sg.constant(np.arange(300.0) * value, name="c")
    return g


def value_of(graph: Graph) -> float:
    return float(np.frombuffer(graph.nodes[0].attrs.data)[1])


def test_a_text_names_the_arrays_beside_it_and_the_two_are_replaced_as_one(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    text = path.read_text()
    first, second, third = text.splitlines()[:3]
    assert first == "staticgrad graph 1"
    assert second.startswith("digest sha256 ")
    (arrays,) = beside(path)
    assert third.startswith(f"arrays {arrays.name} sha256 ")
    assert "%c = constant() Constant(data=array('c')) : float64[300]" in text
    kept = arrays.read_bytes()
    sg.save_graph(path, graph_of(2))
    assert len(names_in(tmp_path)) == 2
    assert value_of(sg.load_graph(path)) == 2
    # Where the second file was not yet written, the first graph is there as it was.
    arrays.write_bytes(kept)
    path.write_text(text)
    assert value_of(sg.load_graph(path)) == 1
    sg.save_graph(path, graph_of(1))  # over itself: the arrays stay, those that no text came to name go
    assert names_in(tmp_path) == {"net.sgt", arrays.name}
    with Graph() as small:
        sg.constant(1.0)
    sg.save_graph(path, small)
    assert names_in(tmp_path) == {"net.sgt"}


def test_files_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    theirs = ["net.sgt.safetensors", "net.sgt.000000000000.safetensors", "net.safetensors"]
    for name in theirs:
        (tmp_path / name).write_bytes(b"of somebody else's")
    digests = "0" * 64
    path.write_text(f"staticgrad graph 1\ndigest sha256 {digests}\narrays net.sgt.safetensors sha256 {digests}\n")
    sg.save_graph(path, graph_of(1))
    sg.save_graph(path, graph_of(2))
    assert names_in(tmp_path) >= set(theirs)
    assert len(names_in(tmp_path)) == len(theirs) + 2


def test_links_and_moved_files(tmp_path: Path) -> None:
    folder, other = tmp_path / "there", tmp_path / "elsewhere"
    folder.mkdir()
    sg.save_graph(folder / "a net.sgt", graph_of(3))
    assert beside(folder / "a_net.sgt")
    (tmp_path / "link.sgt").symlink_to(folder / "a net.sgt")
    assert value_of(sg.load_graph(tmp_path / "link.sgt")) == 3
    sg.save_graph(tmp_path / "link.sgt", graph_of(4))
    assert len(names_in(folder)) == 2
    folder.rename(other)
    assert value_of(sg.load_graph(other / "a net.sgt")) == 4
    beside(other / "a_net.sgt")[0].unlink()
    with pytest.raises(FileNotFoundError):
        sg.load_graph(other / "a net.sgt")


def test_a_binary_file_is_read_by_other_libraries(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    with Graph() as g:
        w = sg.Variable(np.zeros((2, 3), np.float32), name="w")
    with sg.Session(g) as sess:
        sess.set(w, np.ones((2, 3), np.float32))
        sg.save_graph(tmp_path / "g.sgb", session=sess)
    assert library.load_file(tmp_path / "g.sgb")["state/w"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "actual a directory"), ("", "expected the path of a file")):
        with pytest.raises(sg.FormatError, match=message):
            sg.load_graph(path)
        with pytest.raises(sg.FormatError, match=message):
            sg.save_graph(path, graph_of(1))
    with pytest.raises(FileNotFoundError):
        sg.load_graph(tmp_path / "nothing.sgt")
    with sg.Session(graph_of(1)) as sess:
        sess.save(tmp_path / "state.safetensors")
    with pytest.raises(sg.FormatError, match=r"actual staticgrad\.checkpoint\.2, which sess\.restore reads"):
        sg.load_graph(tmp_path / "state.safetensors")
    sg.save_graph(tmp_path / "net.sgt", graph_of(1))
    with pytest.raises(sg.FormatError, match="expected the file that they lie beside"):
        sg.load_graph(beside(tmp_path / "net.sgt")[0])


# -- versions, damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_each_version_compute_what_they_did(version: str, form: str) -> None:
    path = (FIXTURES / version).with_suffix(form)
    graph = sg.load_graph(path)
    known = json.loads((FIXTURES / f"{version}.json").read_text())
    found = saved_graphs.figures(graph, path)
    assert found.keys() == known.keys()
    for name, figures in known.items():
        expected, actual = (np.array(sg.nest.flatten(values)) for values in (figures, found[name]))
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6, err_msg=name)


def test_there_are_files_of_this_version_and_they_are_what_would_be_written(tmp_path: Path) -> None:
    assert [f"version{number}" for number in range(1, graphfile.VERSION + 1)] == VERSIONS
    graph, _ = saved_graphs.declared()
    loaded = sg.load_graph(FIXTURES / f"version{graphfile.VERSION}.sgt")
    assert loaded.text(full=True).startswith(graph.text(full=True) + "\nentry ")


@pytest.mark.parametrize("form", FORMS)
def test_files_of_newer_versions_are_refused(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"net{form}"
    monkeypatch.setattr(graphfile, "VERSION", 7)
    graph = graph_of(1)
    sg.save_graph(path, graph, session=sg.Session(graph))
    assert value_of(sg.load_graph(path)) == 1
    monkeypatch.undo()
    expected = "expected a graph of version 1 or older, actual 7: it was written by a newer staticgrad"
    with pytest.raises(sg.FormatError, match=expected):
        sg.load_graph(path)
    with sg.Session(graph) as sess, pytest.raises(sg.FormatError, match=expected):
        sess.restore(path)


@pytest.mark.parametrize("form", FORMS)
def test_every_bit_counts(form: str, tmp_path: Path) -> None:
    """A file with another bit is refused, and one without its end."""
    with Graph() as g:
        sg.Variable(np.arange(20, dtype=np.int8), name="w")
    path = tmp_path / f"net{form}"
    sg.save_graph(path, session=sg.Session(g))
    for file in (path, *beside(path)):
        whole = file.read_bytes()
        for place in range(0, 8 * len(whole), 13):  # all bits of bytes, and bytes of all kinds
            data = bytearray(whole)
            data[place // 8] ^= 1 << place % 8
            for damaged in (bytes(data), whole[: max(1, place // 8)]) if place % 5 == 0 else (bytes(data),):
                file.unlink()
                file.write_bytes(damaged)
                with pytest.raises(sg.FormatError):
                    sg.load_graph(path)
        file.write_bytes(whole)
    sg.load_graph(path)


def test_an_edited_text_is_read_without_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(5))
    text = path.read_text()
    path.write_bytes(text.replace("\n", "\r\n").encode())  # ends of lines are no damage
    assert value_of(sg.load_graph(path)) == 5
    path.write_text(text.replace("%c = ", "%renamed = "))
    with pytest.raises(sg.FormatError, match=r"damaged, or was edited(.|\n)*without its second line it is read"):
        sg.load_graph(path)
    first, _, rest = text.replace("%c = ", "%renamed = ").split("\n", 2)
    path.write_text(f"{first}\n{rest}")
    assert sg.load_graph(path).nodes[0].name == "renamed"
    path.write_text(f"{first}\n{rest}%wrong\n")
    with pytest.raises(sg.FormatError, match=r"net\.sgt: line 4: expected '='"):
        sg.load_graph(path)


def test_a_text_without_a_header_is_read(tmp_path: Path) -> None:
    g = graph_of(6)
    (tmp_path / "net.txt").write_text(g.text(full=True))
    assert value_of(sg.load_graph(tmp_path / "net.txt")) == 6


def test_arrays_of_another_graph_and_other_folders_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    first, _, named, rest = path.read_text().split("\n", 3)
    (arrays,) = beside(path)
    sg.save_graph(tmp_path / "other.sgt", graph_of(2))
    (other,) = beside(tmp_path / "other.sgt")
    arrays.write_bytes(other.read_bytes())
    with pytest.raises(sg.FormatError, match=r"the arrays of another graph than .*net\.sgt"):
        sg.load_graph(path)
    for name in ("../secret", "/etc/passwd", "..", "a\\b", "c:d", "a\0b", "n" * 256):
        path.write_text("\n".join([first, named.replace(arrays.name, name), rest]))
        with pytest.raises(sg.FormatError, match="expected the name of a file of arrays in the same folder"):
            sg.load_graph(path)


def container(path: Path, values: dict[str, Array], **notes: str) -> None:
    """A file of arrays whose digest is right."""
    known = {"format": "staticgrad.graph.1", **notes}
    path.write_bytes(tensorfile.to_bytes(values, known | {"digest": tensorfile.digest_of(values, known)}))


ONE = "%c = constant() Constant(data=array('c')) : float32[2]\n"
WRONG_ARRAYS: dict[str, tuple[dict[str, Array], dict[str, str]]] = {
    "line 1: there is no array 'c' beside": ({}, {"graph": ONE}),
    "array 'c': expected float32[2], actual float64[2]": ({"array/c": np.zeros(2)}, {"graph": ONE}),
    "array 'c': expected float32[2], actual float32[3]": ({"array/c": f32(1, 2, 3)}, {"graph": ONE}),
    "the text does not read the array 'd'": ({"array/c": f32(1, 2), "array/d": f32(1)}, {"graph": ONE}),
    "line 2: there is no array 'c' beside the text, or it was read before": (
        {"array/c": f32(1, 2)}, {"graph": ONE + ONE.replace("%c", "%d")}),
    "a byte above 1 is no truth value": (
        {"array/c": np.array([2, 0], np.uint8).view(bool)}, {"graph": ONE.replace("float32", "bool")}),
    "neither the graph's nor a session's": ({"c": f32(1, 2)}, {"graph": ""}),
    "variables of a session without its random state": ({"state/c": f32(1, 2)}, {"graph": ""}),
    "the note of the state is damaged": ({}, {"graph": "", "state": "{"}),
    "the note of the state is no object of JSON": ({}, {"graph": "", "state": "[1]"}),
    "actual staticgrad.graph.x": ({}, {"format": "staticgrad.graph.x"}),
    "version 1 or older, actual 0": ({}, {"format": "staticgrad.graph.0", "graph": ""}),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG_ARRAYS)
def test_arrays_that_are_not_those_of_the_text_are_refused(message: str, tmp_path: Path) -> None:
    values, notes = WRONG_ARRAYS[message]
    container(tmp_path / "g.sgb", values, **notes)
    with pytest.raises(sg.FormatError) as caught:
        sg.load_graph(tmp_path / "g.sgb")
    assert message in str(caught.value)


X = "%x = placeholder() Source : float32[n]\n"
HOSTILE = {
    "a size beyond all memory": "%x = full() Full(value=0.0) : float32[999999999999, 999999999999]",
    "equal elements beyond memory": f"%c = constant() Constant(data=full(0.0)) : float32[{1 << 50}]",
    "equal elements again and again": "".join(
        f"%c{i} = constant() Constant(data=full(0.0)) : float32[{1 << 20}]\n" for i in range(100)
    ),
    "a product of many numbers": f"%x = placeholder() Source : float32[{'*'.join(['9'] * 100_000)}]",
    "a product of many sizes": f"%x = placeholder() Source : float32[{'*'.join(['n'] * 100_000)}]",
    "a power of a sum": f"%x = placeholder() Source : float32[{'*'.join(['(a + b + c + d + e + f + g)'] * 40)}]",
    "quotients of quotients": f"%x = placeholder() Source : float32[{'//'.join(['n'] * 50_000 + ['m'] * 50_000)}]",
    "a number of many digits": f"%x = placeholder() Source : float32[{'9' * 1_000_000}]",
    "many signs": f"%x = full() Full(value={'-' * 1_000_000}1.0) : float32[2]",
    "many parentheses": f"%x = full() Full(value={'(' * 1_000_000}1.0) : float32[2]",
    "a string without an end": "%'" + "a\\" * 500_000,
    "an object without an end": f"%x = full() Full(value={'<' * 1_000_000}",
    "bodies in bodies": "".join(f"body {i} {{\n" for i in range(1, 100_000)),
    "bodies after bodies": "body 1 {\n" + X.replace("x", "x0") + "} () -> ()\n" + "".join(
        f"body {i + 1} of {i} {{\n{X.replace('x', f'x{i}')}}} () -> ()\n" for i in range(1, 4000)
    ),
    "a nest in nests": X + f"entry 'e' () -> {'[' * 100_000}",
    "an entry twice": X + "entry 'e' () -> %x\nentry 'e' () -> %x",
    "an entry in a body": "body 1 {\n" + X + "entry 'e' () -> %x\n} () -> ()",
    "a feed twice": X + "entry 'e' (%x, %x) -> %x",
    "a feed of another shape": X + "entry 'e' (%x[2, 3]) -> %x",
    "a feed of a negative size": X + "entry 'e' (%x[-2]) -> %x",
    "a key twice": X + "entry 'e' () -> {'a': %x, 'a': %x}",
    "an escape that repr does not write": X + r"entry '\N{BULLET}' () -> %x",
    "a truth value above 1": "%c = constant() Constant(data=base64('AgMAAQ==')) : bool[4]",
    "a character beyond all": X + r"entry '\UFFFFFFFF' () -> %x".lower().replace(r"\u", r"\U"),
}  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("what", HOSTILE)
def test_texts_that_mean_ill_are_refused_at_once(what: str, tmp_path: Path) -> None:
    (tmp_path / "g.sgt").write_text("staticgrad graph 1\n" + HOSTILE[what])
    with pytest.raises(sg.FormatError):
        sg.load_graph(tmp_path / "g.sgt")


def damage(folder: Path, seed: int, count: int) -> tuple[int, int]:
    """How many of so many damaged files were refused, and how many gave a graph; anything else is an error here."""
    originals, draw = Originals(folder), random.Random(seed)
    refused = 0
    for _ in range(count):
        path = originals.damaged(draw)
        try:
            sg.load_graph(path)
        except sg.FormatError:
            refused += 1
    return refused, count - refused


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    refused, read = damage(tmp_path, 0, 2000)
    assert refused > 1700
    assert read > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_damaged_files_are_refused_or_read(seed: int, tmp_path: Path) -> None:
    refused, read = damage(tmp_path, seed, 10_000)
    assert refused > 8500
    assert read > 100
