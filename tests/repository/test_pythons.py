"""Other versions of Python: a few tests on each of them, on an interpreter that is assembled for it."""

from __future__ import annotations

import os

import pytest
import pythons

CI = os.environ.get("CI") == "true"  # where nothing may be missing


@pytest.mark.skipif(not (pythons.can_assemble() or CI), reason="needs Linux on x86-64 and npm")
@pytest.mark.parametrize("name", pythons.PYTHONS)
def test_the_short_selection_passes(name: str) -> None:
    python = pythons.PYTHONS[name]
    try:
        pythons.assemble(python)
    except pythons.NotServed as error:
        if CI:
            raise
        pytest.skip(f"{error}")
    done = pythons.run_tests(python, pythons.arguments(python, short=True))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
