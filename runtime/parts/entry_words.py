"""Records that an entry in machine code and Python share: words of a descriptor, those of an array's record, and the
offsets of fields of Python's objects, which ``entry`` probes."""

from __future__ import annotations


class EntryWord:
    """The words of a descriptor: addresses, counts, flags."""

    MAIN = 0  # i32 (ptr slots, ptr arena, ptr pool), or of an exported program i32 (ptr in, out, workspace, state)
    TABLE = 1  # the slots, or in and out; what does not change from call to call is filled in
    ARENA = 2  # or where out begins in the table
    BUSY = 3
    RELEASES = 4  # whether the program runs without the GIL
    GATE = 5  # address of the session lock's gate where the lock is not taken, or null
    CLOSED = 6  # address of the session's word that says it is closed
    RANDOM = 7  # address of the session's (seed, run number), or null
    KEY = 8  # address of the call's own (seed, run number)
    FEEDS = 9  # how many, and their records
    FEED_RECORDS = 10
    LEAVES = 11  # how many, and their records; an op has a record without dtype
    LEAF_RECORDS = 12
    SINGLE = 13  # the result is one array, not a list
    WRITES = 14  # address of the number of writes so far
    VERSIONS = 15  # how many variables are written, and the addresses of the numbers of their last writes
    VERSION_ADDRESSES = 16
    SLOW = 17  # Python callables: with the call's arguments; with a status, raises
    FAIL = 18
    POOL = 19  # the threads that the program may use, or null; of a program that can be interrupted its context;
    # or the workspace
    LOCK = 20  # the session's lock, or null: address of its words, how it is taken, the functions that do
    KIND = 21
    ACQUIRE = 22
    RELEASE = 23
    WRITING = 24  # what says that the program has begun to write state: a word's address, 1, or null if it never does
    MARKS = 25  # how many words are set to 1 when the program has run, and their addresses
    MARK_ADDRESSES = 26
    BEGIN = 27  # of a program that can be interrupted: called with the context before it, and where it has been
    RAISE = 28
    GUARDED = 29  # whether any of the words from LOCK on is set
    WRITING_BEFORE = 30
    NEXT = 31  # where there is no GIL: the words of another frame for calls at the same time, or null
    OTHER_GATE = 32  # address of another word that has to be 0, or null
    STATE = 33  # the last argument of an exported program's function
    NEST = 34  # of several results: AS_LIST, AS_TUPLE, or the address of the tuple of keys of a dict
    FIRST_API = 35


AS_LIST, AS_TUPLE = 0, 1


API = (
    "PyArray_Type", "PyList_Type", "Py_None", "out", "PyArray_NewFromDescr", "Py_IncRef", "Py_DecRef", "PyList_New",
    "PyList_SetItem", "PyObject_Vectorcall", "PyObject_CallOneArg", "PyLong_FromLong", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyDataMem_SetHandler", "PyErr_Clear", "PyErr_NoMemory", "known", "TUPLE_ITEM",
    "PyDict_Type", "PyDict_New", "PyDict_SetItem", "PyDict_GetItem",
    "PyList_AsTuple",
)  # fmt: skip


class Field:
    """The words of the record of an array."""

    SLOT = 0
    DTYPE = 1
    NDIM = 2
    DIMS = 3  # address
    NBYTES = 4
    HANDLER = 5  # of a large result: the memory handler with which it is made, else null
    ELEMENT = 6  # DLPack's description of the dtype
    LISTED = 7  # address of memory for the elements of a list that is given, or null


RECORD = 8  # words

# offsets in bytes
TYPE = object.__basicsize__ - 8
DATA = object.__basicsize__
NDIM = DATA + 8
DIMS = DATA + 16
DTYPE = DATA + 40
FLAGS = DATA + 48
TUPLE_SIZE = DATA
TUPLE_ITEM = tuple.__basicsize__  # CPython 3.14 keeps a hash before the items
DICT_USED = DATA  # how many items it has
LIST_SIZE = DATA
LIST_ITEMS = DATA + 8  # the address of the items; after it how many have room

DRAWS = 3  # in addition to the kinds of ``locks``: the lock is held briefly, while the run number is taken

READABLE = 0x0101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
WRITABLE = READABLE | 0x0400  # | NPY_ARRAY_WRITEABLE
