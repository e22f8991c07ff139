"""Exported programs: C calls them without Python and without a compiler, and they give what the session gives."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import sizes
from staticgrad.compiler.native import linked
from staticgrad.graph.graph import Graph
from staticgrad.runtime.export.interface import Entry, from_plain, to_plain
from staticgrad.runtime.export.report import ExportReport
from staticgrad.runtime.running.state import aligned_empty

Array = np.ndarray[Any, np.dtype[Any]]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


class Loaded:
    """A shared library of an export, called by ctypes, with a state of its own."""

    def __init__(self, report: ExportReport) -> None:
        self.interface = report.interface
        self.library = ctypes.CDLL(str(report.files[0]))
        state = self.interface.state
        self.state = aligned_empty((state.nbytes,), np.dtype(np.uint8))
        if state.nbytes:
            initial = (ctypes.c_ubyte * state.nbytes).in_dll(self.library, f"{self.interface.name}_initial_state")
            self.state[:] = np.frombuffer(initial, np.uint8)

    def variable(self, name: str) -> Array:
        array = next(array for array in self.interface.state.arrays if array.name == name)
        found = self.state[array.offset : array.offset + array.type.nbytes]
        return found.view(array.type.dtype).reshape(sizes(array.type.shape))

    def call(self, name: str, *feeds: Array) -> list[Array]:
        """Run an entry; it must succeed."""
        status, results = self.run(name, *feeds)
        assert status == 0
        return results

    def run(self, name: str, *feeds: Array) -> tuple[int, list[Array]]:
        entry: Entry = next(entry for entry in self.interface.entries if entry.name == name)
        given = [np.ascontiguousarray(x, t.type.dtype) for x, t in zip(feeds, entry.feeds, strict=True)]
        results = [np.full(t.type.nbytes, 0xFF, np.uint8).view(t.type.dtype) for t in entry.results]
        results = [x.reshape(sizes(t.type.shape)) for x, t in zip(results, entry.results, strict=True)]
        workspace = aligned_empty((max(entry.workspace_bytes, 1),), np.dtype(np.uint8))
        workspace[:] = 0xFF
        status: int = getattr(self.library, name)(
            table(given),
            table(results),
            ctypes.c_void_p(workspace.ctypes.data),
            ctypes.c_void_p(self.state.ctypes.data),
        )
        return status, results


def table(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(x.ctypes.data for x in arrays))


def net() -> tuple[sg.Session, dict[str, sg.Executable], Callable[[int], tuple[Array, Array]]]:
    """A small classifier with dropout: a training step and predictions, and batches for them."""
    with Graph() as graph:
        x, labels = sg.placeholder((8, 20), name="x"), sg.placeholder((8,), sg.int64, name="labels")
        hidden, out = sg.nn.Linear(20, 16), sg.nn.Linear(16, 4)
        logits = out(sg.nn.relu(hidden(x)))
        dropped = out(sg.nn.dropout(sg.nn.relu(hidden(x)), 0.3))
        loss = sg.nn.cross_entropy(dropped, labels)
        train = sg.optim.Adam(0.01).minimize(loss)
    session = sg.Session(graph, seed=3)
    executables = {
        "train_step": session.compile({"loss": loss, "op": train}, [x, labels]),
        "predict": session.compile([logits, (logits, sg.argmax(logits, 1))], x),
    }
    rng = np.random.default_rng(5)

    def batch(_: int) -> tuple[Array, Array]:
        return rng.normal(size=(8, 20)).astype(np.float32), rng.integers(0, 4, 8)

    return session, executables, batch


# -- called from C ----------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_a_training_step_in_a_shared_library_gives_the_session_s_bits(optimize: Any, tmp_path: Path) -> None:
    session, executables, batch = net()
    batches = [batch(n) for n in range(20)]
    executables["train_step"](*batches[0])  # the state is that of now
    loaded = Loaded(sg.export(tmp_path / "net.so", executables, "shared", optimize=optimize))
    for x, labels in batches:
        (loss,) = loaded.call("train_step", x, labels)
        wanted = executables["train_step"](x, labels)["loss"]
        if optimize == "speed":
            assert loss == wanted
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
        first, again, classes = loaded.call("predict", x)
        logits, (_, chosen) = executables["predict"](x)
        np.testing.assert_allclose(first, logits, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(classes, chosen)
    for array in loaded.interface.state.arrays:
        np.testing.assert_allclose(loaded.variable(array.name), session.store.array(array.name), rtol=1e-4, atol=1e-6)


@needs_compiler
def test_a_check_that_fails_gives_its_number_and_writes_no_state(tmp_path: Path) -> None:
    _, executables, batch = net()
    loaded = Loaded(sg.export(tmp_path / "net.so", executables, "shared"))
    x, labels = batch(0)
    before = loaded.state.copy()
    status, _ = loaded.run("train_step", x, labels + 4)
    assert status == 1
    assert "label" in next(entry for entry in loaded.interface.entries if entry.name == "train_step").checks[0].message
    np.testing.assert_array_equal(loaded.state, before)


@needs_compiler
def test_null_pointers_are_refused(tmp_path: Path) -> None:
    _, executables, batch = net()
    report = sg.export(tmp_path / "net.so", executables, "shared")
    loaded = Loaded(report)
    x, labels = batch(0)
    workspace = aligned_empty((report.interface.entries[0].workspace_bytes,), np.dtype(np.uint8))
    loss = np.zeros((), np.float32)
    given = [table([x, labels]), table([loss]), ctypes.c_void_p(workspace.ctypes.data),
             ctypes.c_void_p(loaded.state.ctypes.data)]  # fmt: skip
    assert loaded.library.train_step(*given) == 0
    for place in range(4):
        assert loaded.library.train_step(*(None if n == place else value for n, value in enumerate(given))) == -1
    missing = (ctypes.c_void_p * 2)(x.ctypes.data, None)
    assert loaded.library.train_step(missing, *given[1:]) == -1


MAIN = """
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"
#if defined(__cplusplus)
#define ALIGNED alignas(64)
#else
#define ALIGNED _Alignas(64)
#endif
ALIGNED static unsigned char state[ONE_STATE_BYTES], workspace[STEP_WORKSPACE_BYTES + TWICE_WORKSPACE_BYTES + 1];
int main(void) {
    float x[3] = {1, 2, 3}, y[3], loss;
    const void *in[STEP_INS] = {x};
    void *out[STEP_OUTS] = {&loss}, *twice_out[TWICE_OUTS] = {y};
    memcpy(state, one_initial_state, sizeof state);
    for (int i = 0; i < 3; i++) {
        if (step(in, out, workspace, state)) return 1;
        printf("%.9g\\n", (double)loss);
    }
    if (twice(in, twice_out, workspace, NULL)) return 2;
    printf("%.9g %.9g %.9g\\n", (double)y[0], (double)y[1], (double)y[2]);
    float w[3];
    memcpy(w, state + ONE_STATE_W, sizeof w);
    printf("%.9g\\n", (double)w[2]);
    return 0;
}
"""


def descent() -> dict[str, sg.Executable]:
    with Graph() as graph:
        x, w = sg.placeholder((3,), name="x"), sg.Variable(np.zeros(3, np.float32), name="w")
        loss = sg.sum((w - x) ** 2)
        train = sg.optim.SGD(0.125).minimize(loss)
    return {"step": sg.Session(graph).compile([loss, train], x)}


def doubled() -> dict[str, sg.Executable]:
    with Graph() as graph:
        x = sg.placeholder((3,), name="x")
    return {"twice": sg.Session(graph).compile(x * 2, x)}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("language", [("c", "-std=c11"), ("c++", "-std=c++11")])
def test_objects_and_headers_compile_at_the_strictest_warnings_side_by_side(
    compiler: str, language: tuple[str, str], tmp_path: Path
) -> None:
    for name, executables in (("one", descent()), ("two", doubled())):
        sg.export(tmp_path / f"{name}.o", executables)
    (tmp_path / "main.c").write_text(MAIN)
    kind, standard = language
    command = [compiler, *STRICT, standard, "-x", kind, "main.c", "-x", "none", "one.o", "two.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    step = descent()["step"]
    losses = [float(step(np.array([1, 2, 3], np.float32))[0]) for _ in range(3)]
    np.testing.assert_allclose([float(x) for x in printed], [*losses, 2, 4, 6, 3 * (1 - 0.75**3)], rtol=1e-6)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_are_c99(compiler: str, tmp_path: Path) -> None:
    _, executables, _ = net()
    sg.export(tmp_path / "net.o", executables)
    (tmp_path / "c.c").write_text('#include "net.h"\nint unused;\n')
    subprocess.run([compiler, *STRICT, "-std=c99", "-c", "c.c"], cwd=tmp_path, check=True)


@needs_compiler
@pytest.mark.parametrize("target", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_an_object_needs_memcpy_and_the_like_alone(target: str, optimize: Any, tmp_path: Path) -> None:
    _, executables, _ = net()
    report = sg.export(tmp_path / "net.o", executables, target=target, optimize=optimize)
    listed = subprocess.run(["nm", report.files[0]], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-2:] for line in listed.splitlines()]
    assert {name for kind, name in symbols if kind == "U"} <= {"memcpy", "memmove", "memset"}
    assert {name for kind, name in symbols if kind.isupper() and kind != "U"} == {
        "train_step", "predict", "net_initial_state"
    }  # fmt: skip


def numbers(expression: Callable[..., sg.Tensor], *names: str, size: tuple[int, ...] = ()) -> sg.Executable:
    with Graph() as graph:
        xs = [sg.placeholder(size, sg.float64, name=name) for name in names]
        y = expression(*xs)
    return sg.Session(graph).compile(y, xs)


@needs_compiler
def test_other_signatures_need_no_memory_of_the_caller(tmp_path: Path) -> None:
    with Graph() as graph:
        x, w = sg.placeholder((3,), sg.float64, name="x"), sg.Variable(np.array([1.0, 2.0, 3.0]), name="w")
        logp = sg.Session(graph).compile(-sg.sum(w * x * x), x)
    report = logp.export(tmp_path / "density.so", "shared", signature="logp")
    function = ctypes.CDLL(str(report.files[0])).density
    at, slope, value = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(1)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (at, slope, value)]
    assert function(ctypes.c_size_t(3), *pointers, None) == 0
    assert value[0] == -36
    np.testing.assert_array_equal(slope, [-2, -8, -18])
    assert (
        "int density(size_t n, const double *x, double *grad, double *value, void *user);"
        in (tmp_path / "density.h").read_text()
    )
    scalar = numbers(lambda x: sg.exp(-x * x), "x").export(tmp_path / "gauss.so", "shared", signature="scalar")
    gauss = ctypes.CDLL(str(scalar.files[0])).gauss
    gauss.restype, gauss.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_void_p]
    assert gauss(0.5, None) == pytest.approx(np.exp(-0.25), rel=1e-15)


POOL = """
#include <pthread.h>
#include <string.h>
#include "wide.h"
struct pool {
    struct staticgrad_threads threads;
    pthread_mutex_t lock;
    int64_t next, chunks, ran;
    staticgrad_part *part;
    void *table;
};
struct job { struct pool *pool; int64_t worker; };
static void *work(void *given) {
    struct job *job = (struct job *)given;
    for (;;) {
        pthread_mutex_lock(&job->pool->lock);
        int64_t chunk = job->pool->next++;
        pthread_mutex_unlock(&job->pool->lock);
        if (chunk >= job->pool->chunks) return NULL;
        job->pool->part(job->pool->table, chunk, job->worker);
    }
}
static void run(struct staticgrad_threads *threads, staticgrad_part *part, void *table, int64_t chunks) {
    struct pool *pool = (struct pool *)threads;
    pthread_t other[3];
    struct job jobs[4];
    pool->next = 0, pool->chunks = chunks, pool->part = part, pool->table = table, pool->ran += chunks;
    for (int i = 0; i < 4; i++) jobs[i].pool = pool, jobs[i].worker = i;
    for (int i = 0; i < 3; i++) pthread_create(&other[i], NULL, work, &jobs[i + 1]);
    work(&jobs[0]);
    for (int i = 0; i < 3; i++) pthread_join(other[i], NULL);
}
static int poll(struct staticgrad_threads *threads) { (void)threads; return 0; }
int on_four(const void *const *in, void *const *out, void *workspace, void *state, int64_t *ran) {
    struct pool pool = {{run, poll, 0, 0}, PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, NULL, NULL};
    int status = wide_on_threads(in, out, workspace, state, &pool.threads);
    *ran = pool.ran;
    return status;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS[:1])
