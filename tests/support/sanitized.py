"""C callers and the programs that they call, all under a sanitizer of gcc: run by ``test_c_functions`` in a process of
its own, whose first library is the sanitizer's.

    python sanitized.py thread|address LIBRARY

Every program, and every part of the runtime, is compiled with its accesses told (``sanitizing``). First all signatures
are called from eight threads at once. Then comes ``HERE`` on stderr, and what the sanitizer must find: threads that
write one array, or an array that is an element short.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

import staticgrad as sg
from staticgrad.base import image
from staticgrad.compiler.native import codegen
from support.callers import call_at_once, density, loaded, programs
from support.sanitizing import instrumented

HERE = "what follows is wrong"


def main(kind: str, library: str) -> None:
    plain = codegen.objects
    codegen.objects = lambda texts, *more, **options: plain([instrumented(x, kind) for x in texts], *more, **options)
    image.loads_here = lambda: False  # LLVM's loader finds the sanitizer's functions in the process
    callers = loaded(Path(library))
    for name, (function, arrays, expected) in programs().items():
        differ = call_at_once(callers, function, arrays, expected, calls=10)
        assert differ == 0, f"{name}: {differ} results differ"
    if kind == "address":
        refreshed()
    print(HERE, file=sys.stderr, flush=True)
    function, arrays, expected = density("logp")  # without state, which is counted in an order that hides a race
    if kind == "thread":
        shared = [np.zeros_like(x) for x in expected]
        call_at_once(callers, function, arrays, expected, shared=shared)
    else:
        short = [expected[0].nbytes, expected[1].nbytes - 8]
        call_at_once(callers, function, arrays, expected, sizes=short, calls=1)


def refreshed() -> None:
    """State is taken anew while other threads read the old one, which must not be given up before they are done. (What
    Python writes is not told, so this says nothing to a thread sanitizer.)"""
    x, w = sg.placeholder((), sg.float64), sg.Variable(np.ones(2000))
    session = sg.Session()
    function = session.compile(x * sg.max(w) + sg.min(w), x).cfunc("scalar")
    ended = threading.Event()

    def call() -> None:
        call_it = function.ctypes
        while not ended.is_set():
            assert call_it(1.0, None) % 2 == 0

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for value in range(200):
        session.set(w, np.full(2000, float(value)))
        function.refresh()
    ended.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
