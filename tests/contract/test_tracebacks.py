"""Tracebacks of errors that are meant for users end at the user's line, at most two frames of ours below it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.tracebacks import is_ours

X = np.ones((2, 3), np.float32)
MOST = 2


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with sg.Graph():
        yield


def frames_of(error: BaseException) -> list[bool]:
    """For each frame of a traceback, below those of the test itself, whether it is ours."""
    found = [is_ours(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return found


def raised(call: Callable[[], Any]) -> Exception:
    """What a call raises."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def check_short(error: Exception) -> None:
    ours = frames_of(error)
    shown = "".join(traceback.format_exception(error))
    assert sum(ours) <= MOST, shown
    assert ours[: len(ours) - sum(ours)] == [False] * (len(ours) - sum(ours)), shown  # ours are last
    assert "During handling" not in shown, shown
    assert "direct cause" not in shown, shown


# -- each kind of place where users call ------------------------------------------------------------------------------


def fed() -> tuple[sg.Session, Any, Any]:
    x = sg.placeholder((2, 3), name="x")
    return sg.Session(), x, x * 2.0


def of_session(call: Callable[[sg.Session, Any, Any], Any]) -> Callable[[], Any]:
    return lambda: call(*fed())


def unread(sess: sg.Session, x: Any, y: Any) -> Any:
    exe = sess.compile(sg.take(x, sg.placeholder((1,), sg.int64, name="i"), 0), sess.graph.nodes[0].outputs[0])
    return exe(X)


def out_of_bounds(sess: sg.Session, x: Any, y: Any) -> Any:
    i = sg.placeholder((1,), sg.int64)
    return sess.compile({"a": [sg.take(x, i, 0)]}, [x, i])(X, [7])


def twice(sess: sg.Session, x: Any, y: Any) -> Any:
    w = sg.Variable(X)
    loss = sg.sum(w * w * x)
    tape = sess.forward(loss, {x: X})
    tape.backward(loss)
    tape.backward(loss)


def written(sess: sg.Session, x: Any, y: Any) -> Any:
    w = sg.Variable(X)
    loss = sg.sum(w * w * x)
    tape = sess.forward(loss, {x: X})
    sess.set(w, 2 * X)
    tape.backward(loss)


def asserted(sess: sg.Session, x: Any, y: Any) -> Any:
    with sg.control_dependencies([sg.assert_(sg.all(x > 5.0), "large")]):
        z = sg.identity(x)
    return sess.run(z, {x: X})


def hooked(sess: sg.Session, x: Any, y: Any) -> Any:
    w = sg.Variable(X)
    z = w * 2.0
    z.register_hook(lambda g: g @ g)
    return sg.gradients(sg.sum(z), [w])


class Mismatched(sg.nn.Module):
    """A net whose second layer does not fit."""

    def __init__(self) -> None:
        self.layers = sg.nn.Sequential(sg.nn.Linear(3, 4), sg.nn.Sequential(sg.nn.ReLU(), sg.nn.Linear(5, 6)))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


@sg.custom_gradient
def without_rule(x: Any) -> Any:
    return x


