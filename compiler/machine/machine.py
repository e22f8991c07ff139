"""The model of the machine: caches, lines and pages, and every rate with which the compiler estimates.

    Machine        one family of machines: what emitters and estimates ask of a target
    ProductCosts   what matrix products cost in addition to their multiply-adds, fitted to measured products
    RATES          what is the same for all machines, as only orders of magnitude count

Times are seconds, of one core, unless they are cycles. Where two names have about the same meaning and other values,
they were fitted to different decisions. Small twins of machines, for tests, have sizes divided by ``SMALL_DIVISOR``.
"""

from __future__ import annotations

import math
from dataclasses import replace

from staticgrad.base.frozen import frozen

SMALL_DIVISOR = 64  # of the sizes of a small twin
LINE = 64  # bytes of a cache line, of all machines that are known here
PAGE = 4096  # bytes; lines a multiple of it apart fall into one set of the first cache


@frozen
class InPlace:
    """The limits up to which B is read where it lies, strided, rather than copied."""

    any_rows_bytes: int  # length of a B that is read in place by any number of rows of A
    most_rows: int  # rows of A that read a longer one in place
    aliasing_bytes: int  # distance of rows of B whose multiples fall into few sets of the first cache
    aliased_rows: int  # rows of A that read such a B in place
    split_rows: int  # rows of A that read a far B in place whose vectors lie across two lines


@frozen
class ProductCosts:
    """The costs of a product in addition to its multiply-adds, in cycles, and the tiles that suit the machine."""

    in_place: InPlace
    near_b_cycles: float  # for each k of a vector of B, in a panel that stays in the first cache
    far_b_cycles: float  # the same in a panel of more than ``near_vectors``
    near_vectors: int
    a_cycles: float  # for each k of a row of A
    tile_cycles: float  # of a tile
    stored_cycles: float  # of each vector that a tile stores
    copied_cycles: float  # a byte of a copy by vectors
    turned_cycles: float  # a byte of a transposing copy
    turned_back_cycles: float  # a byte of a result that is copied transposed
    usual_rows: int  # height of tiles that shapes share
    most_vectors: int  # width of tiles of several rows
    spare_registers: int  # left over by tiles
    low_tiles: bool  # turns are short, so far lines come late for most of a panel: each tile and copy prefetches them
    row_pointers: bool  # a pointer for each row of A, which makes turns of fewer instructions
    prefetch_turns: int  # between the prefetch of a line and its use
    near_bytes: int = 4 << 20  # length of operands up to which they are in a cache when they are read again
    read_turned_cycles: float = 2.5  # an element of results that an epilogue reads transposed
    least_saved_cycles: float = 0.03  # a byte of an operand that is kept packed: half of what copying it takes
    # Of tiles with terms side by side:
    loaded_cycles: float = 0.1  # a load, of packed operands
    loaded_in_place_cycles: float = 0.17  # a load of dot products, which read in place
    added_cycles: float = 3  # an accumulator at the end of a tile
    packing_call_cycles: float = 40  # a call of a packing function, however little it packs
    chain_cycles: float = 4.4  # a turn at least: with no sums to spare, what is late once is never made up for
    filtered_cycles: float = 0.5  # a vector that a tile stores of a product of minimal filtering
    rounded_cycles: float = 0.4  # an element of an operand that is rounded to a short float


