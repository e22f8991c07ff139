"""Functions written for NumPy, unchanged: values, gradients, what is refused and what is frozen.

Most functions are declared and run by the interpreter of graphs, which costs no compilation; a few are compiled.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import numpy_functions
from support.numpy_functions import CASES
from support.numpy_programs import program
from support.numpy_running import Array, declared, interpreted, own, same

import staticgrad as sg

pytest.importorskip("scipy")

COMPILED = ("black_scholes", "soft_threshold", "kalman_filter")  # also in the short tests


# -- forty functions -------------------------------------------------------------------------------------------------


def test_there_are_forty_functions_that_know_of_numpy_alone() -> None:
    assert len(CASES) >= 40
    assert "staticgrad" not in inspect.getsource(numpy_functions)


@pytest.mark.parametrize("name", CASES)
def test_a_function_for_numpy_runs_unchanged_with_its_gradient(name: str) -> None:
    fn, arguments = CASES[name]
    result, xs = declared(fn, arguments)
    slopes = sg.gradients(result, xs, unconnected_gradients="zero")
    value, *found = interpreted([result, *slopes], xs, arguments)
    expected = fn(*map(own, arguments))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    rng = np.random.default_rng(0)
    for place, (argument, slope) in enumerate(zip(arguments, found, strict=True)):
        direction = rng.normal(size=np.shape(argument))

        def at(step: float, place: int = place, direction: Any = direction) -> float:
            moved = [own(a) for a in arguments]
            moved[place] = moved[place] + step * direction
            if not isinstance(arguments[place], np.ndarray):
                moved[place] = float(moved[place])
            return float(fn(*moved))

        difference = (8 * (at(1e-5) - at(-1e-5)) - (at(2e-5) - at(-2e-5))) / 12e-5
        np.testing.assert_allclose(np.sum(slope * direction), difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in COMPILED else pytest.mark.slow) for name in CASES]
)
def test_compiled_functions_give_values_and_gradients(name: str) -> None:
    fn, arguments = CASES[name]
    places = range(len(arguments))
    value, slopes = sg.value_and_grad(fn, tuple(places), numpy=True)(*arguments)
    result, xs = declared(fn, arguments)
    expected = interpreted([result, *sg.gradients(result, xs, unconnected_gradients="zero")], xs, arguments)
    for got, want in zip([value, *slopes], expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


# -- memory ----------------------------------------------------------------------------------------------------------

X = np.array([0.5, 2.0, 1.0, 4.0, 3.0, -1.0])
M = np.arange(12.0).reshape(3, 4) / 7


def row_of_a_matrix(m: Any) -> Any:
    row = m[1]
    row[2] = 10.0
    row *= 2
    return m


def element_by_two_brackets(m: Any) -> Any:
    a = m.copy()
    a[1][2] = a[0, 0] + 5
    return a, m


def transposed(m: Any) -> Any:
    m.T[0] = 7.0
    m.swapaxes(0, 1)[1, :2] += 1
    return m


def reshaped(m: Any) -> Any:
    flat = m.reshape(-1)
    flat[3] = -1.0
    m.ravel()[5:7] = flat[0]
    m.flat[0] = 3.0
    return m, flat


def reshape_that_copies(m: Any) -> Any:
    flat = m.T.reshape(-1)
    flat[0] = 99.0
    return m, flat


def reversed_view(x: Any) -> Any:
    y = x[::-1]
    y[0], y[1:3] = 5.0, x[:2]
    return x


def view_of_a_view(m: Any) -> Any:
    inner = m[1:, ::2][:, 1]
    inner += 100
    m[1:][0][0] = inner[0]
    return m, inner


def new_axes(x: Any) -> Any:
    column = x[:, None]
    column[2] = 8.0
    x[None, ..., 1:3] = [[1.0, 2.0]]
    return x


def parts_of_a_split(x: Any) -> Any:
    low, high = np.split(x, 2)
    low[:] = high
    high -= 1
    return x


def views_see_later_writes(x: Any) -> Any:
    first = x[:3]
    x[0] = 9.0
    return first, first.sum()


def numbers_are_not_memory(x: Any) -> Any:
    total = x.sum()
    before = total
    total += 1
    x[0] += total
    return before, total, x


def overlapping_read_and_write(x: Any) -> Any:
    x[1:] = x[:-1]
    x[2:4] += x[:2]
    return x


def loops_fill_arrays(x: Any) -> Any:
    a, b, c = np.empty((4, 6)), np.zeros((6, 2)), np.full_like(x, 2.0)
    for i in range(4):
        a[i] = x * i
    for j in range(6):
        b[j, 0] = x[j]
        b[j, 1] = a[3, j] + b[j, 0]
    for j in range(1, 4):
        c[-j] = c[j - 1] + x[j]
    return a, b, c


def tables_row_and_element(x: Any) -> Any:
    t = np.zeros((3, 6))
    t[0] = x
    for i in range(1, 3):
        t[i] = t[i - 1]
        t[i, i:4] += 1
        t[i, 0] = t[i - 1, 1]
    t[:, 5] = t[:, 4] * 2
    return t


def columns(x: Any) -> Any:
    paths = np.zeros((6, 4))
    paths[:, 0] = x
    for t in range(3):
        paths[:, t + 1] = paths[:, t] * 1.5 + paths[::-1, t]
    return paths, paths[2]


def masks(x: Any) -> Any:
    y = x.copy()
    y[y > 2.5] = 0.0
    y[np.array([True, False] * 3)] += 10
    x[x < 1] *= 3.0
    low = y < 2
    y[low] = np.exp(-y[low]) + x[low]
    return y, x[x > 0].sum(), x[y > 1].mean(), (2 * x[low]).max()


def index_arrays(m: Any) -> Any:
    m[[0, 2], [1, 3]] = 50.0
    m[:, [0, 1]] = m[:, [1, 0]]
    m[np.array([1])] += 1
    return m, m[[2, 0]], m[np.ix_([0, 1], [2, 3])], m[..., np.array([True, False, True, False])]


def traced_index(x: Any) -> Any:
    place = np.argmax(x)
    order = np.argsort(x)
    y = x[order]
    y[place] = -3.0
    return x[place], y, np.take_along_axis(x, order, 0)


def outputs(x: Any) -> Any:
    out = np.empty(6)
    np.exp(x, out=out)
    np.add(out[1:], 1, out[1:])
    x -= out
    x **= 2
    np.sqrt(x, out=x, where=x > 3)
    return out, x


def scatters(x: Any) -> Any:
    y = np.zeros(3)
    np.add.at(y, [0, 0, 2, 1, 1, 1], x)
    np.maximum.at(y, np.array([0, 2]), 2.0)
    return y


def known_arrays_stay_known(x: Any) -> Any:
    n = np.arange(4)
    n[1] = 3
    size = int(n.sum()) - 5
    table = np.zeros(size)
    table[n[0]] = x[n[1]]
    return table, np.linspace(0, 1, size) * x[0]


MEMORY = (
    (element_by_two_brackets, M), (element_by_two_brackets, M), (index_arrays, M), (known_arrays_stay_known, X),
    (loops_fill_arrays, X), (masks, X), (new_axes, X), (numbers_are_not_memory, X), (outputs, X),
    (overlapping_read_and_write, X), (parts_of_a_split, X), (reshape_that_copies, M), (reshaped, M),
    (reversed_view, X), (row_of_a_matrix, M), (scatters, X), (tables_row_and_element, X), (traced_index, X),
    (transposed, M), (view_of_a_view, M), (views_see_later_writes, X), (columns, X),
)  # fmt: skip


@pytest.mark.parametrize(("fn", "argument"), MEMORY, ids=lambda each: getattr(each, "__name__", ""))
def test_arrays_are_memory_as_in_numpy(fn: Callable[..., Any], argument: Array) -> None:
    same(fn, argument)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.slow)], ids=str)
def test_random_writes_through_random_views_are_numpy_s(seeds: range) -> None:
    for seed in seeds:
        same(program(seed), np.arange(12.0).reshape(4, 3) + 0.5, np.array([1.0, -2.0, 0.5]))


def test_a_float_into_an_array_of_ints_is_cut_or_refused_as_in_numpy() -> None:
    def cut(x: Any) -> Any:
        n = np.zeros(3, int)
        n[1] = x[3] + 0.7
        return n

    def add(x: Any) -> Any:
        n = np.zeros(6, int)
        n += x
        return n

    same(cut, X)
    with pytest.raises(TypeError, match="same_kind"):
        declared(add, (X,))


def test_dtypes_are_numpy_s() -> None:
    def dtypes(x: Any, y: Any, number: Any, n: Any) -> Any:
        total = x * 2.0 + number
        return (
            total,
            x + y,
            x * np.float64(2),
            n / 2,
            n // 2,
            n * number,
            np.mean(n),
            x.sum(),
            n.astype(np.float32),
            n > 1,
        )

    same(dtypes, X.astype(np.float32), X, 1.5, np.arange(6))


def test_types_of_numbers_convert_and_are_dtypes() -> None:
    def kinds(x: Any) -> Any:
        is_float = isinstance(x[0], np.float64) and x.dtype == np.float64 and np.issubdtype(x.dtype, np.floating)
        known = np.zeros(2, dtype=np.int32), np.finfo(np.float64).eps, {np.float64: 1.0}[np.float64], np.float32(0.5)
        return np.float64(x[0]) * 2, np.float32(x), np.int64(x[1]), x.astype(np.float32), x * is_float, known

    same(kinds, X)


def test_ints_and_texts_are_part_of_the_program() -> None:
    def power(x: Any, n: int, how: str = "up") -> Any:
        y = np.ones_like(x)
        for _ in range(n):
            y = y * x
        return y if how == "up" else 1 / y

    compiled = sg.function(power, numpy=True)
    np.testing.assert_allclose(compiled(X, 3), X**3)
    np.testing.assert_allclose(compiled(X, 2, how="down"), X**-2.0)
    np.testing.assert_allclose(compiled(X + 1, 3), (X + 1) ** 3)


def test_what_stands_around_a_function_is_not_changed() -> None:
    names = vars(numpy_functions)
    before = {name: id(value) for name, value in names.items()}
    cells = [cell.cell_contents for cell in numpy_functions.case(1.0).__closure__ or ()]
    declared(*CASES["pendulum"])
    declared(*CASES["image_filter"])
    assert {name: id(value) for name, value in names.items()} == before
    assert cells == [(1.0,)]
    assert names["np"] is np
    assert names["zeros"] is np.zeros


def test_nests_go_in_and_come_out() -> None:
    def split(pair: Any, options: Any) -> Any:
        a, b = pair
        return {"sum": a + b * options["scale"], "rest": (a, None)}

    found = sg.function(split, numpy=True)((X, 2.0), {"scale": np.float64(3.0)})
    np.testing.assert_allclose(found["sum"], X + 6)
    assert found["rest"][1] is None


def test_tensors_declare_in_their_own_graph() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((6,), sg.float64)
        y = sg.function(columns, numpy=True)(x)[1]
        assert y.graph is graph
    (found,) = interpreted([y], [x], (X,))
    np.testing.assert_allclose(found, columns(X.copy())[1])


def test_a_derivative_is_derived_again_in_a_function_for_numpy() -> None:
    first = sg.value_and_grad(lambda x, n: np.sum(np.sin(x) ** n), numpy=True)
    tensors = sg.value_and_grad(lambda x: sg.sum(sg.sin(x) ** 2))

    def outside(x: Any) -> Any:
        return np.sum(first(x, 2)[1])

    def of_tensors(x: Any) -> Any:
        return np.sum(tensors(x)[1])

    def inside(x: Any) -> Any:
        return np.sum(sg.value_and_grad(lambda x: np.sum(np.sin(x) ** 2), numpy=True)(x)[1])

    for fn in (outside, of_tensors, inside):
        value, slope = sg.value_and_grad(fn, numpy=True)(X)
        np.testing.assert_allclose(value, np.sin(2 * X).sum(), rtol=1e-12)
        np.testing.assert_allclose(slope, 2 * np.cos(2 * X), rtol=1e-12)
    assert sg.function(outside, numpy=True)(X) == value == outside(X)


def test_maxima_of_python_choose_as_python_does() -> None:
    def extremes(x: Any) -> Any:
        return max(x[0], x[1], 1.5), min(x), max([x[2], 0.0]), max(len(x), 3), abs(x[5]), round(x[0], 1), sum(x)

    same(extremes, X)


def test_staticgrad_s_functions_may_be_used_inside() -> None:
    def chosen(x: Any) -> Any:
        total = x.sum()
        y = sg.cond(total > 0, lambda: x * 2, lambda: -x)
        return np.sin(y) + 1

    result, xs = declared(chosen, (X,))
    for sign in (1, -1):
        (found,) = interpreted([result], xs, (sign * X,))
        np.testing.assert_allclose(found, np.sin(2 * X) + 1 if sign == 1 else np.sin(X) + 1)


# -- what is refused, and what is frozen -------------------------------------------------------------------------------


def branch(x: Any) -> Any:
    if x.sum() > 0:  # here
        return x * 2
    return x


def loop(x: Any) -> Any:
    while np.abs(x).max() > 1:  # here
        x = x / 2
    return x


def number(x: Any) -> Any:
    return x * float(x[0])  # here


def whole(x: Any) -> Any:
    return x[: int(x[3])]  # here


def count(x: Any) -> Any:
    total = 0.0
    for _ in range(np.argmax(x)):  # here
        total = total + x
    return total


def selected(x: Any) -> Any:
    return np.sort(x[x > 1])[0]  # here


def searched(x: Any) -> Any:
    return x[np.nonzero(x > 1)]  # here


def drawn(x: Any) -> Any:
    return x + np.random.default_rng(0).normal(size=6)  # here


def drawn_by_a_generator(x: Any) -> Any:
    return x + GENERATOR.normal(size=6)  # here


def listed(x: Any) -> Any:
    return np.array([a + 1 for a in x.tolist()]) * x  # here


def formatted(x: Any) -> Any:
    return x * len(f"{x[0]:.3f}")  # here


def keyed(x: Any) -> Any:
    return x * {0.5: 2.0}[x[0]]  # here


GENERATOR = np.random.default_rng(3)
DEPENDS = (
    (branch, "np.where"), (loop, "sg.cond"), (number, "leave float"), (whole, "as an int"), (count, "a Python int"),
    (selected, "np.where"), (searched, "np.where"), (drawn, "draw outside"), (drawn_by_a_generator, "draw outside"),
    (listed, "leave float"), (formatted, "sg.print"), (keyed, "Python int"),
)  # fmt: skip


def line_of(fn: Callable[..., Any], mark: str = "# here") -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if mark in line)


@pytest.mark.parametrize(("fn", "way_out"), DEPENDS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_depends_on_values_is_refused_with_its_line_and_the_way_out(fn: Callable[..., Any], way_out: str) -> None:
    with pytest.raises(sg.UnsupportedError) as caught:
        declared(fn, (X,))
    assert way_out in caught.value.ops[0].reason
    assert all("freeze=True" in op.reason for op in caught.value.ops)
    sources = [source for op in caught.value.ops for source in op.sources]
    assert {(source.file, source.line) for source in sources} == {(__file__, line_of(fn))}
    assert inspect.getsource(fn).split("\n")[line_of(fn) - inspect.getsourcelines(fn)[1]].strip() in str(caught.value)


@pytest.mark.parametrize("fn", [fn for fn, _ in DEPENDS], ids=lambda fn: fn.__name__)
def test_what_depends_on_values_is_frozen_and_counted(fn: Callable[..., Any]) -> None:
    state = GENERATOR.bit_generator.state
    with pytest.warns(sg.FrozenValueWarning) as caught:
        result, xs = declared(fn, (X,), freeze=True)
    (warned,) = caught
    assert f"{__file__}:{line_of(fn)}" in str(warned.message)
    GENERATOR.bit_generator.state = state
    np.testing.assert_allclose(interpreted([result], xs, (X,))[0], fn(X.copy()), rtol=1e-12)


def test_one_warning_counts_each_line() -> None:
    def two_lines(x: Any) -> Any:
        while x[0] < 3:
            x = x * 2
        return x if x[0] > 0 else -x

    with pytest.warns(sg.FrozenValueWarning) as caught:
        sg.function(two_lines, numpy=True, freeze=True)(X)
    (warned,) = caught
    assert "(4 times)" in str(warned.message)
    assert "(once)" in str(warned.message)
    assert warned.filename == __file__


def test_frozen_functions_are_compiled_once_and_warn_once() -> None:
    frozen = sg.function(branch, numpy=True, freeze=True)
    with pytest.warns(sg.FrozenValueWarning):
        np.testing.assert_allclose(frozen(X), 2 * X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(frozen(-X), -2 * X)  # the branch of the first call


def test_all_that_is_refused_is_named_at_once() -> None:
    def several(x: Any) -> Any:
        if x[0] > 0:
            x = x * float(x[1])
        for _ in range(2):
            x = x + np.fft.fft(x).real
        return x

    with pytest.raises(sg.UnsupportedError) as caught:
        declared(several, (X,))
    first = inspect.getsourcelines(several)[1]
    lines = {line.line - first for op in caught.value.ops for line in op.sources}
    assert lines == {1, 2, 4}
    assert any(op.count == 2 and "fft" in op.name for op in caught.value.ops)


def test_a_frozen_function_still_refuses_what_is_not_converted() -> None:
    with pytest.raises(sg.UnsupportedError, match="fft"):
        declared(lambda x: np.abs(np.fft.rfft(x)), (X,), freeze=True)


BUFFER = np.zeros(6)


def test_arrays_from_outside_are_read_but_not_written() -> None:
    def into_the_buffer(x: Any) -> Any:
        BUFFER[0] = x[0]
        return BUFFER * x

    def into_a_copy(x: Any) -> Any:
        own = BUFFER.copy()
        own[0] = x[0]
        return own

    with pytest.raises(sg.UnsupportedError, match=r"a = a\.copy\(\)"):
        declared(into_the_buffer, (X,))
    same(into_a_copy, X)
    assert not BUFFER.any()


def test_arrays_that_libraries_make_are_no_place_for_traced_values() -> None:
    made = {"a": np.zeros(3)}

    def into_an_array_of_a_dict(x: Any) -> Any:
        made["a"][0] = x[0]
        return made["a"]

    with pytest.raises(sg.UnsupportedError, match=r"np\.stack"):
        declared(into_an_array_of_a_dict, (X,))


def test_nothing_is_frozen_without_an_example() -> None:
    with sg.Graph():
        x = sg.placeholder((6,), sg.float64)
        with pytest.raises(sg.UnsupportedError, match="no example"):
            sg.function(branch, numpy=True, freeze=True)(x)
        n = sg.placeholder((None,), sg.float64)
        with pytest.raises(sg.GraphError, match="expected known sizes"):
            sg.function(columns, numpy=True)(n)


def test_freezing_is_for_functions_for_numpy() -> None:
    with pytest.raises(sg.GraphError, match="numpy=True"):
        sg.function(branch, freeze=True)


def test_a_gradient_by_an_int_says_to_write_a_float() -> None:
    with pytest.raises(sg.GradientError, match="write a float"):
        sg.value_and_grad(lambda x: x * 2, numpy=True)(3)


def test_an_array_that_outlives_its_call_is_refused() -> None:
    kept = []
    declared(lambda x: kept.append(x) or x * 2, (X,))
    with pytest.raises(sg.GraphError, match="a call that has ended"):
        float(kept[0][0])
