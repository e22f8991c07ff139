"""Arrays in the code of an entry: feeds and the caller's results are checked, other results are made."""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import IRModule, Value, integer
from staticgrad.runtime.parts.entry_code import EntryMemory, EntryWriter
from staticgrad.runtime.parts.entry_words import (
    API,
    AS_LIST,
    AS_TUPLE,
    DATA,
    DICT_USED,
    DIMS,
    DTYPE,
    FLAGS,
    LIST_ITEMS,
    LIST_SIZE,
    NDIM,
    READABLE,
    TUPLE_SIZE,
    TYPE,
    WRITABLE,
    EntryWord,
    Field,
)
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED


def write_fits(module: IRModule) -> str:
    """i1 fits(array, record, flags, PyArray_Type): exactly an array of this dtype and shape, with the flags."""
    f = module.function("fits", ["ptr", "ptr", "i32", "ptr"], "i1")
    array, record, flags, array_type = f.params
    no = "no"

    def require(condition: Value) -> None:
        going_on = f.label("on")
        f.branch_if(condition, going_on, no)
        f.block(going_on)

    def part(offset: int, type_: str) -> Value:
        return f.load(type_, f.offset(array, offset, "i8"))

    require(f.compare("icmp eq", part(TYPE, "ptr"), array_type))
    expected = f.load("ptr", f.offset(record, Field.DTYPE, "i64"))
    require(f.compare("icmp eq", part(DTYPE, "ptr"), expected))
    require(f.compare("icmp eq", f.binary("and", part(FLAGS, "i32"), flags), flags))
    ndim = f.load("i64", f.offset(record, Field.NDIM, "i64"))
    require(f.compare("icmp eq", f.emit("i64", f"zext {part(NDIM, 'i32')} to i64"), ndim))
    dims = f.load("ptr", f.offset(record, Field.DIMS, "i64"))
    actual = part(DIMS, "ptr")
    with f.loop(0, ndim) as axis:
        a = f.load("i64", f.offset(actual, axis.index, "i64"))
        require(f.compare("icmp eq", a, f.load("i64", f.offset(dims, axis.index, "i64"))))
    f.ret(integer(1, "i1"))
    f.block(no)
    f.ret(integer(0, "i1"))
    return f.finish()


def write_apart(module: IRModule) -> str:
    """i1 apart(address, nbytes, address, nbytes): the two stretches of memory do not overlap."""
    f = module.function("apart", ["i64", "i64", "i64", "i64"], "i1")
    a, a_bytes, b, b_bytes = f.params
    a_end = f.binary("add", a, a_bytes)
    b_end = f.binary("add", b, b_bytes)
    before = f.compare("icmp ule", a_end, b)
    f.ret(f.binary("or", before, f.compare("icmp ule", b_end, a)))
    return f.finish()