@frozen(eq=False)
class Machine:
    """A family of machines, equal to itself alone."""

    name: str
    own_cache_bytes: int  # about what a core has for itself: its second cache
    products: ProductCosts
    interleaved: int = 1  # long chains of instructions that hide each other's latencies
    divisor: int = 1  # of this package's sizes and times at which a kernel is run in another way
    compact: bool = False  # code is to be short: tiles are small, loops are not unrolled
    sparing: bool = False  # memory is short: products that would pack much go without
    page: int = PAGE  # bytes
    far_bytes: int = 2048  # distance of rows that are new to the prefetchers, which stop at a page's end
    frame_bytes: int = 16 << 10  # of the stack at most, for what functions spill and the tables of chunks
    packing_bytes: int = 1000 << 10  # place that the products of a program share, which stays in a cache

    # What one core does in a second, from what the kernels of benchmarks/ reach in cache, rounded down: it decides
    # whether work is worth sharing among threads.
    product_flops_per_lane: float = 9e9
    convolution_flops_per_lane: float = 7e9
    integer_flops_per_lane: float = 2e9
    routine_flops: float = 1e9  # a guess, to tell long batches from short ones
    bytes_moved: float = 3e10
    instruction_seconds: float = 2.5e-10  # of a nest, without its loads and loops
    worth_sharing_seconds: float = 20e-6  # work from which waking another thread pays
    chunk_seconds: float = 5e-6  # work of a chunk: little compared with it is the time for taking one, 0.1e-6
    # Rates that decide whether a value is computed again.
    inlined_instruction_seconds: float = 1.25e-10  # two vector instructions a cycle
    near_bytes: int = 1 << 15  # of the first cache, where moving costs nothing more
    middle_bytes: int = 1 << 19  # of the second cache
    middle_bytes_per_second: float = 8e10  # one core while others are busy, from the second cache
    far_bytes_per_second: float = 1e10  # one core while others are busy, from farther away
    kernel_seconds: float = 2e-8  # saved by a kernel less
    # Cycles of the transposes of convolutions by weights.
    packed_y: float = 0.25  # an element of y that is packed
    packed_column: float = 0.4  # a pixel that is packed into a plane of columns
    moved_weight: float = 0.4  # a weight that is brought into its place, if it is not added up there

    def sized(self, amount: int, least: int = 1) -> int:
        """A constant of this package, in bytes, elements or turns, as this machine has it; ``least`` at least."""
        return max(least, amount // self.divisor)


@frozen
class Rates:
    """Rough rates that hold for every machine, for decisions about whole steps and programs, which a factor of two does
    not change."""

    # A fast core with its operands in cache, for lower bounds of times.
    best_flops_per_second: float = 1.5e11
    best_bytes_per_second: float = 3e10
    # A core with its operands in memory: of two steps the one that takes longer is not run twice to save memory.
    repeated_flops_per_second: float = 1e11
    repeated_bytes_per_second: float = 1e10
    call_seconds: float = 1e-5  # of a Python function
    turn_seconds: float = 5e-9  # of a loop, without what its parts take
    polls_from_seconds: float = 1e-3  # of a program that looks whether it shall end
    poll_seconds: float = 0.5e-3  # between two looks of a program
    loop_poll_seconds: float = 1e-4  # between two looks of a loop
    # Machine code (benchmarks/tiers.py, one core of an AVX2 machine).
    codegen_seconds: float = 1.3e-6  # of a character of LLVM text, by the optimising code generator
    quick_saves: float = 0.7  # the part of these seconds that code which is made quickly saves
    quick_least_saved_seconds: float = 0.015  # below, a thread that makes the optimised code does not pay
    quick_takes: float = 20.0  # times the lower bound of its time a kernel takes longer if it is made quickly


RATES = Rates()


def compact(machine: Machine) -> Machine:
    """The twin whose code is short."""
    return replace(machine, name=f"{machine.name}-size", compact=True, interleaved=1)


def small(machine: Machine) -> Machine:
    """The twin whose sizes are small."""
    of_all, costs = replace(machine, divisor=SMALL_DIVISOR), machine.products
    place = costs.in_place
    limits = place.any_rows_bytes, place.most_rows, place.aliasing_bytes, place.aliased_rows, place.split_rows
    products = replace(costs, in_place=InPlace(*map(of_all.sized, limits)), near_bytes=of_all.sized(costs.near_bytes))
    return replace(
        of_all,
        name=f"{machine.name}-small",
        own_cache_bytes=of_all.sized(machine.own_cache_bytes),
        products=products,
        page=of_all.sized(machine.page),
        far_bytes=of_all.sized(machine.far_bytes),
        near_bytes=of_all.sized(machine.near_bytes),
        middle_bytes=of_all.sized(machine.middle_bytes),
    )


# Of 32 registers: from 500 products, which it meets within 7 % (one standard deviation; AMD Zen 5).
HIGH_TILES = ProductCosts(
    InPlace(any_rows_bytes=512 << 10, most_rows=192, aliasing_bytes=PAGE, aliased_rows=64, split_rows=96),
    near_b_cycles=0.1, far_b_cycles=0.25, near_vectors=512, a_cycles=0.08, tile_cycles=3, stored_cycles=0.6,
    copied_cycles=0.055, turned_cycles=0.065, turned_back_cycles=0.085, usual_rows=8, most_vectors=8, spare_registers=1,
    low_tiles=False, row_pointers=False, prefetch_turns=16,
)  # fmt: skip
# Of 16: rounded from a fit to 1650 products measured on a busy machine, each met within some 25 % (AMD Zen 3).
# Their tiles are low and narrow and so read B more often: it is packed for fewer rows.
LOW_TILES = ProductCosts(
    InPlace(any_rows_bytes=16 << 10, most_rows=36, aliasing_bytes=PAGE // 4, aliased_rows=6, split_rows=36),
    near_b_cycles=0.05, far_b_cycles=0.42, near_vectors=640, a_cycles=0.2, tile_cycles=8, stored_cycles=1.2,
    copied_cycles=0.07, turned_cycles=0.07, turned_back_cycles=0.26, usual_rows=6, most_vectors=3, spare_registers=0,
    low_tiles=True, row_pointers=True, prefetch_turns=24,
)  # fmt: skip

# Of 32 registers of 128 bits. No such machine has been measured: these are the figures above for vectors of a quarter
# of the length, of which a cache holds four times the number.
SHORT_TILES = replace(HIGH_TILES, near_vectors=2048, most_vectors=6, row_pointers=True)

# Without vectors, of few registers or many: as nothing has been measured, what matters is that code is short.
SCALAR_TILES = replace(LOW_TILES, usual_rows=4, most_vectors=4, low_tiles=False, row_pointers=False)

X86_64 = Machine("x86-64", 512 << 10, replace(LOW_TILES, spare_registers=1))
ZEN3 = Machine("zen3", 512 << 10, LOW_TILES, interleaved=2)
ZEN5 = Machine("zen5", 1 << 20, HIGH_TILES)
AARCH64 = Machine("aarch64", 512 << 10, SHORT_TILES, interleaved=2)
# Of programs that are called by one thread, so that no work is shared; a stack may be short, unless Linux has one.
SCALAR = Machine("scalar", 256 << 10, SCALAR_TILES, worth_sharing_seconds=math.inf)
OF_TRIPLE = Machine("of a triple", 256 << 10, SCALAR_TILES, packing_bytes=0, worth_sharing_seconds=math.inf)
MICROCONTROLLER = Machine("microcontroller", 16 << 10, SCALAR_TILES, sparing=True, frame_bytes=4 << 10, packing_bytes=0,
                          worth_sharing_seconds=math.inf)  # fmt: skip
WASM = Machine("wasm", 256 << 10, LOW_TILES, packing_bytes=0, worth_sharing_seconds=math.inf)
WASM_SCALAR = Machine("wasm-scalar", 256 << 10, SCALAR_TILES, packing_bytes=0, worth_sharing_seconds=math.inf)


def least_seconds(flops: int, nbytes: int) -> float:
    """A rough lower bound of the seconds that operations over bytes take one core."""
    return max(flops / RATES.best_flops_per_second, nbytes / RATES.best_bytes_per_second)
