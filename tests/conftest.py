"""What all tests share: turns, a cache of their own, reproducible random examples, golden files, a graph, both
backends."""

from __future__ import annotations

import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from support.modes import summary, taken
from support.selection import (
    LONG,
    LONG_SECONDS,
    SHARE,
    WIDE,
    commit,
    function_of,
    is_chosen,
    takes_its_turn,
    write_long,
)
from support.targets import EVERY

import staticgrad as sg
from staticgrad.graph.optable import FUNCTIONS

FUNCTIONS.complete()  # tests draw from the whole table
commit()  # known to all processes of the run

GOLDEN = Path(__file__).parent / "data" / "golden"

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption("--update-long", action="store_true", help="list anew the long tests, which take turns")
    parser.addoption("--modes", action="store_true", help="list how often each mode of the emitter was taken")


@pytest.fixture(autouse=True)
def tiers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests run optimised code alone, others both tiers, of drawn programs some quick code alone; the commit says
    which."""
    if "STATICGRAD_TIERS" not in os.environ:
        number = (zlib.crc32(request.node.nodeid.encode()) + commit()) % 4
        may_be_quick = number == 1 and request.path.parent.name == "drawn"
        monkeypatch.setenv("STATICGRAD_TIERS", "1" if number == 0 else "first" if may_be_quick else "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: Counter[str] = Counter()  # those of each test that have been seen
    for item in items:
        if item.path.stem in WIDE:
            item.add_marker(pytest.mark.wide)
        for share in item.iter_markers("share"):
            test, (parts,) = function_of(item.nodeid), share.args
            if not is_chosen(cases[test], parts):
                item.add_marker(pytest.mark.slow)
            cases[test] += 1
    tried = [item for item in items if not any(item.get_closest_marker(name) for name in ("slow", "wide"))]
    turns: Counter[str] = Counter()
    for item in tried:
        test = function_of(item.nodeid)
        if test in LONG and not takes_its_turn(test, turns[test]):
            item.add_marker(pytest.mark.slow)
        turns[test] += 1


SECONDS: dict[str, float] = {}  # the longest case of each test


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = function_of(report.nodeid)
    SECONDS[test] = max(SECONDS.get(test, 0.0), report.duration)


TAKEN: Counter[str] = Counter()  # modes of the emitter in the processes that have ended


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What this process has taken goes to the process that tells, which may be this one."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["modes"] = dict(taken())
    elif session.config.getoption("--update-long"):
        write_long(LONG - SECONDS.keys() | {test for test, seconds in SECONDS.items() if seconds >= LONG_SECONDS})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    TAKEN.update(getattr(node, "workeroutput", {}).get("modes", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = TAKEN + taken()
    every = bool(config.getoption("--modes"))
    terminalreporter.write_line(f"targets: {', '.join(EVERY)}; share {os.environ[SHARE][:12]}")
    for line in summary(counts, every) if counts else ():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled programs of a test run are not kept in the user's cache, nor taken from it."""
    with pytest.MonkeyPatch.context() as patch:
        if "STATICGRAD_CACHE_DIR" not in os.environ:
            patch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_progress() -> Iterator[None]:
    """No test writes lines about the progress of compilations, whatever its output goes to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATICGRAD_PROGRESS", "0")
        yield


@pytest.fixture(autouse=True)
def narrow_jax() -> Iterator[None]:
    """JAX is as it begins in each test, without dtypes of 64 bits; they are switched on for a whole process."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "config"):
        jax.config.update("jax_enable_x64", False)


@pytest.fixture
def g() -> Iterator[sg.Graph]:
    """A graph that is current during the test."""
    with sg.Graph() as graph:
        yield graph


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch, g: sg.Graph) -> sg.Graph:
    """Such a graph, whose constants are computed by kernels too."""
    monkeypatch.setenv("STATICGRAD_DISABLE", "fold")
    return g


@pytest.fixture(params=("compiled", "reference"))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test that uses it runs compiled and by the interpreter."""
    name: str = request.param
    monkeypatch.setenv("STATICGRAD_BACKEND", name)
    return name


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text equals ``tests/data/golden/<name>``, or becomes it under ``--update-golden``."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, actual: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest --update-golden and read what it wrote"
        assert actual == path.read_text(encoding="utf-8"), f"{name} differs; if it should, run pytest --update-golden"

    return compare
