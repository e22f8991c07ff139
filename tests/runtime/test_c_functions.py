"""Programs called from C: each signature, threads, guard pages, sanitizers, what is wrong with a call, state, SciPy."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize
from source_tree import TESTS
from support.callers import COMPILER, STRICT, address, built, call_at_once, doubles, loaded, programs, slots
from support.sanitized import HERE

import staticgrad as sg
from staticgrad.runtime.callers.cfunction import SIGNATURES
from staticgrad.runtime.parts import vectorcall

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


@pytest.fixture(scope="session")
def callers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of ``support/callers.c``."""
    return loaded(built(tmp_path_factory.mktemp("callers")))


# -- all signatures, many threads -------------------------------------------------------------------------------------


def test_eight_threads_call_each_signature_between_guard_pages(callers: ctypes.CDLL) -> None:
    tried = set()
    for name, (function, arrays, expected) in programs().items():
        assert call_at_once(callers, function, arrays, expected) == 0, name
        tried.add(function.signature)
    assert tried == {signature.text for signature in SIGNATURES.values()}


SANITIZERS = {"thread": ("libtsan.so", "data race"), "address": ("libasan.so", "heap-buffer-overflow")}


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["thread", pytest.param("address", marks=pytest.mark.slow)])
def test_sanitizers_see_nothing_but_what_is_wrong(kind: str, tmp_path: Path) -> None:
    """Caller and program are instrumented. The last calls of the process are wrong on purpose and must be reported."""
    assert COMPILER is not None
    if vectorcall.IS_FREE_THREADED:
        pytest.skip("without the GIL the interpreter's own memory is what is found")
    library, finding = SANITIZERS[kind]
    first = subprocess.run([COMPILER, f"-print-file-name={library}"], capture_output=True, text=True).stdout.strip()
    if sys.platform != "linux" or not Path(first).is_absolute():
        pytest.skip(f"there is no {library}")
    script = TESTS / "support" / "sanitized.py"
    command = [sys.executable, str(script), kind, str(built(tmp_path, f"-fsanitize={kind}"))]
    fixed = shutil.which("setarch")  # an address space as the older libraries expect it
    if fixed and subprocess.run([fixed, "-R", "true"], capture_output=True).returncode == 0:
        command = [fixed, "-R", *command]
    variables = {
        **os.environ, "LD_PRELOAD": first, "PYTHONPATH": str(TESTS), "PYTHONMALLOC": "malloc",
        "STATICGRAD_CACHE": "0", "ASAN_OPTIONS": "detect_leaks=0",
    }  # fmt: skip
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip(f"{library} does not know this system's address space")
    before, here, after = done.stderr.partition(HERE)
    assert here, done.stderr
    assert "Sanitizer" not in before, before
    assert finding in after, after
    assert done.returncode != 0


# -- slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [5, 40, 300])  # scratch on the stack, and in a block of the thread
def test_raw_gives_what_the_executable_gives(width: int) -> None:
    function, arrays, expected = slots(width)
    results = [np.zeros_like(value) for value in expected]
    assert function.raw(*arrays, *results) == 0
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_threads_that_end_give_up_their_blocks() -> None:
    x = sg.placeholder((300, 300), sg.float64)
    executable = sg.Session().compile(sg.sort(x @ x, 1) @ x, x)
    assert executable.memory.arena_bytes > 64 << 10
    function = executable.cfunc("slots")
    a = np.random.default_rng(0).normal(size=(300, 300))
    wanted, found = executable(a), [np.zeros((300, 300)) for _ in range(40)]
    for out in found:
        thread = threading.Thread(target=function.raw, args=(a, out))
        thread.start()
        thread.join()
    for out in found:
        np.testing.assert_array_equal(out, wanted)


def test_missing_arrays_are_wrong_calls() -> None:
    x, y = sg.placeholder((2,)), sg.placeholder((2,))
    function = sg.Session().compile([x + y, x * y], [x, y]).cfunc("slots")
    arrays = [np.ones(2, np.float32) for _ in range(4)]
    tables = [(ctypes.c_void_p * 2)(*(a.ctypes.data for a in pair)) for pair in (arrays[:2], arrays[2:])]
    addresses = [ctypes.addressof(table) for table in tables]
    assert function.ctypes(*addresses, None) == 0
    for missing in itertools.product(range(2), range(2)):
        table, place = tables[missing[0]], missing[1]
        kept, table[place] = table[place], None
        assert function.ctypes(*addresses, None) == -1
        table[place] = kept
    assert function.ctypes(None, addresses[1], None) == -1
    assert function.ctypes(addresses[0], None, None) == -1


