"""The model of the machine: caches, lines and pages, and every rate with which the compiler estimates.

    Machine        one family of machines: what emitters and estimates ask of a target
    ProductCosts   what matrix products cost beside their multiply-adds, fitted to measured products
    RATES          what is the same for all machines, as only orders of magnitude count

Times are seconds, of one core, unless they are cycles. Where two names have about the same meaning and other values,
they were fitted to different decisions. Small twins of machines, for tests, have sizes divided by ``SMALL``.
"""

from __future__ import annotations

import math
from dataclasses import replace

from staticgrad.base.frozen import frozen

SMALL = 64  # by what sizes are divided for a small twin
LINE = 64  # bytes of a cache line, of all machines that are known here
PAGE = 4096  # bytes; lines a multiple of it apart fall into one set of the first cache


@frozen
class InPlace:
    """The limits up to which B is read where it lies, strided: up to ``nbytes`` by any number of rows of A, a longer
    one by ``rows`` at most, one whose rows lie a multiple of ``apart`` bytes apart, and so in few sets of a cache, by
    ``aliased``, and a far one whose vectors split lines by ``split``."""

    nbytes: int
    rows: int
    apart: int
    aliased: int
    split: int


@frozen
class ProductCosts:
    """The costs of a product beside its multiply-adds, in cycles: for each k a vector of B, of a panel that stays in
    the first cache or of one of more than ``near_vectors`` vectors, and a row of A; for each tile, and each vector that
    it stores. Then for each byte of a copy by vectors, of a transposing one, and of a result that is copied transposed.

    Tiles: ``usual_rows`` is the height that shapes share, ``most_vectors`` their width where they have several rows;
    ``spare`` registers are left over. With ``low`` tiles turns are short: far lines come late for most of a panel, so
    they are prefetched in every tile, and so are rows of copies. ``ahead`` is how many turns early lines are
    prefetched. With ``pointers`` each row of A has a pointer of its own, so that a turn has fewer instructions.
    Operands longer than ``near_bytes`` come from far away each time."""

    in_place: InPlace
    from_near_b: float
    from_b: float
    near_vectors: int
    from_a: float
    tile: float
    stored: float
    copied: float
    turned: float
    turned_back: float
    usual_rows: int
    most_vectors: int
    spare: int
    low: bool
    pointers: bool
    ahead: int
    near_bytes: int = 4 << 20
    read_turned: float = 2.5  # an element of results that an epilogue reads transposed
    least_saved: float = 0.03  # a byte of an operand that is kept packed: half of what copying it takes
    # Tiles with terms side by side: a load beside the multiply-adds, of dot products that read in place too; the end of
    # a tile for each accumulator; a call of a packing function, however little it packs.
    loaded: float = 0.1
    loaded_in_place: float = 0.17
    added: float = 3
    packing_call: float = 40


