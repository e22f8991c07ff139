"""PyTensor's ``Scan`` as a scan or a while loop of ours, and its choice between branches.

A ``Scan`` reads and writes buffers at offsets (taps) from the present step. None of them becomes a buffer that a loop
carries and writes to: what a step needs of earlier ones is a window of a few rows, which the loop carries; the oldest
row leaves it as a stacked result.

- sit-sot, mit-sot (a state and some of its earlier values): the window reaches back to the oldest tap.
  A buffer is the first window and the stacked states after it; a shorter buffer is their end, since steps write around
  in it, and where it is as long as the window nothing is stacked.
- nit-sot (results without a memory): stacked.
- mit-mot (rows that are read and written, in gradients of scans): step i sees the rows from i to i + w - 1. The newest
  row comes from the buffer, the others from the step before, and row i is complete after step i.
- what has no axis of steps: carried.

A ``Scan`` with a condition to stop becomes a while loop if the sizes of its results do not depend on when it stops,
that is, if no more rows are kept than the window and one step have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import as_tensors, cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, body_of, converts
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


@converts("IfElse")
def if_else(at: Translation, node: Any) -> list[Any]:
    count = node.op.n_outs
    condition, *values = node.inputs
    chosen, other = values[:count], values[count:]
    if at.is_known(condition):
        return [at.value(v) for v in (chosen if np.any(at.value(condition)) else other)]
    pairs = list(zip(at.tensors(chosen), at.tensors(other)))
    if any(x.shape != y.shape for x, y in pairs):
        raise RefusedError("the branches have results of different shapes")
    holds = at.tensor(condition) != 0
    return [o.where(holds, x, y) for x, y in pairs]


class ScanParts:
    """The operands and results of a ``Scan``, and those of its inner graph, by their kind."""

    def __init__(self, at: Translation, node: Any) -> None:
        op = node.op
        self.info = info = op.info
        outer = iter(node.inputs)
        self.steps = int(at.known(next(outer), "the number of steps"))
        if self.steps < 0:
            raise IndexError(f"Scan was asked to run for negative number of step {self.steps}")
        self.rows = [at.tensor(next(outer)) for _ in range(info.n_seqs)]
        for number, row in enumerate(self.rows):
            if row.shape[0] < self.steps:
                raise ValueError(
                    f"Sequence {number} has shape {row.shape} but the Scan's required number of steps is {self.steps}"
                )
        self.mixed = [at.tensor(next(outer)) for _ in info.mit_mot_in_slices]
        self.states = [at.tensor(next(outer)) for _ in range(info.n_mit_sot + info.n_sit_sot)]
        untraced = [next(outer) for _ in range(_untraced(info))]
        self.carried = at.tensors(untraced)
        self.lengths = [int(at.known(next(outer), "the number of results")) for _ in range(info.n_nit_sot)]
        self.constants = [at.value(v) for v in outer]
        self.state_taps = [tuple(taps) for taps in (*info.mit_sot_in_slices, *info.sit_sot_in_slices)]
        self.depths = [-min(taps) for taps in self.state_taps]
        self.mixed_in, self.mixed_out, self.widths = [], [], []
        for reads, writes in zip(info.mit_mot_in_slices, info.mit_mot_out_slices):
            oldest = min(0, *reads)
            self.mixed_in.append([tap - oldest for tap in reads])
            self.mixed_out.append([tap - oldest for tap in writes])
            self.widths.append(max(*self.mixed_in[-1], *self.mixed_out[-1], 0) + 1)
        self.body = body_of(op)


def _untraced(info: Any) -> int:
    return int(info.n_untraced_sit_sot if hasattr(info, "n_untraced_sit_sot") else info.n_shared_outs)


@converts("Scan")
def scan(at: Translation, node: Any) -> list[Tensor]:
    parts = ScanParts(at, node)
    for buffer, depth in zip(parts.states, parts.depths):
        if buffer.shape[0] < depth:
            raise ValueError(f"{node}: an initial state of {buffer.shape[0]} rows, but taps reach back {depth}")
    for buffer, width in zip(parts.mixed, parts.widths):
        if buffer.shape[0] < parts.steps + width - 1:
            raise RefusedError("a buffer that is read and written at several taps is shorter than its steps")
    return _until(at, node, parts) if parts.info.as_while else _counted(at, node, parts)


class Turn:
    """The results of a step of the inner graph."""

    def __init__(
        self, at: Translation, parts: ScanParts, rows: Sequence[Tensor], mixed: Sequence[Sequence[Tensor]],
        states: Sequence[Sequence[Tensor]], carried: Sequence[Tensor],
    ) -> None:  # fmt: skip
        read = [window[tap] for window, taps in zip(mixed, parts.mixed_in) for tap in taps]
        earlier = zip(states, parts.state_taps, parts.depths)
        read += [window[depth + tap] for window, taps, depth in earlier for tap in taps]
        given: list[Any] = [*rows, *read, *carried, *parts.constants]
        results = iter(as_tensors(at.call(parts.body, given)))
        self.mixed = [list(window) for window in mixed]
        for window, taps in zip(self.mixed, parts.mixed_out):
            for tap in taps:
                window[tap] = _like(window[tap], next(results))
        self.states = [[*window[1:], _like(window[0], next(results))] for window in states]
        self.results = [next(results) for _ in parts.lengths]
        self.carried = [_like(x, next(results)) for x in carried]
        self.stop = next(results, None)


def _like(before: Tensor, after: Tensor) -> Tensor:
    """A new value of something that is carried."""
    if before.shape != after.shape:
        raise RefusedError(f"a state changes its shape from {before.shape} to {after.shape}")
    return cast(after, before.dtype)


def _windows(buffers: Sequence[Tensor], depths: Sequence[int]) -> list[list[Tensor]]:
    return [[buffer[row] for row in range(depth)] for buffer, depth in zip(buffers, depths)]


def _counted(at: Translation, node: Any, parts: ScanParts) -> list[Tensor]:
    steps = parts.steps
    stacked = [buffer.shape[0] > depth for buffer, depth in zip(parts.states, parts.depths)]
    newest = [buffer[width - 1 : width - 1 + steps] for buffer, width in zip(parts.mixed, parts.widths)]
    mixed = _windows(parts.mixed, [width - 1 for width in parts.widths])
    start = (mixed, _windows(parts.states, parts.depths), parts.carried)

    def turn(carry: Any, rows: Any) -> Any:
        mixed, states, carried = carry
        whole = [[*window, row] for window, row in zip(mixed, rows[1])]
        done = Turn(at, parts, rows[0], whole, states, carried)
        kept = [window[-1] for window, wanted in zip(done.states, stacked) if wanted]
        leaving = [window[0] for window in done.mixed]
        return ([window[1:] for window in done.mixed], done.states, done.carried), (leaving, kept, done.results)

    (mixed, states, carried), (leaving, kept, results) = o.scan(
        turn, start, ([row[:steps] for row in parts.rows], newest), length=steps
    )
    mixed_buffers = [
        o.concat([gone, *_stacked(window), buffer[steps + width - 1 :]])
        for gone, window, buffer, width in zip(leaving, mixed, parts.mixed, parts.widths)
    ]
    following = iter(kept)
    state_buffers = []
    for buffer, depth, wanted, window in zip(parts.states, parts.depths, stacked, states):
        if not wanted:
            state_buffers.append(o.stack(window))
            continue
        whole = o.concat([buffer[:depth], next(following)])
        state_buffers.append(_ended(whole, int(buffer.shape[0])))
    stacks = [_ended(stack, length) for stack, length in zip(results, parts.lengths)]
    return [*mixed_buffers, *state_buffers, *stacks, *carried]


def _stacked(window: Sequence[Tensor]) -> list[Tensor]:
    return [o.stack(list(window))] if window else []


def _ended(rows: Tensor, length: int) -> Tensor:
    """The last rows that a buffer of this length has, and zeros where it is longer than they are."""
    missing = length - rows.shape[0]
    if missing <= 0:
        return rows[rows.shape[0] - length :]
    return o.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


def _until(at: Translation, node: Any, parts: ScanParts) -> list[Tensor]:
    """The while loop; it runs at least once, so of a state one row more than the window is there in any case."""
    lasting = all(buffer.shape[0] <= depth + 1 for buffer, depth in zip(parts.states, parts.depths))
    if not lasting or any(length > 1 for length in parts.lengths) or parts.mixed or parts.steps == 0:
        raise RefusedError("how many rows a scan with a condition gives depends on values that only a run knows")

    def turn(number: Tensor, states: Any, carried: Any) -> Any:
        done = Turn(at, parts, [o.take(row, number, axis=0) for row in parts.rows], [], states, carried)
        assert done.stop is not None
        left = [window[0] for window in states]
        return number + 1, done.stop != 0, left, done.states, done.carried, done.results

    zero = o.constant(0, dtype_of(np.int64))
    _, _, left, states, carried, results = o.while_loop(
        lambda state: ~state[1] & (state[0] < parts.steps),
        lambda state: turn(state[0], state[3], state[4]),
        turn(zero, _windows(parts.states, parts.depths), parts.carried),
    )
    buffers = [
        o.stack([row, *window] if buffer.shape[0] > depth else window)
        for row, window, buffer, depth in zip(left, states, parts.states, parts.depths)
    ]
    stacks = [o.expand_dims(x, 0)[:length] for x, length in zip(results, parts.lengths)]
    return [*buffers, *stacks, *carried]