def test_raw_checks_arrays() -> None:
    x = sg.placeholder((2,), name="x")
    function = sg.Session().compile(x * 2, x).cfunc("slots")
    one = np.ones(2, np.float32)
    with pytest.raises(sg.GraphError, match=r"expected 1 feeds and 1 results, actual 1 arrays"):
        function.raw(one)
    for wrong in (np.ones(2), np.ones(3, np.float32), np.ones(4, np.float32)[::2]):
        with pytest.raises(sg.GraphError, match=r"raw: x: expected a C-contiguous float32\[2\]"):
            function.raw(wrong, one)
    z = sg.placeholder((), sg.float64)
    doubled = sg.Session().compile(z * 2, z).cfunc("scalar")
    with pytest.raises(sg.GraphError, match="expected a function of signature 'slots', actual 'scalar'"):
        doubled.raw()


# -- numbers and gradients --------------------------------------------------------------------------------------------


def normal(x: sg.Tensor, center: Any) -> sg.Tensor:
    return -0.5 * sg.sum((x - center) ** 2)


@pytest.mark.parametrize("given", ["value", "both", "turned"])
def test_a_density_and_its_gradient(callers: ctypes.CDLL, given: str) -> None:
    x = sg.placeholder((3,), sg.float64, name="x")
    y = normal(x, doubles(1, 2, 3))
    fetches: Any = y if given == "value" else [y, *sg.gradients(y, [x])]
    function = sg.Session().compile(fetches[::-1] if given == "turned" else fetches, x).cfunc("logp")
    at, grad, value = doubles(0, 0, 0), np.zeros(3), np.zeros(1)
    assert function.ctypes(3, *map(address, (at, grad, value)), None) == 0
    np.testing.assert_allclose((value[0], *grad), (-7, 1, 2, 3))
    assert function.ctypes(3, address(at), None, address(value), None) == 0
    for wrong in ((2, at, grad, value), (4, at, grad, value), (3, None, grad, value), (3, at, grad, None)):
        assert function.ctypes(wrong[0], *map(address, wrong[1:]), None) == -1
    assert callers.climb(ctypes.c_void_p(function.address), ctypes.c_size_t(3), at.ctypes.data_as(ctypes.c_void_p),
                         ctypes.c_double(0.5), 60, None) == 0  # fmt: skip
    np.testing.assert_allclose(at, (1, 2, 3), rtol=1e-12)


def test_data_that_the_user_hands_over(callers: ctypes.CDLL) -> None:
    x, center = sg.placeholder((3,), sg.float64, name="x"), sg.placeholder((3,), sg.float64, name="center")
    executable = sg.Session().compile(normal(x, center), [center, x])
    function = executable.cfunc("nlopt", wrt=x)
    at, user = np.zeros(3), doubles(3, 1, 2)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (at, user)]
    assert abs(callers.maximize(ctypes.c_void_p(function.address), 3, pointers[0], ctypes.c_double(0.5), 60,
                                pointers[1])) < 1e-20  # fmt: skip
    np.testing.assert_allclose(at, user, rtol=1e-12)
    assert np.isnan(function.ctypes(3, address(at), None, None))
    assert np.isnan(function.ctypes(2, address(at), None, address(user)))
    grad = np.zeros(3)
    assert function.ctypes(3, address(np.zeros(3)), address(grad), address(user)) == -7
    np.testing.assert_array_equal(grad, user)