CASES: dict[str, Callable[[], Any]] = {
    "function": lambda: sg.matmul(X, X),
    "wrong keyword": lambda: sg.sum(X, dim=0),  # type: ignore[call-arg]
    "operator": lambda: sg.constant(X) @ X,
    "reflected operator": lambda: X @ sg.constant(X),
    "method": lambda: sg.constant(X).sum(axis=7),
    "property": lambda: sg.constant(np.ones(3)).mT,
    "index": lambda: sg.constant(X)[5],
    "reshape": lambda: sg.constant(X).reshape(7),
    "conversion": lambda: float(sg.constant(X)),
    "attribute": lambda: sg.constant(X).backward(),  # type: ignore[attr-defined]
    "name of a module": lambda: sg.cat,  # type: ignore[attr-defined]
    "assignment": lambda: sg.constant(X).__setitem__(0, 1.0),
    "dtype": lambda: sg.zeros((2,), dtype="no such"),
    "nn function": lambda: sg.nn.conv2d(X, X),
    "layer": lambda: sg.nn.Conv2d(3, 4, (1, 2, 3)),  # type: ignore[arg-type]
    "module": lambda: Mismatched()(sg.constant(X)),
    "linalg": lambda: sg.linalg.cholesky(X),
    "random": lambda: sg.random.normal((-1,)),
    "init": lambda: sg.init.calculate_gain("no such"),
    "nest": lambda: sg.nest.map(lambda a, b: a, {"a": [[1]]}, {"a": [(1,)]}),
    "optimizer": lambda: sg.optim.Adam(lr=-1.0),
    "minimize": lambda: sg.optim.Adam().minimize(sg.sum(sg.constant(X))),
    "apply_gradients": lambda: sg.optim.Adam().apply_gradients([(sg.constant(X), sg.Variable(np.ones(2)))]),
    "gradients": lambda: sg.gradients(sg.constant(X), [3]),  # type: ignore[list-item]
    "jvp": lambda: sg.jvp(sg.constant(X), [sg.constant(X)], [X[0]]),
    "vmap": lambda: sg.vmap(lambda a: a @ X)(sg.constant(X)),
    "scan": lambda: sg.scan(lambda c, x: (c @ x, c), sg.constant(X[0]), sg.constant(X)),
    "cond": lambda: sg.cond(sg.constant(True), lambda: sg.constant(X), lambda: sg.constant(X[0])),
    "checkpoint": lambda: sg.checkpoint(lambda x: x @ x, sg.constant(X)),
    "custom gradient": lambda: without_rule(sg.constant(X)),
    "hook": of_session(hooked),
    "parse": lambda: sg.parse("%x = "),
    "session": lambda: sg.Session(num_threads=0),
    "run without a feed": of_session(lambda sess, x, y: sess.run(y)),
    "run of a wrong feed": of_session(lambda sess, x, y: sess.run(y, {x: X[0]})),
    "run of something else": of_session(lambda sess, x, y: sess.run("loss", {x: X})),
    "run with feed_dict": of_session(lambda sess, x, y: sess.run(y, feed_dict={x: X})),
    "compile": of_session(lambda sess, x, y: sess.compile(y, [x, x])),
    "compile without a feed": of_session(unread),
    "executable": of_session(lambda sess, x, y: sess.compile(y, [x])(X[0])),
    "executable of too many": of_session(lambda sess, x, y: sess.compile(y, [x])(X, X)),
    "executable out": of_session(lambda sess, x, y: sess.compile([y, y], [x])(X, out=[X, X[0]])),
    "bounds": of_session(out_of_bounds),
    "assertion": of_session(asserted),
    "text": of_session(lambda sess, x, y: sess.compile(y, [x]).text("no such")),  # type: ignore[arg-type]
    "tape": of_session(lambda sess, x, y: sess.forward(y, {x: X}).backward(y)),
    "tape's value": of_session(lambda sess, x, y: sess.forward(y, {x: X})[x]),
    "backward twice": of_session(twice),
    "state changed": of_session(written),
    "get": of_session(lambda sess, x, y: sess.get(x)),
    "set": of_session(lambda sess, x, y: sess.set(sg.Variable(X), X[0])),
    "grad": of_session(lambda sess, x, y: sess.grad(3)),  # type: ignore[arg-type]
    "restore": of_session(lambda sess, x, y: sess.restore(__file__)),
    "load_state_dict": of_session(lambda sess, x, y: sg.nn.Linear(2, 3).load_state_dict(sess, {"a": X})),
}


@pytest.mark.parametrize("case", CASES)
def test_a_traceback_ends_at_the_users_line(case: str, backend: str) -> None:
    check_short(raised(CASES[case]))


# -- every public function --------------------------------------------------------------------------------------------

HOMES = (sg, sg.nn, sg.linalg, sg.random, sg.optim, sg.init, sg.nest)
NAMED = [(home, name, getattr(home, name)) for home in HOMES for name in dir(home) if name[0] != "_"]
PUBLIC = [
    (home.__name__, name, value)
    for home, name, value in NAMED
    if callable(value) and not (isinstance(value, type) and issubclass(value, (Exception, sg.Tensor, sg.Node)))
]
NONSENSE = (object(), "no such", -1, [object()], np.ones((2, 0, 3), np.complex64))


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
def test_no_public_function_shows_its_frames(value: object) -> None:
    """Called with nonsense: what is raised on purpose, by an error of ours or a ``raise`` of ours."""
    long = []
    for home, name, function in PUBLIC:
        parameters = inspect.signature(function).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
        try:
            function(*[value] * max(len(required), 1))
        except Exception as error:
            on_purpose = isinstance(error, sg.StaticGradError) or hasattr(error, "_meant_for_users")
            if on_purpose and sum(frames_of(error)) > MOST:
                long.append(f"{home}.{name}: {error!r}")
    assert not long, "\n".join(long)


