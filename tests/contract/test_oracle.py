"""Retain semantics held against PyTorch's: random programs and scripts, whose answers PyTorch gave, are replayed.

``make oracle`` draws them and asks PyTorch; ``oracle/scripts.py`` says what a script is, ``oracle/draw.py`` what is
drawn and what is left out. Compared are values and gradients in double precision, what hooks saw and in which order,
and which calls are refused for which reason. A refused call changes nothing; PyTorch's answers after one are those to
the script without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from oracle.declared import Declared
from oracle.scripts import Action, Assign, Backward, Gradients, Hook, Script, Value, perform, read
from support.selection import slow

SCRIPTS = list(read())
CHUNKS = 24
TOLERANCE = 1e-9


def same(got: Any, want: Any, what: str) -> None:
    """Equal up to rounding errors, relative to the largest element."""
    if got is None or want is None:
        assert got is want, f"{what}: {got}, expected {want}"
        return
    expected = np.asarray(want, np.float64)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=what)


def compare(script: Script, action: Action, got: Any, want: Any, what: str) -> None:
    if isinstance(action, Value):
        same(got, want, what)
    elif isinstance(action, Gradients):
        for number, a, b in zip(action.tensors, got, want, strict=True):
            same(a, b, f"{what}, gradient of tensor {number}")
    elif isinstance(action, Backward):
        assert got[0] == want[0], f"{what}: {got}, expected {want}"
        if got[0] == "refused":
            assert got[1] == want[1], what
            return
        in_order(script, got[1:], want[1:], what)


def in_order(script: Script, got: list[Any], want: list[Any], what: str) -> None:
    """The hooks of one tensor in order, and those of all tensors that are no leaves: PyTorch runs a leaf's as soon as
    its gradient is complete, here it is completed last."""
    place = {action.handle: action.tensor for action in script.actions if isinstance(action, Hook)}
    leaves = range(len(script.recipe.leaves))
    for group in ([i for i in set(place.values()) if i not in leaves], *([i] for i in leaves)):
        ours, theirs = ([note for note in notes if place[note[0]] in group] for notes in (got, want))
        assert [handle for handle, _ in ours] == [handle for handle, _ in theirs], f"{what}: hooks"
        for (handle, a), (_, b) in zip(ours, theirs, strict=True):
            same(a, b, f"{what}, what hook {handle} saw")


def budget_of(number: int, script: Script) -> int | None:
    """Every third script computes again what it does not keep. That reads variables, which may not be written then."""
    return 0 if number % 3 == 2 and not any(isinstance(action, Assign) for action in script.actions) else None


def replay(script: Script, budget: int | None = None) -> None:
    player = Declared(script.recipe, budget)
    for number, (action, want) in enumerate(zip(script.actions, script.answers, strict=True)):
        compare(
            script, action, perform(player, action), want, f"{script.name}, action {number} {type(action).__name__}"
        )


PLAYED = [
    case
    for chunk in range(0, CHUNKS, 2)
    for case in ((chunk, "compiled"), (chunk + 1, "reference"), slow(chunk + 1, "compiled"))
]


@pytest.mark.parametrize(("chunk", "how"), PLAYED)
def test_replayed_scripts_get_pytorchs_answers(chunk: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", how)
    chosen: Sequence[tuple[int, Script]] = list(enumerate(SCRIPTS))[chunk::CHUNKS]
    assert chosen
    for number, script in chosen:
        replay(script, budget_of(number, script))


def test_the_oracle_covers_what_it_should() -> None:
    """The data file is not thinner than it claims."""
    backwards = [
        (action, answer)
        for script in SCRIPTS
        for action, answer in zip(script.actions, script.answers, strict=True)
        if isinstance(action, Backward)
    ]
    reasons = {answer[1] for _, answer in backwards if answer[0] == "refused"}
    assert len(SCRIPTS) >= 300
    assert reasons == {"freed", "no grad", "not scalar", "wrong shape", "changed"}
    assert sum(answer[0] == "refused" for _, answer in backwards) >= len(backwards) // 10
    assert sum(answer[0] == "ok" for _, answer in backwards) >= len(backwards) // 3
    assert len({step.op for script in SCRIPTS for step in script.recipe.steps}) >= 100
    assert any(len(action.outputs) > 1 for action, _ in backwards)