def test_several_feeds_are_read_through_a_table_of_addresses() -> None:
    x, center, order = (sg.placeholder((3,), dtype) for dtype in (sg.float64, sg.float64, sg.int64))
    shifted = sg.take(x, order) - center
    feeds = [center, x, order]
    density = sg.Session().compile(-0.5 * sg.sum(shifted * shifted), feeds).cfunc("logp", wrt=x)
    vector = sg.Session().compile(sg.concat([shifted, x]), feeds).cfunc("vector", wrt=x)
    at, data = doubles(1, 2, 4), [doubles(1, 1, 2), np.array([2, 0, 1])]
    table = np.array([array.ctypes.data for array in data])
    value, grad, y = np.zeros(1), np.zeros(3), np.zeros(6)
    assert density.ctypes(3, *map(address, (at, grad, value, table))) == 0
    np.testing.assert_array_equal((value[0], *grad), (-4.5, 0, 0, -3))
    assert vector.ctypes(3, 6, *map(address, (at, y, table))) == 0
    np.testing.assert_array_equal(y, (3, 0, 0, 1, 2, 4))
    for n, m, *arrays in ((2, 6, at, y, table), (3, 5, at, y, table), (3, 6, None, y, table), (3, 6, at, y, None)):
        assert vector.ctypes(n, m, *map(address, arrays)) == -1
    data[1][0] = 3
    assert vector.ctypes(3, 6, *map(address, (at, y, table))) > 0
    assert np.isnan(y).all()


def test_a_check_that_fails_is_a_positive_status_and_nan() -> None:
    x, index = sg.placeholder((3,), sg.float64), sg.placeholder((2,), sg.int64)
    function = sg.Session().compile(sg.sum(sg.take(x, index, axis=0) ** 2), [x, index]).cfunc("logp")
    at, grad, value = doubles(1, 2, 3), np.zeros(3), np.zeros(1)
    good, bad = np.array([0, 2]), np.array([0, 3])
    assert function.ctypes(3, *map(address, (at, grad, value, good))) == 0
    np.testing.assert_array_equal(grad, (2, 0, 6))
    assert function.ctypes(3, *map(address, (at, grad, value, bad))) > 0
    assert np.isnan(value).all()
    assert np.isnan(grad).all()
    assert function.ctypes(3, *map(address, (at, grad, value, good))) == 0
    assert value[0] == 10


def test_a_differential_equation(callers: ctypes.CDLL) -> None:
    t, u, p = (sg.placeholder(shape, sg.float64, name=name) for name, shape in (("t", ()), ("u", (2,)), ("p", (1,))))
    du = sg.stack([u[1], -p[0] * u[0] + 0 * t])
    for feeds in ([t, u, p], [p, t, u]):
        function = sg.Session().compile(du, feeds).cfunc("ode")
        at, rate = doubles(1, 0), doubles(4)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (at, rate)]
        callers.integrate(
            ctypes.c_void_p(function.address), ctypes.c_size_t(2), *pointers, ctypes.c_double(1e-4), 10_000
        )
        np.testing.assert_allclose(at, (np.cos(2.0), -2 * np.sin(2.0)), rtol=1e-3)
        slope = np.zeros(2)
        function.ctypes(0.0, address(at), address(slope), None)
        assert np.isnan(slope).all()


def test_scipy_takes_functions_of_numbers() -> None:
    x, scale = sg.placeholder((), sg.float64), sg.placeholder((1,), sg.float64)
    gauss = sg.Session().compile(sg.exp(-scale[0] * x * x), [x, scale]).cfunc("scalar")
    for factor in (1.0, 4.0):
        value, _ = integrate.quad(gauss.low_level_callable(doubles(factor)), 0, np.inf)
        np.testing.assert_allclose(value, np.sqrt(np.pi / factor) / 2)
    point = sg.placeholder((2,), sg.float64)
    a, b = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    for executable in (sg.Session().compile(point[0] * point[1], point), sg.Session().compile(a * b, [a, b])):
        product = executable.cfunc("scalars")
        value, _ = integrate.nquad(product.low_level_callable(), [[0, 1], [0, 2]])
        np.testing.assert_allclose(value, 1.0)
        assert np.isnan(product.ctypes(3, address(np.ones(3)), None))
    one = doubles(1.0)  # alive during the calls
    assert abs(optimize.brentq(lambda at: gauss.ctypes(at, address(one)) - 0.5, 0, 3) ** 2 - np.log(2)) < 1e-9


# -- state, life ------------------------------------------------------------------------------------------------------


def test_variables_are_those_of_when_it_was_made_until_it_is_refreshed(g: sg.Graph) -> None:
    x, w = sg.placeholder((), sg.float64), sg.Variable(np.float64(2.0), name="w")
    session = sg.Session(g)
    function = session.compile(x * w, x).cfunc("scalar")
    session.set(w, 5.0)
    assert function.ctypes(3.0, None) == 6
    function.refresh()
    assert function.ctypes(3.0, None) == 15


