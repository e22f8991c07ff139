"""Quicksort of words in vectors, in LLVM IR, for targets that bring the lanes of a mask side by side.

Words are signed integers in the order wanted. Of each vector of a range those below a pivot are stored at the range's
beginning, which has been read, and the others in spare memory (Bramas, A Novel Hybrid Quicksort Algorithm Vectorized
using AVX-512, 2017). Where vectors are compressed these are then copied to where they follow. Else a table of orders
brings both kinds side by side in one vector, which is stored in both places, and the others stay in spare memory: it
and the range's take turns. Short ranges are sorted in registers (Blacher and others, Vectorized and
Performance-portable Quicksort, 2022): each lane's words by merge exchange, then lanes are merged as bitonic sequences.

The words that partitions may read are counted; who calls is told when they are used up, and sorts in another way, so
that no row takes long. A pivot that is the least word is taken out with all words that equal it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.lanes import Lanes, first_lanes, vector_parts
from staticgrad.compiler.emit.llvm import Function, IRModule, Value, element_of, integer, lanes_of, suffix, vector
from staticgrad.compiler.emit.routines.networks import merge_exchange
from staticgrad.compiler.plans.routines.partitions import IN_REGISTERS, shortest

ORDERED = 8  # parts of 32 bits of which a table has the order


def sorter(module: IRModule, dtype: np.dtype) -> str:
    """The name of ``i64 sort(ptr words, ptr spare, ptr stack, i64 count, i64 work)``, which sorts ``count`` words of an
    integer dtype. It gives what is left of ``work``, where a negative number says that the words are not in order.
    There is room for a vector more than ``count`` words in ``spare``, and for ``STACK_BYTES`` of the plan in ``stack``.
    What is ``behind`` the words, as the plan has it, is as it was in the end.
    """
    return _function(module, "sort", dtype, ["ptr", "ptr", "ptr", "i64", "i64"], "i64")


def _function(module: IRModule, what: str, dtype: np.dtype, params: list[str], result: str) -> str:
    """The function ``what`` of words of this dtype, which a module has once."""
    return module.leaf(f"quicksort.{what}.{dtype.name}", params, _write, what, dtype, result=result)


def _write(f: Function, what: str, dtype: np.dtype) -> None:
    _Quicksort(f, dtype).write(what)


def _orders(module: IRModule, lanes: int) -> str:
    """The name of a table that has for each mask of a vector's lanes the order of a register's halves of 32 bits in
    which the lanes that are on come first: a byte each."""
    key, wide = (_orders, lanes), ORDERED // lanes
    orders = [sorted(range(ORDERED), key=lambda part: not mask >> part // wide & 1) for mask in range(1 << lanes)]
    return module.shared(key) or module.share(key, module.table(f"quicksort.orders.{lanes}", np.array(orders, np.int8)))


class _Quicksort:
    """Writes the functions of words of one dtype."""

    def __init__(self, f: Function, dtype: np.dtype) -> None:
        self.f = f
        self.dtype = dtype
        self.word = f"i{8 * dtype.itemsize}"
        self.lanes = f.target.lanes(dtype)
        self.type = vector(self.word, self.lanes)
        self.in_turn = not f.target.isa.compresses  # a part stays in spare memory, until it is partitioned or sorted

    def write(self, what: str) -> None:
        match what:
            case "sort":
                self._sort()
            case "partition":
                self._partition()
            case "block":
                self._block()
            case "merge":
                self._merge()

    def _at(self, words: Value, place: Value | int) -> Value:
        return self.f.offset(words, place, self.word)

    # -- ranges -----------------------------------------------------------------------------------------------------

    def _sort(self) -> None:
        f = self.f
        words, spare, stack, count, work = f.params
        self._push(stack, integer(0), integer(0), count, Value("false", "i1"))
        with f.repeat([integer(1), work], lambda carried: f.compare("icmp sgt", carried[0], integer(0))) as loop:
            top, left = f.binary("sub", loop.carried[0], integer(1)), loop.carried[1]
            place = f.offset(stack, f.mul(top, 2), "i64")
            found, high = f.load("i64", place), f.load("i64", f.offset(place, 1, "i64"))
            low, is_spare = f.binary("lshr", found, integer(1)), f.cast("trunc", found, "i1")
            here, there = f.select(is_spare, spare, words), f.select(is_spare, words, spare)
            size = f.binary("sub", high, low)
            is_short = f.compare("icmp sle", size, integer(shortest(f.target, self.dtype)))

            def in_registers() -> list[Value]:
                self._sort_short(self._at(here, low), self._at(words, low), size)
                return [top, left]

            def in_parts() -> list[Value]:
                after = f.binary("sub", left, size)
                given_up = f.compare("icmp slt", after, integer(0))
                at = self._at(here, low), self._at(there, low)
                return f.choose(
                    given_up, lambda: [integer(0), after], lambda: self._cut(at, low, high, is_spare, top, after)
                )

            loop.next(*f.choose(is_short, in_registers, in_parts))
        f.ret(loop.carried[1])

    def _push(self, stack: Value, top: Value, low: Value, high: Value, is_spare: Value) -> None:
        f = self.f
        place = f.offset(stack, f.mul(top, 2), "i64")
        f.store(f.binary("or", f.binary("shl", low, integer(1)), f.cast("zext", is_spare, "i64")), place)
        f.store(high, f.offset(place, 1, "i64"))

    def _cut(
        self, at: tuple[Value, Value], low: Value, high: Value, is_spare: Value, top: Value, left: Value
    ) -> list[Value]:
        """Partition a range, which is at the first of two places, and put both parts on the stack, the shorter on top:
        the next top and what is left."""
        f = self.f
        words, _, stack = f.params[:3]
        here, there = at
        name = _function(f.module, "partition", self.dtype, ["ptr", "ptr", "i64", self.word], "i64")
        size = f.binary("sub", high, low)
        pivot = self._pivot(here, size)
        below = f.call(name, "i64", here, there, size, pivot)
        is_least = f.compare("icmp eq", below, integer(0))
        is_moved = f.binary("xor", is_spare, Value("true", "i1")) if self.in_turn else is_spare

        def equal() -> list[Value]:
            """The words that are the pivot, the least one, come first, and the others are where they were."""
            above = f.binary("add", pivot, integer(1, self.word))
            there_are = f.compare("icmp sgt", above, pivot)
            again = (there, here) if self.in_turn else (here, there)
            [same] = f.choose(there_are, lambda: [f.call(name, "i64", *again, size, above)], lambda: [size])
            if self.in_turn:
                self._fill(self._at(words, low), pivot, same)
            start = f.binary("add", low, same)
            return [start, start, f.binary("sub", left, size), is_spare]

        middle = f.binary("add", low, below)
        begin, middle, left, is_other_spare = f.choose(is_least, equal, lambda: [low, middle, left, is_moved])
        parts = (begin, middle, is_spare), (middle, high, is_other_spare)
        is_first = f.compare("icmp slt", *(f.binary("sub", end, start) for start, end, _ in parts))
        for number, (one, other) in enumerate((parts[::-1], parts)):
            found = [f.select(is_first, a, b) for a, b in zip(one, other, strict=True)]
            self._push(stack, f.index(f.add(top, number)), *found)
        return [f.index(f.add(top, 2)), left]

    def _fill(self, words: Value, word: Value, count: Value) -> None:
        for part in vector_parts(self.f, self.dtype, count):
            with part.turns() as (loop, lanes):
                lanes.store(self.f, lanes.splat(self.f, word), self._at(words, loop.index))

    def _pivot(self, words: Value, size: Value) -> Value:
        """The median of three medians of three, and so on, of three vectors of words evenly apart."""
        f, lanes = self.f, self.lanes
        step = f.binary("lshr", f.binary("sub", size, integer(lanes)), integer(2))
        rows = [f.load(self.type, self._at(words, f.mul(step, number))) for number in (1, 2, 3)]
        found = self._median(rows)
        for apart in (lanes // 3, 1):
            turned = [[(lane + apart * number) % lanes for lane in range(lanes)] for number in (1, 2)]
            found = self._median([found, *(f.shuffle(found, None, order) for order in turned)])
        return f.extract(found, 0)

    def _median(self, words: list[Value]) -> Value:
        """The middle one of three words in each lane."""
        a, b, c = words
        low, high = self._bound("smin", a, b), self._bound("smax", a, b)
        return self._bound("smax", low, self._bound("smin", high, c))

    def _bound(self, which: str, a: Value, b: Value) -> Value:
        return self.f.intrinsic(f"llvm.{which}.{suffix(a.type)}", a.type, a, b)

    # -- partition --------------------------------------------------------------------------------------------------

    def _partition(self) -> None:
        """``i64 partition(ptr words, ptr spare, i64 count, word bound)``: the words below the bound, which it counts,
        come first; the others follow, or are where they would follow in spare memory (``in_turn``)."""
        f = self.f
        words, spare, count, bound = f.params
        carried = [integer(0)]
        for part in vector_parts(f, self.dtype, count):
            with part.turns(carried) as (loop, lanes):
                low = loop.carried[0]
                found = lanes.load(f, self._at(words, loop.index))
                below = f.compare("icmp slt", found, lanes.splat(f, bound))
                put = self._permute if self.in_turn else self._compress
                loop.next(f.binary("add", low, put(found, below, lanes, low, loop.index)))
            carried = loop.results
        low = carried[0]
        if not self.in_turn:
            for part in vector_parts(f, self.dtype, f.binary("sub", count, low)):
                with part.turns() as (loop, lanes):
                    lanes.store(f, lanes.load(f, self._at(spare, loop.index)), self._at(words, f.add(low, loop.index)))
        f.ret(low)

    def _compress(self, found: Value, below: Value, lanes: Lanes, low: Value, index: Value) -> Value:
        """Store the words below the bound, which are counted, from ``low`` on, and the others in spare memory from its
        beginning on."""
        f = self.f
        words, spare = f.params[:2]
        others = f.binary("xor", below, f.const(True, below.type))
        if lanes.mask is not None:
            below = f.binary("and", below, lanes.mask)
            others = f.binary("and", others, lanes.mask)
        f.store(self._compressed(found, others), self._at(spare, f.sub(index, low)))
        taken = self._counted(below)
        piece = lanes if lanes.mask is None else first_lanes(f, self.dtype, taken)
        piece.store(f, self._compressed(found, below), self._at(words, low))
        return taken

    def _permute(self, found: Value, below: Value, lanes: Lanes, low: Value, index: Value) -> Value:
        """Store the words below the bound, which are counted, from ``low`` on, and the others in spare memory from its
        end on: all of them in both places, where those that do not belong there are written over."""
        f = self.f
        words, spare, count, _ = f.params
        if lanes_of(lanes.type) == 1:
            taken = f.cast("zext", below, "i64")
        else:
            taken, found = self._counted(below), self._ordered(found, below)
        top = f.binary("add", low, f.binary("sub", count, f.index(index)))
        f.store(found, self._at(words, low))
        f.store(found, self._at(spare, f.binary("sub", top, integer(lanes_of(lanes.type)))))
        return taken

    def _ordered(self, words: Value, first: Value) -> Value:
        """The words of which ``first`` holds, then the others."""
        f = self.f
        type_ = vector("i32", ORDERED)
        place = f.offset(f.symbol(_orders(f.module, self.lanes)), self._bits(first), "i64")
        order = f.cast("zext", f.load(vector("i8", ORDERED), place), "i32")
        parts = f.emit(type_, f"bitcast {words} to {type_}")
        found = f.intrinsic("llvm.x86.avx2.permd", type_, parts, order)
        return f.emit(words.type, f"bitcast {found} to {words.type}")

    def _compressed(self, words: Value, mask: Value) -> Value:
        f = self.f
        name = f"llvm.x86.avx512.mask.compress.{suffix(words.type)}"
        return f.intrinsic(name, words.type, words, Value("zeroinitializer", words.type), mask)

    def _counted(self, mask: Value) -> Value:
        return self.f.intrinsic("llvm.ctpop.i64", "i64", self._bits(mask))

    def _bits(self, mask: Value) -> Value:
        """A mask as a number."""
        f, bits = self.f, f"i{self.lanes}"
        return f.cast("zext", f.emit(bits, f"bitcast {mask} to {bits}"), "i64")

    # -- in registers -----------------------------------------------------------------------------------------------

    def _sort_short(self, source: Value, words: Value, size: Value) -> None:
        """Sort a range that is not longer than two blocks."""
        f, most = self.f, IN_REGISTERS * self.lanes
        block = _function(f.module, "block", self.dtype, ["ptr", "ptr", "i64"], "void")
        merge = _function(f.module, "merge", self.dtype, ["ptr", "i64"], "void")
        f.call(block, "void", source, words, f.index(f.min(size, most)))
        with f.when(f.compare("icmp sgt", size, integer(most))):
            f.call(block, "void", self._at(source, most), self._at(words, most), f.binary("sub", size, integer(most)))
            f.call(merge, "void", words, size)

    def _block(self) -> None:
        """``void block(ptr source, ptr words, i64 count)``: sort at most a block."""
        source, words, count = self.f.params
        masks = [self._mask(count, v) for v in range(IN_REGISTERS)]
        self._in_registers(source, words, masks, _RegisterNetwork.sort)

    def _merge(self) -> None:
        """``void merge(ptr words, i64 count)``: merge a block with the one after it, each of which is in order."""
        words, count = self.f.params
        masks = [self._mask(count, v) for v in range(IN_REGISTERS, 2 * IN_REGISTERS)]
        self._in_registers(words, words, [*[None] * IN_REGISTERS, *masks], _RegisterNetwork.merge)

    def _mask(self, count: Value, number: int) -> Value:
        """The lanes of a vector that hold some of ``count`` words, which are few enough for a word."""
        f = self.f
        lanes = f.lane_numbers(self.type, number * self.lanes)
        return f.compare("icmp slt", lanes, f.splat(f.resized(count, self.word), self.lanes))

    def _in_registers(
        self, source: Value, words: Value, masks: Sequence[Value | None], run: Callable[[_RegisterNetwork], None]
    ) -> None:
        """Load words, ``run`` and store them in order; the largest word takes the place of those that are not there.
        Where the target does not mask, what lies behind the words is loaded and stored again."""
        f, last = self.f, self.f.const((1 << (8 * self.dtype.itemsize - 1)) - 1, self.type)
        accesses = [Lanes(self.type, mask if f.target.isa.predicated else None) for mask in masks]
        places = [number * self.lanes for number in range(len(masks))]
        found = [access.load(f, self._at(source, place)) for access, place in zip(accesses, places, strict=True)]
        network = _RegisterNetwork(
            f, [x if mask is None else f.select(mask, x, last) for mask, x in zip(masks, found, strict=True)]
        )
        run(network)
        for mask, access, place, row in zip(masks, accesses, places, network.in_order(), strict=True):
            at, stored = self._at(words, place), row
            if mask is not None and access.mask is None:
                stored = f.select(mask, row, access.load(f, at))
            access.store(f, stored, at)


class _RegisterNetwork:
    """Sorts a power of two of words in registers. Each word has a number, that of its place when all are in order:
    ``rows`` and ``lanes`` say which bit of it each bit of a register's and of a lane's number is, the lowest first, as
    bits change places."""

    def __init__(self, f: Function, words: list[Value]) -> None:
        self.f = f
        self.words = words
        self.count = lanes_of(words[0].type)
        lanes = self.count.bit_length() - 1
        self.bits = lanes + len(words).bit_length() - 1
        self.lanes, self.rows = list(range(lanes)), list(range(lanes, self.bits))

    def sort(self) -> None:
        """Sort the words of each lane, as if they were neighbours, and merge lanes."""
        for i, j in merge_exchange(len(self.words)):
            self.words[i], self.words[j] = self._least(self.words[i], self.words[j])
        rows = len(self.rows)
        self.rows, self.lanes = list(range(rows)), list(range(rows, self.bits))
        self._merge(range(rows, self.bits))

    def merge(self) -> None:
        """Merge two halves, which are in order each."""
        self._merge([self.bits - 1])

    def _merge(self, tops: Sequence[int]) -> None:
        """Merge sequences whose numbers differ in the first of these bits, then those that differ in the next. The
        first is compared with the second from its end: then both hold a bitonic sequence each, whose halves are
        compared, and halves of them, whatever their order, as long as it is that of both."""
        compared = []
        for top in tops:
            compared += [(top, (1 << top) - 1), *((bit, 0) for bit in reversed(range(top)))]
        for number, (bit, flipped) in enumerate(compared):
            self._bring(bit, [later for later, _ in compared[number:]])
            self._compare(bit, flipped)

    def _bring(self, bit: int, later: list[int]) -> None:
        """Let a bit be one of a register's number, in the place of that which is compared last of all."""
        if bit in self.rows:
            return
        self._stage()
        turns = [later.index(other) if other in later else len(later) for other in self.rows]
        self._swap(turns.index(max(turns)), self.lanes.index(bit))

    def _stage(self) -> None:
        """Begin a block, past which the code generator does not look for what it might know of bits: that takes it
        longer than all else."""
        label = self.f.label("stage")
        self.f.branch(label)
        self.f.block(label)

    def _swap(self, row: int, lane: int) -> None:
        """Exchange a bit of a register's number with one of a lane's."""
        mask = 1 << lane
        low = [c if not c & mask else self.count + c - mask for c in range(self.count)]
        high = [c + mask if not c & mask else self.count + c for c in range(self.count)]
        for i in range(len(self.words)):
            if not i >> row & 1:
                j = i | 1 << row
                a, b = self.words[i], self.words[j]
                self.words[i], self.words[j] = self.f.shuffle(a, b, low), self.f.shuffle(a, b, high)
        self.rows[row], self.lanes[lane] = self.lanes[lane], self.rows[row]

    def _compare(self, bit: int, flipped: int) -> None:
        """Compare words whose numbers differ in this bit and those ``flipped``."""
        top = 1 << self.rows.index(bit)
        row, lane = self._place(flipped)
        for i in range(len(self.words)):
            if not i & top:
                j = i ^ top ^ row
                other = self.words[j]
                if lane:
                    other = self.f.shuffle(other, None, [c ^ lane for c in range(self.count)])
                self.words[i], self.words[j] = self._least(self.words[i], other)

    def _least(self, a: Value, b: Value) -> tuple[Value, Value]:
        """The smaller and the larger of two in each lane. What is not the smaller is left when that is taken from both:
        fewer units find the larger of two than combine bits."""
        f = self.f
        if element_of(a.type) == "i64" and not f.target.isa.compresses:
            less = f.compare("icmp slt", b, a)
            return f.select(less, b, a), f.select(less, a, b)
        low = f.intrinsic(f"llvm.smin.{suffix(a.type)}", a.type, a, b)
        if not f.target.isa.compresses:
            return low, f.intrinsic(f"llvm.smax.{suffix(a.type)}", a.type, a, b)
        return low, f.binary("xor", f.binary("xor", a, b), low)

    def _place(self, number: int) -> tuple[int, int]:
        """The register and the lane of a word."""
        row, lane = (
            sum((number >> bit & 1) << place for place, bit in enumerate(bits)) for bits in (self.rows, self.lanes)
        )
        return row, lane

    def in_order(self) -> list[Value]:
        """The words as vectors one after the other."""
        lanes = len(self.lanes)
        for bit in range(lanes, self.bits):
            if bit not in self.rows:
                row = next(row for row, other in enumerate(self.rows) if other < lanes)
                self._swap(row, self.lanes.index(bit))
        places = [self._place(number) for number in range(1 << self.bits)]
        order = [lane for _, lane in places[: self.count]]
        vectors = [self.words[row] for row, _ in places[:: self.count]]
        return vectors if order == sorted(order) else [self.f.shuffle(x, None, order) for x in vectors]
