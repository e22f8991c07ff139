"""The reference backend: a region run by the NumPy interpreter, with the interface of a loaded program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from staticgrad.base.types import sizes
from staticgrad.compiler.program.slots import collective_slot, collectives_of
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.optable import Array
from staticgrad.ops.control.bodies import draws
from staticgrad.ops.effects import ACCUMULATE_GRAD, ASSIGN
from staticgrad.ops.interpreter import evaluate
from staticgrad.ops.sources import VARIABLE
from staticgrad.runtime.running.kept import TapeContext
from staticgrad.runtime.running.state import SessionState


class ReferenceRunner:
    """Runs one region. ``run(arrays, outs)`` gives an array for each fetched tensor."""

    arena_bytes = 0
    may_be_interrupted = may_fail = True

    def __init__(self, region: Region, store: SessionState) -> None:
        self.region = region
        self.store = store
        self.types = tuple(x.type for x in region.fetches)
        self._draws = any(draws(node) and not node.epoch for node in region.graph.nodes)
        self._summed = {n.attrs.key: n.inputs[0].type for n in region.graph.nodes if n.op is ACCUMULATE_GRAD}
        self._meet_other_ranks()
        self._is_stateful = any(node.op.state for node in region.graph.nodes)

    def _meet_other_ranks(self) -> None:
        """Agree with the other ranks before the first run."""
        nodes = collectives_of(self.region.graph)
        if nodes:
            from staticgrad.runtime.running.mpi import prepare_run

            slots = [collective_slot(node) for node in nodes]
            keys = [node.attrs.key for node in self.region.graph.nodes if node.op in (VARIABLE, ASSIGN)]
            names = tuple(node.name for node in nodes)
            prepare_run(
                slots, names, self.store, keys, lambda place: nodes[place].source if place < len(nodes) else None
            )

    def at(self, numbers: tuple[int, ...]) -> ReferenceRunner:
        """Itself: it runs regions whose sizes are known."""
        assert not numbers
        return self

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]:
        """Run once; state is written when everything else has succeeded."""
        if self._is_stateful or self._draws:
            results = self.store.lock.exclusive(self._run, arrays, tape)
        else:
            results = self._run(arrays, tape)
        if outs is None:
            return results
        for i, out in enumerate(outs):
            if out is not None:
                np.copyto(out, results[i])
                results[i] = out
        return results

    def _run(self, arrays: Sequence[Array], tape: TapeContext | None) -> list[Array]:
        """The results; variables, gradients and the run number are changed at the end, in one step."""
        store, number = self.store, self.store.runs_drawn
        key = np.array([store.seed, number], np.int64)
        again = key
        if tape is not None:
            if tape.run_number < 0:
                tape.run_number = number
            again = np.array([store.seed, tape.run_number], np.int64)
        done: list[bool] = []
        then: list[Callable[[], object]] = [partial(done.append, True)]
        then += [tape.then] if tape is not None and tape.then is not None else []
        try:
            if self._draws:
                store.take_run_number()
            outcome = evaluate(self.region, arrays, lambda attrs: store.array(attrs.key), key, self._gradient, again)
            results = [np.array(value, order="C") for value in outcome.values]
            writes = {name: np.array(value) for name, value in outcome.writes.items()}
            store.change(writes, outcome.gradients, then=then)
        except BaseException:
            if self._draws and not done:
                store.return_run_number(number)
            raise
        return results

    def _gradient(self, key: str) -> Array | None:
        """The sum so far; zeros where this program adds to it first."""
        sum_so_far = self.store.gradient(key)
        if sum_so_far is None and key in self._summed:
            return np.zeros(sizes(self._summed[key].shape), self._summed[key].dtype)
        return sum_so_far