def test_state_is_taken_anew_while_threads_call(g: sg.Graph) -> None:
    x, w = sg.placeholder((), sg.float64), sg.Variable(np.full(200, 1.0), name="w")
    session = sg.Session(g)
    function = session.compile(x * sg.max(w) + sg.min(w), x).cfunc("scalar")
    found: set[float] = set()
    going = threading.Event()

    def call() -> None:
        call_it = function.ctypes
        while not going.is_set():
            found.add(call_it(1.0, None))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in range(1, 200):
        session.set(w, np.full(200, float(value)))
        function.refresh()
    going.set()
    for thread in threads:
        thread.join()
    assert all(value % 2 == 0 for value in found), "a call saw parts of two states"
    assert function.ctypes(1.0, None) == 398


def test_random_ops_count_the_calls(g: sg.Graph) -> None:
    x = sg.placeholder((), sg.float64)
    function = sg.Session(g, seed=3).compile(x + sg.random.normal((), dtype=sg.float64), x).cfunc("scalar")
    drawn = [function.ctypes(0.0, None) for _ in range(20)]
    assert len(set(drawn)) == 20
    function.refresh()
    assert [function.ctypes(0.0, None) for _ in range(20)] == drawn


def test_what_holds_the_address_keeps_the_function() -> None:
    x = sg.placeholder((), sg.float64)

    def made() -> sg.CFunction:
        return sg.Session().compile(x * 2 + np.ones(5).sum(), x).cfunc("scalar")

    by_ctypes, by_capsule = made().ctypes, made().low_level_callable()
    gc.collect()
    for _ in range(5):
        made()
    assert by_ctypes(1.0, None) == 7
    assert integrate.quad(by_capsule, 0, 1)[0] == pytest.approx(6)


def test_programs_that_cannot_be_called_from_c_are_refused(g: sg.Graph) -> None:
    x, w = sg.placeholder((2,), name="x"), sg.Variable(np.ones(2, np.float32), name="w")
    session = sg.Session(g)
    update = sg.assign(w, w + x)
    with pytest.raises(sg.GraphError, match=r"it writes variable 'w'"):
        session.compile([w + x, update], x).cfunc("slots")
    (called,) = sg.py_call(lambda a: [a], [x], [(np.float32, (2,))])
    with pytest.raises(sg.GraphError, match="it calls Python"):
        session.compile(called, x).cfunc("slots")
    with pytest.raises(sg.GraphError, match=r"expected a signature of 'slots', .* actual 'double'"):
        session.compile(x * 2, x).cfunc("double")  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match=r"'logp': 'x': expected float64, actual float32\[2\]"):
        session.compile(sg.sum(x), x).cfunc("logp")
    free = sg.placeholder((None,), sg.float64)
    executable = session.compile(sg.sum(free * free), free)
    with pytest.raises(sg.GraphError, match="sizes of the feeds are open and there was no call yet"):
        executable.cfunc("logp")
    executable(np.ones(4))
    value = np.zeros(1)
    assert executable.cfunc("logp").ctypes(4, address(np.full(4, 2.0)), None, address(value), None) == 0
    assert value[0] == 16


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers_are_clean(signature: Any, language: str, tmp_path: Path) -> None:
    t, u, p = (sg.placeholder(shape, sg.float64) for shape in ((), (2,), (2,)))
    one = sg.placeholder((), sg.float64)
    executables = {
        "ode": functools.partial(sg.Session().compile, u * p + t, [t, u, p]),
        "scalar": functools.partial(sg.Session().compile, one * one, one),
    }
    compile_it = executables.get(signature, functools.partial(sg.Session().compile, sg.sum(u * u), u))
    header = compile_it().cfunc(signature).header("some_program")
    source = tmp_path / "main.h"
    source.write_text(header)
    user = tmp_path / "main.c"
    user.write_text('#include "main.h"\n#include "main.h"\nint main(void) { return sizeof &some_program == 0; }\n')
    assert COMPILER is not None
    standard = "-std=c99" if language == "c" else "-std=c++11"
    done = subprocess.run(
        [COMPILER, "-x", language, standard, *STRICT, "-fsyntax-only", str(user)], capture_output=True, text=True
    )
    if "cc1plus" in done.stderr:
        pytest.skip("there is no C++ compiler")
    assert done.returncode == 0, done.stderr