class CallArrays:
    """Writes what a call does with the arrays that it is given and returns. ``fits`` and ``apart`` are the names of the
    functions of ``write_fits`` and ``write_apart``."""

    def __init__(self, code: EntryWriter, memory: EntryMemory, fits: str, apart: str) -> None:
        self.code = code
        self.memory = memory
        self.f = code.f
        self.fits = fits
        self.apart = apart

    def check_feeds(self) -> None:
        """Find the data of all feeds, if they are as their records expect."""
        f = self.f
        self.code.require(self.code.same(self.code.nargs, self.code.at(EntryWord.FEEDS)))
        known, array_type = self.code.at(EntryWord.FEED_RECORDS, "ptr"), self.code.api("PyArray_Type")
        with f.loop(0, self.code.nargs) as feed:
            record = self.code.record(known, feed.index)
            given = self.code.item(self.code.args, feed.index)
            number = f.offset(self.memory.numbers, feed.index, "i64")
            data = self._data(given, record, READABLE, array_type, number)
            f.store(data, f.offset(self.memory.given, feed.index, "ptr"))

    def _data(self, given: Value, record: Value, flags: int, array_type: Value, number: Value) -> Value:
        """The address of the data of something given, if it is as its record expects."""
        f = self.f
        an_array, foreign, known = f.label("array"), f.label("foreign"), f.label("data")
        f.branch_if(f.call(self.fits, "i1", given, record, integer(flags, "i32"), array_type), an_array, foreign)
        f.block(an_array)
        own = f.load("ptr", f.offset(given, DATA, "i8"))
        f.branch(known)
        f.block(foreign)
        writes = integer(int(flags == WRITABLE), "i32")
        operands = ", ".join(map(str, (given, record, number, self.code.api("known"), writes)))
        other = f.emit("ptr", f"call ptr @data_of({operands})")
        self.code.require(self.code.is_there(other))
        last = f.label("view")
        f.branch(last)
        f.block(last)
        f.branch(known)
        f.block(known)
        return f.emit("ptr", f"phi ptr [ {own.text}, %{an_array} ], [ {other.text}, %{last} ]")

    # -- results ----------------------------------------------------------------------------------------------------

    def take_out(self) -> None:
        """The caller's arrays, where ``out`` is the only keyword and everything in it is exactly right."""
        f = self.f
        self.code.require(self.code.same(f.load("i64", f.offset(self.code.names, TUPLE_SIZE, "i8")), 1))
        first = f.offset(self.code.names, self.code.at(EntryWord.FIRST_API + API.index("TUPLE_ITEM")), "i8")
        self.code.require(self.code.same(f.load("ptr", first), self.code.api("out")))
        out = self.code.item(self.code.args, self.code.nargs)
        leaves = self.code.at(EntryWord.LEAVES)
        one, several, known = f.label("one"), f.label("several"), f.label("known")
        f.branch_if(self.code.same(self.code.at(EntryWord.SINGLE), 0), several, one)
        f.block(one)
        f.store(out, self.memory.objects)
        f.branch(known)
        f.block(several)
        nest, listed, mapped = self.code.at(EntryWord.NEST), f.label("listed"), f.label("mapped")
        f.branch_if(f.compare("icmp ugt", nest, integer(AS_TUPLE)), mapped, listed)
        f.block(mapped)
        self._take_values(out)
        f.branch(known)
        f.block(listed)
        self.code.require(self.code.same(f.load("ptr", f.offset(out, TYPE, "i8")), self.code.api("PyList_Type")))
        self.code.require(self.code.same(f.load("i64", f.offset(out, LIST_SIZE, "i8")), leaves))
        items = f.load("ptr", f.offset(out, LIST_ITEMS, "i8"))
        with f.loop(0, leaves) as leaf:
            f.store(self.code.item(items, leaf.index), f.offset(self.memory.objects, leaf.index, "ptr"))
        f.branch(known)
        f.block(known)
        records = self.code.at(EntryWord.LEAF_RECORDS, "ptr")
        with f.loop(0, leaves) as leaf:
            self._check_out(records, leaf.index)
        self.code.call("Py_IncRef", "void", out)
        f.store(out, self.memory.answer)

    def _take_values(self, out: Value) -> None:
        """The values of a dict that is given, by its keys; without the GIL they may change meanwhile."""
        f, leaves = self.f, self.code.at(EntryWord.LEAVES)
        if IS_FREE_THREADED:
            self.code.require(integer(0, "i1"))
        self.code.require(self.code.same(f.load("ptr", f.offset(out, TYPE, "i8")), self.code.api("PyDict_Type")))
        self.code.require(self.code.same(f.load("i64", f.offset(out, DICT_USED, "i8")), leaves))
        with f.loop(0, leaves) as leaf:
            value = self.code.call("PyDict_GetItem", "ptr", out, self._key(leaf.index))
            self.code.require(self.code.is_there(value))
            f.store(value, f.offset(self.memory.objects, leaf.index, "ptr"))

    def _key(self, index: Value) -> Value:
        """A key of the dict of results."""
        keys, first = self.code.at(EntryWord.NEST, "ptr"), self.code.at(EntryWord.FIRST_API + API.index("TUPLE_ITEM"))
        return self.code.item(self.f.offset(keys, first, "i8"), index)

    def _check_out(self, records: Value, index: Value) -> None:
        f = self.f
        record, array = self.code.record(records, index), self.code.item(self.memory.objects, index)
        an_op, a_tensor, done = f.label("op"), f.label("tensor"), f.label("checked")
        f.branch_if(self.code.is_null(self.code.field(record, Field.DTYPE, "ptr")), an_op, a_tensor)
        f.block(an_op)
        self.code.require(self.code.same(array, self.code.api("Py_None")))
        f.branch(done)
        f.block(a_tensor)
        data = self._data(array, record, WRITABLE, self.code.api("PyArray_Type"), self.memory.spare)
        f.store(data, f.offset(self.memory.made, index, "ptr"))
        nbytes = self.code.field(record, Field.NBYTES)
        address = f.load("i64", f.offset(self.memory.made, index, "ptr"))
        feeds = self.code.at(EntryWord.FEED_RECORDS, "ptr")

        def require_apart(others: Value, other: Value, record: Value) -> None:
            start = self.code.item(others, other, "i64")
            self.code.require(f.call(self.apart, "i1", address, nbytes, start, self.code.field(record, Field.NBYTES)))

        with f.loop(0, self.code.nargs) as feed:
            require_apart(self.memory.given, feed.index, self.code.record(feeds, feed.index))
        with f.loop(0, index) as earlier:
            other_record = self.code.record(records, earlier.index)
            with f.when(self.code.is_there(self.code.field(other_record, Field.DTYPE, "ptr"))):
                require_apart(self.memory.made, earlier.index, other_record)
        f.branch(done)
        f.block(done)

    def make_results(self) -> None:
        """New arrays for all results, in a list, tuple or dict, or alone."""
        f = self.f
        leaves, records = self.code.at(EntryWord.LEAVES), self.code.at(EntryWord.LEAF_RECORDS, "ptr")
        null, none = Value("null", "ptr"), self.code.api("Py_None")
        one, several, done = f.label("one"), f.label("several"), f.label("made")
        f.branch_if(self.code.same(self.code.at(EntryWord.SINGLE), 0), several, one)
        f.block(one)
        only = self._new_array(records)
        f.store(only, self.memory.answer)
        self.code.require(self.code.is_there(only), "failed")
        f.store(f.load("ptr", f.offset(only, DATA, "i8")), self.memory.made)
        f.branch(done)
        f.block(several)
        result = self.code.call("PyList_New", "ptr", leaves)
        f.store(result, self.memory.answer)
        self.code.require(self.code.is_there(result), "failed")
        with f.loop(0, leaves) as leaf:
            record = self.code.record(records, leaf.index)
            an_op, a_tensor, kept = f.label("op"), f.label("tensor"), f.label("kept")
            f.branch_if(self.code.is_null(self.code.field(record, Field.DTYPE, "ptr")), an_op, a_tensor)
            f.block(an_op)
            self.code.call("Py_IncRef", "void", none)
            f.store(none, f.offset(self.memory.objects, leaf.index, "ptr"))
            f.branch(kept)
            f.block(a_tensor)
            array = self._new_array(record)
            self.code.require(self.code.is_there(array), "out_of_memory")
            f.store(array, f.offset(self.memory.objects, leaf.index, "ptr"))
            f.store(f.load("ptr", f.offset(array, DATA, "i8")), f.offset(self.memory.made, leaf.index, "ptr"))
            f.branch(kept)
            f.block(kept)
            self.code.call("PyList_SetItem", "i32", result, leaf.index, self.code.item(self.memory.objects, leaf.index))
        nest = self.code.at(EntryWord.NEST)
        nested, mapped, packed = f.label("nested"), f.label("dict"), f.label("tuple")
        f.branch_if(self.code.same(nest, AS_LIST), done, nested)
        f.block(nested)
        f.branch_if(self.code.same(nest, AS_TUPLE), packed, mapped)
        f.block(packed)
        self._answer_instead(result, self.code.call("PyList_AsTuple", "ptr", result))
        f.branch(done)
        f.block(mapped)
        values = self.code.call("PyDict_New", "ptr")
        self.code.require(self.code.is_there(values), "out_of_memory")
        with f.loop(0, leaves) as leaf:
            item = self.code.item(self.memory.objects, leaf.index)
            status = self.code.call("PyDict_SetItem", "i32", values, self._key(leaf.index), item)
            self.code.require(f.compare("icmp eq", status, integer(0, "i32")), "no_dict")
        self._answer_instead(result, values)
        f.branch(done)
        f.block("no_dict")
        self.code.call("Py_DecRef", "void", values)
        f.branch("out_of_memory")
        f.block("out_of_memory")
        self.code.call("Py_DecRef", "void", f.load("ptr", self.memory.answer))
        f.branch("failed")
        f.block("failed")  # with a Python exception set
        self.code.give_words()
        f.ret(null)
        f.block(done)

    def _answer_instead(self, results: Value, nest: Value) -> None:
        """Answer with a nest of the results in the place of their list."""
        self.code.require(self.code.is_there(nest), "out_of_memory")
        self.code.call("Py_DecRef", "void", results)
        self.f.store(nest, self.memory.answer)

    def _new_array(self, record: Value) -> Value:
        """A new array, or null with an exception set. A large one is made with its memory handler in force."""
        f = self.f
        handler = self.code.field(record, Field.HANDLER, "ptr")
        null = Value("null", "ptr")
        small, large, in_force, made = f.label("small"), f.label("large"), f.label("in_force"), f.label("array")
        f.branch_if(self.code.is_null(handler), small, large)
        f.block(small)
        from_numpy = self._array_of(record)
        f.branch(made)
        f.block(large)
        before = self.code.call("PyDataMem_SetHandler", "ptr", handler)
        f.branch_if(self.code.is_null(before), made, in_force)
        f.block(in_force)
        recycled = self._array_of(record)
        with f.when(self.code.is_null(recycled)):
            self.code.call("PyErr_Clear", "void")  # what follows wants no exception set
        self.code.call("Py_DecRef", "void", self.code.call("PyDataMem_SetHandler", "ptr", before))
        self.code.call("Py_DecRef", "void", before)
        with f.when(self.code.is_null(recycled)):
            self.code.call("PyErr_NoMemory", "ptr")
        last = f.label("recycled")
        f.branch(last)
        f.block(last)
        f.branch(made)
        f.block(made)
        arrays = ((from_numpy, small), (null, large), (recycled, last))
        return f.emit("ptr", "phi ptr " + ", ".join(f"[ {array.text}, %{label} ]" for array, label in arrays))

    def _array_of(self, record: Value) -> Value:
        f, null = self.f, Value("null", "ptr")
        dtype = self.code.field(record, Field.DTYPE, "ptr")
        self.code.call("Py_IncRef", "void", dtype)  # NumPy takes over a reference
        ndim = f.emit("i32", f"trunc {self.code.field(record, Field.NDIM)} to i32")
        dims = self.code.field(record, Field.DIMS, "ptr")
        array_type, no_flags = self.code.api("PyArray_Type"), integer(0, "i32")
        return self.code.call("PyArray_NewFromDescr", "ptr", array_type, dtype, ndim, dims, null, null, no_flags, null)