def test_threads_of_the_caller_share_the_work_and_change_no_bit(compiler: str, tmp_path: Path) -> None:
    with Graph() as graph:
        x, w = sg.placeholder((256, 300), name="x"), sg.Variable(np.full((300, 257), 0.01, np.float32), name="w")
        y = sg.nn.softmax(sg.exp(x @ w), -1)
    executable = sg.Session(graph).compile([y, sg.sum(y)], x)
    report = executable.export(tmp_path / "wide.o", threads=4)
    (tmp_path / "pool.c").write_text(POOL)
    command = [compiler, *STRICT, "-shared", "-fPIC", "-pthread", "pool.c", "wide.o", "-o", "wide.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    loaded = Loaded(replace(report, files=(tmp_path / "wide.so",)))
    given = np.random.default_rng(0).normal(size=(256, 300)).astype(np.float32)
    alone = loaded.call("wide", given)
    np.testing.assert_array_equal(alone[0], executable(given)[0])
    ran = ctypes.c_int64()
    loaded.library.wide_here = lambda *call: loaded.library.on_four(*call, ctypes.byref(ran))
    loaded.interface = replace(loaded.interface, entries=(replace(report.interface.entries[0], name="wide_here"),))
    for got, want in zip(loaded.call("wide_here", given), alone, strict=True):
        np.testing.assert_array_equal(got, want)
    assert ran.value >= 4


# -- files ------------------------------------------------------------------------------------------------------------


def test_llvm_text_and_bitcode(tmp_path: Path) -> None:
    report = sg.export(tmp_path / "step.ll", descent(), "llvm")
    assert re.search(
        r"^define .*i32 @step\(ptr .*%p0, ptr .*%p1, ptr .*%p2, ptr .*%p3\)", report.files[0].read_text(), re.MULTILINE
    )
    bitcode = sg.export(tmp_path / "step.bc", descent(), "llvm").files[0].read_bytes()
    assert bitcode[:2] == b"BC"


def test_the_state_may_be_a_file(tmp_path: Path) -> None:
    _, executables, _ = net()
    report = sg.export(tmp_path / "net.o", executables, initial_state="file")
    assert [file.name for file in report.files] == ["net.o", "net.h", "net.state"]
    assert report.files[2].stat().st_size == report.interface.state.nbytes
    assert "net_initial_state" not in report.files[1].read_text()
    in_object = sg.export(tmp_path / "other.o", executables)
    assert in_object.constant_bytes - report.constant_bytes >= report.interface.state.nbytes


def test_a_report_says_what_lies_in_flash_and_what_in_ram(tmp_path: Path) -> None:
    _, executables, _ = net()
    report = sg.export(tmp_path / "net.o", executables)
    spaces = [entry.workspace_bytes for entry in report.interface.entries]
    assert report.ram_bytes == report.interface.state.nbytes + max(spaces)
    assert report.flash_bytes == report.code_bytes + report.constant_bytes > report.interface.state.nbytes
    assert re.search(rf"^RAM +{report.ram_bytes} ", str(report), re.MULTILINE)


def test_the_interface_is_the_same_after_json(tmp_path: Path) -> None:
    _, executables, _ = net()
    interface = sg.export(tmp_path / "net.o", executables).interface
    assert from_plain(to_plain(interface)) == interface
    assert interface.entries[0].structure == ["dict", ["loss", "op"], 0, None]
    assert interface.entries[1].structure == ["list", 0, ["tuple", 1, 2]]
    assert [x.name for x in interface.entries[0].results] == ["loss"]
    assert [x.name for x in interface.entries[1].results] == ["linear_1", "linear_1", "argmax"]


# -- what is refused --------------------------------------------------------------------------------------------------


def refused(match: str, entries: Mapping[str, sg.Executable], path: Path, **how: Any) -> None:
    with pytest.raises(sg.StaticGradError, match=match):
        sg.export(path, entries, **how)
    assert not list(path.parent.iterdir())


def test_what_cannot_be_exported_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.o"
    entries = doubled()
    refused("format: expected one of 'object', .* actual 'elf'", entries, path, format="elf")
    refused("target 'z80': expected one of", entries, path, target="z80")
    refused("optimize: expected one of", entries, path, optimize="fast")
    refused("expected one target", entries, path, target=["avx2", "generic"])
    refused("a name that C allows", {"two words": entries["twice"]}, path)
    refused("a name that C allows", {"for": entries["twice"]}, path)
    refused("executables by the names", {}, path)
    refused("executables of one session", {"a": entries["twice"], "b": doubled()["twice"]}, path)
    with Graph() as graph:
        x = sg.placeholder((2,), name="x")
        called = sg.py_call(lambda a: a, [x], [(x.dtype, x.shape)])
        open_size = sg.placeholder((None,), name="open")
    session = sg.Session(graph)
    refused("calls Python", {"f": session.compile(called, x)}, path)
    refused("sizes of the feeds are open", {"f": session.compile(open_size * 2, open_size)}, path)
    noisy = numbers(lambda x: x + sg.random.normal((), dtype=sg.float64), "x")
    with pytest.raises(sg.GraphError, match="random numbers, which need a state"):
        noisy.export(path, signature="scalar")
    large = numbers(lambda x: sg.sum(sg.sort(x @ x) @ x), "x", size=(100, 100))
    with pytest.raises(sg.GraphError, match="bytes of the stack"):
        large.export(path, signature="scalars")


def test_a_program_of_another_signature_was_written_and_could_not_be_loaded(tmp_path: Path) -> None:
    gauss = numbers(lambda x: sg.exp(-x * x), "x")
    with pytest.raises(sg.StaticGradError, match="a 'program' has functions of 'slots', actual signature 'scalar'"):
        gauss.export(tmp_path / "gauss", "program", signature="scalar")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("signature", ["casadi", "logp"])
def test_a_refused_export_declares_nothing_in_the_graph(signature: Any, tmp_path: Path) -> None:
    gauss = numbers(lambda x: sg.exp(-x * x), "x")
    before = str(gauss.feeds[0].graph)
    for wrong in ({"format": "program"}, {"target": "z80"}, {"name": "for"}, {"optimize": "fast"}):
        with pytest.raises(sg.StaticGradError):
            gauss.export(tmp_path / "gauss.so", **{"format": "shared", **wrong}, signature=signature)
    with pytest.raises(sg.StaticGradError):
        gauss.export(tmp_path / "gauss.h", "object", signature="logp")
    assert str(gauss.feeds[0].graph) == before


def test_without_a_compiler_a_shared_library_names_other_formats(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    refused(
        'no compiler that links .* export an "object", or a "program"', doubled(), tmp_path / "a.so", format="shared"
    )


def test_an_export_that_fails_leaves_nothing_of_llvm_to_the_garbage_collector(monkeypatch: Any, tmp_path: Path) -> None:
    """A context that was given back before the modules in it has ended the process, at some later collection."""
    from llvmlite.binding.ffi import ObjectRef

    made: list[Any] = []
    real = ObjectRef.__init__

    def noted(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        made.append(self)

    monkeypatch.setattr(ObjectRef, "__init__", noted)
    sg.export(tmp_path / "step.ll", descent(), "llvm")
    monkeypatch.setattr(linked, "_section_bytes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sg.export(tmp_path / "step.o", descent())
    kinds = [type(one).__name__ for one in made if one._owned and not one._closed]
    assert {"ModuleRef", "ContextRef", "TargetMachine"} <= {type(one).__name__ for one in made}
    assert not {"ModuleRef", "ContextRef", "TargetMachine", "PassBuilder"} & set(kinds)
