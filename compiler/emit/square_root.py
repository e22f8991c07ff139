"""The square root, rounded to nearest: the machine's instruction, or a function of integers where it has none.

The function finds the bits of the root one after the other, each from the remainder that those before have left
(Warren, *Hacker's Delight*, §11-1). A root is never half way between two floats, so that one more bit rounds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.emit.llvm import Function, Value, element_of, integer, lanes_of, suffix

STORED_BITS = {"float": 23, "double": 52}  # of a mantissa
BITS = {"float": 32, "double": 64}


def square_root(f: Function, x: Value) -> Value:
    """The roots of lanes of float or double; NaN of what is below zero."""
    element, lanes = element_of(x.type), lanes_of(x.type)
    if element in f.target.isa.floats:
        return f.intrinsic(f"llvm.sqrt.{suffix(x.type)}", x.type, x)
    name = f.module.leaf(f"sqrt.{element}", [element], _write, element, result=element)
    if lanes == 1:
        return f.call(name, element, x)
    root = Value("poison", x.type)
    for lane in range(lanes):
        root = f.insert(root, f.call(name, element, f.extract(x, lane)), lane)
    return root


def _write(f: Function, element: str) -> None:
    (x,) = f.params
    stored, word = STORED_BITS[element], f"i{BITS[element]}"
    bias = (1 << (BITS[element] - stored - 2)) - 1
    infinity, one = f.const(float("inf"), element), f.const(1, word)
    bits = f.cast("bitcast", x, word)
    # Zeros, infinity and NaN are their own roots, which a test of order against both of them finds.
    above, below = f.compare("fcmp ogt", x, f.const(0.0, element)), f.compare("fcmp olt", x, infinity)
    with f.when(f.binary("xor", f.binary("and", above, below), Value("true", "i1"))):
        negative = f.compare("fcmp olt", x, f.const(0.0, element))
        f.ret(f.select(negative, f.const(float("nan"), element), x))
        f.block(f.label("unreachable"))
    # x = mantissa·2^(exponent - bias - stored), with the implicit bit in its place
    zeros = f.intrinsic(f"llvm.ctlz.{word}", word, bits, Value("true", "i1"))
    shift = f.binary("sub", zeros, f.const(BITS[element] - stored - 1, word))
    exponent = f.binary("lshr", bits, f.const(stored, word))
    is_tiny = f.compare("icmp eq", exponent, f.const(0, word))
    fraction = f.binary("and", bits, f.const((1 << stored) - 1, word))
    whole = f.binary("or", fraction, f.const(1 << stored, word))
    safe = f.select(is_tiny, shift, f.const(0, word))
    mantissa = f.select(is_tiny, f.binary("shl", bits, safe), whole)
    exponent = f.select(is_tiny, f.binary("sub", one, shift), exponent)
    unbiased = f.binary("sub", exponent, f.const(bias, word))
    odd = f.binary("and", unbiased, one)
    rest = f.binary("shl", mantissa, f.binary("add", odd, one))
    half = f.binary("ashr", unbiased, one)  # of the exponent less 1 where that is odd

    def goes_on(carried: Sequence[Value]) -> Value:
        return f.compare("icmp ne", carried[0], integer(0, word))

    start = [f.const(2 << stored, word), rest, f.const(0, word), f.const(0, word)]
    with f.repeat(start, goes_on) as loop:
        bit, rest, doubled, root = loop.carried  # ``doubled`` is twice the root as far as it is known
        tried = f.binary("add", doubled, bit)
        fits = f.compare("icmp ule", tried, rest)
        left = f.select(fits, f.binary("sub", rest, tried), rest)
        doubled = f.select(fits, f.binary("add", tried, bit), doubled)
        root = f.select(fits, f.binary("add", root, bit), root)
        loop.next(f.binary("lshr", bit, one), f.binary("shl", left, one), doubled, root)
    root = loop.results[3]
    rounded = f.binary("lshr", f.binary("add", root, f.binary("and", root, one)), one)
    lifted = f.binary("shl", f.binary("add", half, f.const(bias - 1, word)), f.const(stored, word))
    f.ret(f.cast("bitcast", f.binary("add", rounded, lifted), element))