@frozen(eq=False)
class Machine:
    """A family of machines, equal to itself alone. ``interleaved`` is the number of long chains of instructions that
    hide each other's latencies. Rows ``far_bytes`` apart are new to the prefetchers, which stop at a page's end.
    Sizes and times at which a kernel is run in another way are ``divisor`` times smaller than this package's
    constants."""

    name: str
    own_cache_bytes: int  # about what a core has for itself: its second cache
    products: ProductCosts
    interleaved: int = 1
    divisor: int = 1
    compact: bool = False  # code is to be short: tiles are small, loops are not unrolled
    sparing: bool = False  # memory is short: products that would pack much go without
    page: int = PAGE
    far_bytes: int = 2048
    frame_bytes: int = 16 << 10  # of the stack at most, for what functions spill and the tables of chunks
    packing_bytes: int = 1000 << 10  # for which the products of a program share a place, which stays in a cache

    # What one core does in a second, from what the kernels of benchmarks/ reach in cache, rounded down: it decides
    # whether work is worth sharing among threads.
    product_flops_per_lane: float = 9e9
    convolution_flops_per_lane: float = 7e9
    integer_flops_per_lane: float = 2e9
    routine_flops: float = 1e9  # a guess, to tell long batches from short ones
    bytes_moved: float = 3e10
    instruction_seconds: float = 2.5e-10  # of a nest, beside its loads and loops
    # Sharing: waking another thread, and taking a chunk of work (a tenth of a microsecond) little beside its time.
    worth_sharing: float = 20e-6
    chunk_seconds: float = 5e-6
    # Whether a value is computed again: two vector instructions a cycle; bytes a second of one core beside busy ones,
    # by the size of what is moved (first and second cache, what is behind them); what a kernel less saves.
    inlined_instruction_seconds: float = 1.25e-10
    near_bytes: int = 1 << 15
    middle_bytes: int = 1 << 19
    middle_bytes_moved: float = 8e10
    far_bytes_moved: float = 1e10
    kernel_seconds: float = 2e-8
    # Cycles of the transposes of convolutions by weights: packing an element of y, a pixel of a plane of columns, and
    # bringing a weight into its place that is not added up there.
    packed_y: float = 0.25
    packed_column: float = 0.4
    moved_weight: float = 0.4

    def sized(self, amount: int, least: int = 1) -> int:
        """A constant of this package, in bytes, elements or turns, as this machine has it; ``least`` at least."""
        return max(least, amount // self.divisor)


@frozen
class Rates:
    """Rough rates that hold for every machine, for decisions about whole steps and programs, beside which a factor of
    two does not matter."""

    # Lower bounds of times: a fast core with its operands in cache.
    least_flops: float = 1.5e11
    least_bytes: float = 3e10
    # What is computed twice to save memory: of two steps the one that takes longer, with operands in memory.
    repeated_flops: float = 1e11
    repeated_bytes: float = 1e10
    call: float = 1e-5  # of a Python function
    turn: float = 5e-9  # of a loop, beside what its parts take
    # Looking whether a program shall end, in seconds: from when on, then between two looks, of a program and of a loop.
    polls_from: float = 1e-3
    poll: float = 0.5e-3
    loop_poll: float = 1e-4


RATES = Rates()


def compact(machine: Machine) -> Machine:
    """The twin whose code is short."""
    return replace(machine, name=f"{machine.name}-size", compact=True, interleaved=1)


def small(machine: Machine) -> Machine:
    """The twin whose sizes are small."""
    of_all, costs = replace(machine, divisor=SMALL), machine.products
    place = costs.in_place
    in_place = InPlace(*map(of_all.sized, (place.nbytes, place.rows, place.apart, place.aliased, place.split)))
    products = replace(costs, in_place=in_place, near_bytes=of_all.sized(costs.near_bytes))
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
    InPlace(nbytes=512 << 10, rows=192, apart=PAGE, aliased=64, split=96),
    from_near_b=0.1, from_b=0.25, near_vectors=512, from_a=0.08, tile=3, stored=0.6, copied=0.055, turned=0.065,
    turned_back=0.085, usual_rows=8, most_vectors=8, spare=1, low=False, pointers=False, ahead=16,
)  # fmt: skip
# Of 16: rounded from a fit to 1650 products measured on a busy machine, each met within some 25 % (AMD Zen 3).
# Their tiles are low and narrow and so read B more often: it is packed for fewer rows.
LOW_TILES = ProductCosts(
    InPlace(nbytes=16 << 10, rows=36, apart=PAGE // 4, aliased=18, split=36),
    from_near_b=0.05, from_b=0.42, near_vectors=640, from_a=0.2, tile=8, stored=1.2, copied=0.07, turned=0.07,
    turned_back=0.26, usual_rows=6, most_vectors=3, spare=0, low=True, pointers=True,
    ahead=24,
)  # fmt: skip

# Of 32 registers of 128 bits. No such machine has been measured: these are the figures above for vectors of a quarter
# of the length, of which a cache holds four times the number.
SHORT_TILES = replace(HIGH_TILES, near_vectors=2048, most_vectors=6, pointers=True)

# Without vectors, of few registers or many: as nothing has been measured, what matters is that code is short.
SCALAR_TILES = replace(LOW_TILES, usual_rows=4, most_vectors=4, low=False, pointers=False)

X86_64 = Machine("x86-64", 512 << 10, replace(LOW_TILES, spare=1))
ZEN3 = Machine("zen3", 512 << 10, LOW_TILES, interleaved=2)
ZEN5 = Machine("zen5", 1 << 20, HIGH_TILES)
AARCH64 = Machine("aarch64", 512 << 10, SHORT_TILES, interleaved=2)
# Of programs that are called by one thread, so that no work is shared; a stack may be short, unless Linux has one.
SCALAR = Machine("scalar", 256 << 10, SCALAR_TILES, worth_sharing=math.inf)
OF_TRIPLE = Machine("of a triple", 256 << 10, SCALAR_TILES, packing_bytes=0, worth_sharing=math.inf)
MICROCONTROLLER = Machine("microcontroller", 16 << 10, SCALAR_TILES, sparing=True, frame_bytes=4 << 10, packing_bytes=0,
                          worth_sharing=math.inf)  # fmt: skip
WASM = Machine("wasm", 256 << 10, LOW_TILES, packing_bytes=0, worth_sharing=math.inf)
WASM_SCALAR = Machine("wasm-scalar", 256 << 10, SCALAR_TILES, packing_bytes=0, worth_sharing=math.inf)


def least_seconds(flops: int, nbytes: int) -> float:
    """A rough lower bound of the seconds that operations over bytes take one core."""
    return max(flops / RATES.least_flops, nbytes / RATES.least_bytes)
