"""Autotuning: which blocking of each matrix product is fastest here, as measured.

Input: a region, the options that it shall be compiled with, and the state that it runs on. Output: the same
options with the ``blockings`` that were found. What these are, ``plans/contraction/blocking.py`` says: the usual one of
each product and a few more that seem almost as fast, all of which add the terms of an element in the same order.

Programs that note the time after each step are compiled, one with all usual blockings and one more for each of the
others of a product; each gives another blocking to every product. (Products that share a step, as they do in the body
of a loop, take turns.) All run in turn, call by call, so that whatever else the machine does slows all of them. A
blocking is chosen if the median of its times is by ``WORTH`` less than the usual one's in the first half of the calls
and in the second.

What was chosen is remembered for the rest of the process and under the cache's directory, by the product, the target,
the processor, the number of threads and this package's sources. What is found there is used only if it is among the
blockings that would be tried now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import TensorType, is_floating, sizes
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.kernels.matrix import Blocking, Contraction
from staticgrad.compiler.machine.target import processor
from staticgrad.compiler.native import cache
from staticgrad.compiler.native.module import load_code, machine_code
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.plans.contraction.blocking import blockings
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.program.slots import CallbackSlot, CollectiveSlot
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.native import NativeRunner
from staticgrad.runtime.running.state import SessionState

WORTH = 0.05  # how much faster than the usual blocking one has to be
WARM_CALLS = 3
FEWEST_CALLS, MOST_CALLS, SECONDS = 6, 500, 0.25  # of each program, within the time and these bounds

Chosen = Mapping[Contraction, Blocking]

_chosen: dict[tuple[str, ...], Blocking] = {}  # by this process


def tuned(region: Region, options: CompileOptions, store: SessionState) -> CompileOptions:
    """The options with the fastest blockings of the region's products: those that are remembered, else those that are
    found by running on a copy of ``store``. Where the program cannot be run without its user, or fails on the feeds
    that are made up here, blockings that are not remembered stay the usual ones."""
    program = compile_region(region, options)
    tries = {product: blockings(product, options.target) for step in program.products for product in step}
    tries = {product: several for product, several in tries.items() if several}
    chosen = {product: _remembered(product, several, options) for product, several in tries.items()}
    found = {product: blocking for product, blocking in chosen.items() if blocking is not None}
    untried = {product: several for product, several in tries.items() if product not in found}
    if untried and not any(isinstance(slot, CallbackSlot | CollectiveSlot) for slot in program.slots):
        try:
            fastest = _fastest(region, options, store, program, untried)
        except StaticGradError:  # a check of the program's, or a budget that it needs more than
            fastest = {}
        for product, blocking in fastest.items():
            _remember(product, blocking, options)
            found[product] = blocking
    better = {product: blocking for product, blocking in found.items() if blocking != tries[product][0]}
    return _that_fits(region, with_blockings(options, better)) if better else options


def with_blockings(options: CompileOptions, chosen: Chosen) -> CompileOptions:
    """The options with these blockings, and with the usual ones of all other products."""
    return replace(options, blockings=tuple(sorted(chosen.items(), key=lambda entry: repr(entry[0]))))


def _that_fits(region: Region, options: CompileOptions) -> CompileOptions:
    """The options, without blockings if their scratch memory would exceed the budget."""
    if options.memory_budget is not None:
        try:
            compile_region(region, options)
        except StaticGradError:
            return with_blockings(options, {})
    return options


# -- trying ---------------------------------------------------------------------------------------------------------


def _fastest(
    region: Region,
    options: CompileOptions,
    store: SessionState,
    program: Program,
    tries: Mapping[Contraction, Sequence[Blocking]],
) -> dict[Contraction, Blocking]:
    """The blocking that is worth choosing for each product, by timing all of ``tries``.

    Raises:
        StaticGradError: the program does not run on made-up feeds, or a blocking needs more than the budget.
    """
    rounds = _rounds(tries, program.products)
    own = store.copy()
    timed = [replace(with_blockings(options, others), timed=True) for others in ({}, *rounds)]
    runners = [NativeRunner(_loaded(compile_region(region, each), each), own) for each in timed]
    times = [
        _by_product(runner.program, spans)
        for runner, spans in zip(runners, _time(runners, _feeds(region)), strict=True)
    ]
    chosen = {product: several[0] for product, several in tries.items()}
    for product in chosen:
        usual = times[0][product]
        best = usual * (1 - WORTH)
        for others, found in zip(rounds, times[1:], strict=True):
            if product in others and product in found and np.all(found[product] < best):
                best = np.minimum(best, found[product])
                chosen[product] = others[product]
    return chosen


def _loaded(program: Program, options: CompileOptions) -> Binary:
    """A program that is loaded but not kept on disk: it is not asked for again."""
    code = load_code(machine_code(program.modules, options.target))
    return Binary(program.interface, code, False, lambda: program, program)


def _rounds(
    tries: Mapping[Contraction, Sequence[Blocking]], products: Sequence[Sequence[Contraction]]
) -> list[dict[Contraction, Blocking]]:
    """The blockings that are not the usual ones, in as few programs as give no step two of them."""
    rounds: list[tuple[set[int], dict[Contraction, Blocking]]] = []
    for product, several in tries.items():
        steps = {number for number, inside in enumerate(products) if product in inside}
        for blocking in several[1:]:
            free = next((entry for entry in rounds if not entry[0] & steps), None)
            if free is None:
                free = (set(), {})
                rounds.append(free)
            free[0].update(steps)
            free[1][product] = blocking
    return [others for _, others in rounds]


def _time(runners: Sequence[NativeRunner], feeds: Sequence[Array]) -> list[Array]:
    """Ticks that each step of each program takes: (2, steps), medians of the first half of the calls and the second.

    Raises:
        StaticGradError: a check of the program fails.
    """
    spans: list[list[Array]] = [[] for _ in runners]
    for runner in runners:
        for _ in range(WARM_CALLS):
            runner.run(feeds)
    begin, seconds = time.perf_counter(), SECONDS * len(runners)
    while len(spans[0]) < FEWEST_CALLS or (len(spans[0]) < MOST_CALLS and time.perf_counter() - begin < seconds):
        for runner, noted in zip(runners, spans, strict=True):
            runner.run(feeds)
            noted.append(np.diff(runner.ticks()))
    half = len(spans[0]) // 2
    return [np.stack([np.median(part, axis=0) for part in (noted[:half], noted[half:])]) for noted in spans]


def _by_product(program: Program, spans: Array) -> dict[Contraction, Array]:
    """The time of the steps in which a product is, on average, for each half of the calls."""
    steps: dict[Contraction, list[int]] = {}
    for number, inside in enumerate(program.products):
        for product in inside:
            steps.setdefault(product, []).append(number)
    return {product: spans[:, numbers].mean(axis=1) for product, numbers in steps.items()}


def _feeds(region: Region) -> list[Array]:
    """Feeds that programs run on without their user: random floats; zeros of other types, which are valid as labels and
    as indices."""
    rng = np.random.default_rng(0)
    return [_made_up(rng, x.type) for x in region.feeds]


def _made_up(rng: np.random.Generator, type_: TensorType) -> Array:
    shape = sizes(type_.shape)
    if is_floating(type_.dtype):
        return np.asarray(rng.standard_normal(shape), type_.dtype)
    return np.zeros(shape, type_.dtype)


# -- remembering ----------------------------------------------------------------------------------------------------


def _names(product: Contraction, options: CompileOptions) -> tuple[str, ...]:
    return ("blocking", repr(product), repr(options.target), processor(), str(options.workers))


def _remembered(product: Contraction, several: Iterable[Blocking], options: CompileOptions) -> Blocking | None:
    """The blocking that was chosen for a product, if it is among ``several``, else None."""
    names = _names(product, options)
    known = _chosen.get(names)
    if known is None:
        match cache.load(cache.key_of(*names)):
            case (bool(swapped), int(rows), int(vectors), bool(folded), bool(packed)):
                known = Blocking(swapped, rows, vectors, folded, packed)
    return known if known in tuple(several) else None


def _remember(product: Contraction, blocking: Blocking, options: CompileOptions) -> None:
    names = _names(product, options)
    _chosen[names] = blocking
    kept = (blocking.swapped, blocking.rows, blocking.vectors, blocking.folded, blocking.packed)
    cache.save(cache.key_of(*names), kept)
