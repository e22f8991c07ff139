"""The node cases of ONNX's own backend test, run by ``staticgrad.onnx.backend``.

``outcome`` gives "" for a case whose outputs are those that ONNX says, and else the reason why it is refused. As a
program (``python tests/support/onnx_cases.py``) it runs all cases and tells how many fail and why; with
``--update`` it writes the list of those that are refused.
"""

from __future__ import annotations

import collections
import functools
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

REFUSED = Path(__file__).parents[1] / "data" / "onnx_refused.txt"


@functools.cache
def cases() -> list[Any]:
    """All cases, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def outcome(case: Any) -> str:
    """ "" if all outputs agree; the reason if the case is refused.

    Raises:
        AssertionError: outputs differ.
    """
    import staticgrad as sg
    import staticgrad.onnx

    try:
        ready = staticgrad.onnx.backend.prepare(case.model)
        for inputs, expected in case.data_sets:
            actual = ready.run(list(inputs))
            assert len(actual) == len(expected)
            for ours, theirs in zip(actual, expected):
                compare(ours, theirs, case.rtol, case.atol)
    except sg.UnsupportedError as error:
        ops = {f"{op.name}: {op.reason}" for op in error.ops}
        return "; ".join(sorted(ops)) or error.reason
    return ""


def verdict(case: Any) -> str:
    """ "" if a case passes, else why it does not."""
    try:
        return outcome(case)
    except AssertionError as error:
        return "outputs differ" if "Not equal to tolerance" in str(error) else f"fails: {error}"


def listed() -> dict[str, str]:
    """The cases that are known not to pass, each with the reason."""
    pairs = (line.split(": ", 1) for line in REFUSED.read_text(encoding="utf-8").splitlines())
    return dict(pairs)  # type: ignore[arg-type]


def compare(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected), f"values of a sequence: expected {len(expected)}, actual {len(actual)}"
        for pair in zip(actual, expected):
            compare(*pair, rtol, atol)
        return
    expected = numpy_helper.to_array(expected) if hasattr(expected, "data_type") else np.asarray(expected)
    assert actual.dtype == expected.dtype, f"dtype: expected {expected.dtype}, actual {actual.dtype}"
    assert actual.shape == expected.shape, f"shape: expected {expected.shape}, actual {actual.shape}"
    if expected.dtype.kind == "V" or expected.dtype.itemsize < 4:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def sweep(names: Sequence[str] = ()) -> dict[str, str]:
    """The verdict on each case."""
    found = {}
    for case in cases():
        if not names or any(part in case.name for part in names):
            try:
                found[case.name] = verdict(case)
            except Exception as error:
                found[case.name] = f"fails: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


def main(arguments: Sequence[str]) -> None:
    """Run the cases whose names have one of the arguments in them, by default all."""
    os.environ.setdefault("STATICGRAD_BACKEND", "reference")
    names = [each for each in arguments if not each.startswith("-")]
    found = sweep(names)
    reasons = collections.defaultdict(list)
    for name, reason in found.items():
        reasons[reason].append(name)
    for reason, those in sorted(reasons.items(), key=lambda item: -len(item[1])):
        if reason:
            print(f"{len(those):4} {reason}  [{', '.join(those[:4])}]")
    print(f"{len(reasons[''])} of {len(found)} pass")
    if "--update" in arguments and not names:
        lines = [f"{name}: {reason}" for name, reason in sorted(found.items()) if reason]
        REFUSED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