# -- what is left alone -----------------------------------------------------------------------------------------------


def test_errors_of_the_users_own_functions_keep_his_frames() -> None:
    def body(c: Any, x: Any) -> Any:
        return inner(c), x

    def inner(c: Any) -> Any:
        raise KeyError("mine")

    error = raised(lambda: sg.scan(body, sg.constant(1.0), X))
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-2:] == ["body", "inner"]

    def fails(x: Any) -> Any:
        raise KeyError("mine")

    y = sg.py_call(fails, [sg.constant(X)], [(np.float32, (2, 3))])
    error = raised(lambda: sg.Session().run(y))
    assert isinstance(error, KeyError)
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fails"


def test_our_error_in_a_function_of_the_users_shows_his_line_alone() -> None:
    def body(c: Any, x: Any) -> Any:
        return c @ c, x

    error = raised(lambda: sg.scan(body, sg.constant(X), sg.constant(X)))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names == ["raised", "<lambda>", "body"]
    assert isinstance(error, sg.GraphError)


def test_what_the_user_was_handling_is_told() -> None:
    def handled() -> Any:
        try:
            raise KeyError("mine")
        except KeyError:
            return sg.constant(X).reshape(7)

    error = raised(handled)
    assert isinstance(error.__context__, KeyError)
    assert "During handling" in "".join(traceback.format_exception(error))


def test_a_fault_of_ours_keeps_its_frames() -> None:
    """What an operation of ours raises, rather than a ``raise``, is for whoever mends it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("staticgrad.ops.views.reshaping.lift", None)
        error = raised(lambda: sg.reshape(X, (3, 2)))
    assert isinstance(error, TypeError)
    assert frames_of(error)[-1]
    assert sum(frames_of(error)) == 2


@pytest.mark.parametrize("level", ["0", "1", "3"])
def test_debugging_shows_all_frames(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_DEBUG", level)
    ours = sum(frames_of(raised(lambda: sg.constant(X) @ X)))
    assert ours == 0 if level == "0" else ours > MOST


def test_a_script_shows_the_users_line_last(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import numpy as np, staticgrad as sg\n"
        "x = sg.placeholder((2,), name='x')\n"
        "def loss(w):\n"
        "    return x @ w\n"
        "y = loss(sg.Variable(np.ones((3, 2))))\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    files = [line.split('"')[1] for line in run.stderr.splitlines() if line.startswith('  File "')]
    assert files == [str(script)] * 2
    assert run.stderr.splitlines()[-2].startswith("staticgrad.errors.GraphError: matmul: ")


def test_public_functions_are_what_they_seem() -> None:
    """To ``inspect``, ``help`` and whoever asks where they are defined."""
    assert [*inspect.signature(sg.sum).parameters] == ["x", "axis", "dtype", "keepdims"]
    assert "def sum(x" in inspect.getsource(sg.sum)
    assert (sg.sum.__module__, sg.sum.__name__, sg.print.__name__) == ("staticgrad", "sum", "print")
    assert (sg.sum.__doc__ or "").strip()
    assert [*inspect.signature(sg.Session.compile).parameters][:3] == ["self", "fetches", "feeds"]
    assert [*inspect.signature(sg.nn.Linear).parameters][:2] == ["in_features", "out_features"]
    assert [*inspect.signature(sg.optim.Adam).parameters][:2] == ["lr", "betas"]


# -- source lines -----------------------------------------------------------------------------------------------------


def test_long_source_lines_are_cut(tmp_path: Path) -> None:
    line = "y = sg.placeholder((2,)) @ [" + ", ".join(["1.0"] * 100) + "]"
    path = tmp_path / "long.py"
    path.write_text(line)
    error = raised(lambda: exec(compile(line, str(path), "exec"), {"sg": sg}))
    quoted = str(error).split(f"{path}:1: ")[1]
    assert len(quoted) == 120
    assert quoted.startswith("y = sg.placeholder((2,)) @ [1.0, ")
    assert quoted.endswith("…")
