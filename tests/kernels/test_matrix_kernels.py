"""Contraction and convolution kernels against NumPy in float64, on every target that this machine runs.

All kernels of a group and a target are compiled as one module, which is how programs use them; scratch memory is filled
with NaN patterns first, so that a kernel that reads what it has not written is found out.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from support.matrix_cases import (
    DIRECTIONS,
    F32,
    F64,
    IMAGE_ORDERS,
    WEIGHT_ORDERS,
    Case,
    Direction,
    contraction_case,
    convolution_case,
    strides_of,
)
from support.selection import pairwise
from support.targets import EVERY, HERE

from staticgrad.compiler.emit.contraction import kernel as contraction
from staticgrad.compiler.emit.convolution.kernel import PLANNER, emit_convolution
from staticgrad.compiler.emit.families import emit_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, memory_type
from staticgrad.compiler.kernels.matrix import Contraction, Convolution
from staticgrad.compiler.kernels.reference import run_kernel
from staticgrad.compiler.machine.target import TARGETS, Target, current_target, named
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.contraction import plan as contraction_plan
from staticgrad.compiler.plans.convolution.planar import Planar
from staticgrad.compiler.plans.convolution.products import AT_ONCE, product_plan
from staticgrad.runtime.parts.threads import pool_address

GUARD = 64  # bytes behind the scratch area that must stay as they are


# -- cases ------------------------------------------------------------------------------------------------------


RESULTS = ((False, True), (True, True), (True, False))  # with an epilogue or not, the product itself stored or not
SIZES = (
    (1, 1, 1), (3, 5, 7), (32, 64, 32), (8, 48, 16), (13, 17, 100), (100, 100, 100), (64, 10, 33), (1, 37, 50),
    (37, 1, 50), (37, 1, 3), (1, 1, 129), (2, 97, 1), (49, 33, 0), (0, 4, 4), (4, 0, 4), (45, 61, 900), (200, 70, 1024),
)  # fmt: skip
WITH_EPILOGUE = (
    ((50, 70, 30), "nnn", ()), ((50, 70, 30), "nnt", ()), ((20, 18, 9), "bbb", (3,)), ((90, 1, 40), "nnn", ()),
    ((1, 90, 40), "ntn", ()), ((90, 3, 40), "ntn", ()), ((300, 130, 420), "nnn", ()), ((6, 7, 0), "nnn", (2, 2)),
)  # fmt: skip


def contraction_cases() -> list[Case]:
    case = contraction_case
    orders = ["".join(order) for order in itertools.product("nt", repeat=3)]
    cases = [case(*size) for size in SIZES]
    few = ((37, 29, 41), (1, 50, 70), (50, 1, 70), (3, 50, 70), (50, 2, 70), (3, 3, 70))
    cases += [case(*size, layouts=order) for size in few for order in orders]
    cases += [case(130, 40, 1024, layouts=order) for order in orders]  # lines of A a page apart
    cases += [case(1024, 40, 130, layouts="tnn"), case(5, 3, 2, layouts="ttt"), case(150, 140, 130, layouts="ttn")]
    cases += [
        case(200, 100, 150, step=2),
        case(20, 19, 18, step=2),
        case(1, 9, 80, step=3),
        case(30, 200, 400, layouts="ntt", dtype=F64),
    ]
    cases += [case(33, 20, 24, batch=(3,), layouts=layouts) for layouts in ("nnn", "tnt", "bbb", "bnn")]
    cases += [case(9, 20, 24, batch=(2, 3), shared=shared) for shared in ("", "a", "b")]
    cases += [case(60, 50, 70, batch=(2,), shared="b", layouts="ntn"), case(9, 9, 9, batch=(0,))]
    names = ("int32", "int64", "uint8", "bool")
    cases += [case(17, 35, 13, dtype=np.dtype(name), layouts="ntn") for name in names]
    cases += [
        case(*size, layouts=layouts, batch=batch, epilogue=True, store_raw=store_raw)
        for store_raw in (True, False)
        for size, layouts, batch in WITH_EPILOGUE
    ]
    cases += [case(400, 600, 1000, layouts="ntn", epilogue=True, store_raw=False)]
    # Few rows or columns: Cᵀ is computed, in pieces that are copied out, the last of them small.
    turned = (
        (20, 300, 130, "ntn"),
        (7, 301, 70, "ttn"),
        (12, 256, 1024, "ntn"),
        (345, 17, 303, "ttn"),
        (99, 9, 33, "tnn"),
    )
    for m, n, k, layouts in turned:
        cases += [case(m, n, k, layouts=layouts, dtype=dtype) for dtype in (F32, F64)]
        cases += [case(m, n, k, layouts=layouts, epilogue=True, store_raw=stored) for stored in (True, False)]
    # A row by a long matrix, whose rows are combined; a column by one that lies transposed is the same.
    cases += [case(1, n, k, dtype=dtype) for n, k in ((601, 131), (130, 260), (2049, 17)) for dtype in (F32, F64)]
    cases += [case(601, 1, 131, layouts=layouts) for layouts in ("tnn", "ttt")]
    cases += [case(1, 401, 131, layouts=layouts, batch=(2,)) for layouts in ("nnn", "tnn")]
    cases += [case(1, 401, 131, batch=(3,), epilogue=True, store_raw=stored) for stored in (True, False)]
    cases += [case(16, 98, 40, layouts="ntn", batch=(3,)), case(20, 2000, 300, layouts="ntn", shared="b", batch=(2,))]
    cases += [case(1050, 1003, k, layouts=layouts) for k, layouts in ((5, "nnn"), (3, "tnn"))]  # by rows: C is long
    few = ((1, 10, 37), (2, 16, 3), (1, 30, 8), (3, 20, 50), (1, 5, 1))  # vectors: several sums an element
    cases += [
        case(*size, layouts=layouts, dtype=dtype) for size, layouts, dtype in pairwise(few, ("nnn", "tnn"), (F32, F64))
    ]
    cases += [case(m, 1000, 271) for m in (1, 3)]  # rows of a B that is far away
    cases += [case(20, 601, 300), case(2, 1003, 271, layouts="tnn")]  # copied from far away in short rows; two rows
    cases += [case(700, 16, 300, layouts=order) for order in ("tnn", "tnt")]  # an A contiguous along m that is far away
    cases += [case(50, 1, k, dtype=dtype) for k in (32, 47, 48, 49, 63, 65) for dtype in (F32, F64)]  # ends of dots
    return cases


def narrow_cases() -> list[Case]:
    """Few columns, several terms of which may lie side by side in a vector: whole and ragged groups of terms, B in any
    order, blocks of k, both ways around; between the rows of A lie NaNs, which nobody may read."""
    sizes = (
        (60, 8, 64),
        (61, 5, 67),
        (50, 4, 41),
        (40, 12, 100),
        (40, 9, 90),
        (33, 20, 75),
        (30, 6, 2000),
        (14, 7, 33),
        (40, 3, 70),
    )
    cases = [
        contraction_case(*size, layouts=layouts, dtype=dtype, batch=batch)
        for size, (layouts, batch), dtype in pairwise(
            sizes, (("nnn", ()), ("ntn", ()), ("nnt", (2,)), ("nbn", (3,))), (F32, F64)
        )
    ]
    cases += [contraction_case(5, 60, 71, layouts="ntn", dtype=dtype) for dtype in (F32, F64)]  # Cᵀ
    dots = ((11, 12, 800), (1, 7, 130), (9, 5, 33), (2, 2, 32), (16, 16, 3000), (13, 3, 50))  # in several blocks of k
    cases += [
        contraction_case(*size, layouts=layouts, dtype=dtype, batch=batch)
        for size, (layouts, batch), dtype in pairwise(dots, (("ntn", ()), ("ntt", (2,))), (F32, F64))
    ]
    cases += [contraction_case(90, 6, 77, layouts="nnn", batch=(3,), shared=shared) for shared in "ab"]
    for case in cases:
        a = case.operands[0]
        apart = np.full((*a.shape[:-1], a.shape[-1] + 5), np.nan, a.dtype)[..., : a.shape[-1]]
        apart[...] = a
        case.operands = (apart, case.operands[1])
        case.kernel = replace(case.kernel, a_strides=strides_of(apart))
        case.label += " apart"
    epilogues = [
        contraction_case(70, n, 50, layouts=layouts, epilogue=True, store_raw=stored)
        for n, layouts in ((2, "ntn"), (3, "nnn"), (6, "nnn"), (8, "nnt"), (10, "ntn"))
        for stored in (True, False)
    ]
    return cases + epilogues


def depthwise_cases(direction: Direction) -> list[Case]:
    """Rows of one tile and of many, taps beyond both ends of the image, channels in blocks, rags of channels."""

    def case(channels: int, *args: Any, images: str = "NHWC", **how: Any) -> Case:
        size, taps = args
        return convolution_case(
            direction, 2, channels, size, channels, taps, groups=channels, images=images, **how
        )  # fmt: skip

    return [
        case(33, (4, 3), (5, 5), padding=(2, 2)),
        case(16, (2, 2), (7, 7), padding=(3, 3)),
        case(32, (5, 17), (3, 3), padding=(1, 1), epilogue=True),
        case(64, (6, 41), (3, 3), padding=(1, 1), stride=(2, 2), epilogue=True, store_raw=False),
        case(48, (7, 9), (2, 2), stride=(3, 3)),  # pixels that no tap reaches
        case(20, (9, 8), (3, 3), padding=(2, 2), dilation=(2, 3)),
        case(20, (9, 14), (3, 2), padding=(4, 4), dilation=(3, 2), stride=(2, 3)),  # rows of padding alone
        case(500, (3, 5), (3, 3), padding=(1, 1)),
        case(960, (7, 7), (3, 3), padding=(1, 1), weights="HWIO", epilogue=True),
        case(7, (3, 60), (1, 9), padding=(0, 4), dtype=F64),
        case(40, (5, 6), (3, 3), padding=(1, 1), images="CHWN"),
        case(24, (70, 75), (3, 3), padding=(1, 1)),  # in chunks
        case(24, (70, 75), (3, 3), padding=(1, 1), stride=(2, 2), images="NCHW"),
    ]


def depthwise_plane_cases(direction: Direction) -> list[Case]:
    """Images as planes: rows shorter than a vector, ragged and of many; filters with many taps, beyond the ends of the
    image, apart; both strides, where pixels are dealt out; rows in blocks; several planes at a time, and a last few;
    small planes, in a few vectors."""

    def case(channels: int, size: tuple[int, int], taps: tuple[int, int], *, batch: int = 2, **how: Any) -> Case:
        return convolution_case(direction, batch, channels, size, channels, taps, groups=channels, **how)

    strided = [
        case(5, size, taps, stride=stride, padding=(1, 1), epilogue=epilogue, store_raw=store_raw)
        for size, (taps, stride), (epilogue, store_raw) in pairwise(
            ((7, 7), (8, 33), (9, 64)),
            (((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 3), (1, 2)), ((3, 2), (2, 1))),
            RESULTS,
        )
    ]
    small = [  # one, two, four, eight rows of the result in a vector; rows that fill their lanes or do not; phases
        case(3, size, (3, 3), stride=stride, padding=(1, 1), dtype=dtype, epilogue=stride[0] == 1)
        for size, stride, dtype in pairwise(
            ((14, 14), (16, 16), (6, 28), (5, 32), (7, 8), (9, 4), (11, 3), (17, 2), (5, 6)),
            ((1, 1), (2, 2), (3, 2)),
            (F32, F64),
        )
    ]
    return [
        *strided,
        case(3, (4, 3), (5, 5), padding=(2, 2)),
        case(4, (2, 2), (7, 7), padding=(3, 3)),
        case(3, (20, 40), (7, 7), padding=(3, 3), stride=(2, 2)),
        case(3, (7, 9), (2, 2), stride=(3, 2)),  # rows and pixels that no tap reaches
        case(3, (9, 40), (3, 3), padding=(2, 2), dilation=(2, 3)),
        case(3, (9, 14), (3, 2), padding=(4, 4), dilation=(3, 2), stride=(2, 1)),  # rows of padding alone
        case(3, (9, 14), (3, 2), padding=(4, 4), dilation=(2, 2), stride=(2, 2)),
        case(2, (5, 1), (3, 3), padding=(1, 1)),
        case(2, (1, 1), (1, 1), stride=(2, 2)),
        case(70, (7, 7), (3, 3), padding=(1, 1), epilogue=True, store_raw=False),  # several units
        case(3, (60, 30), (3, 3), padding=(1, 1), dtype=F64, weights="HWIO"),
        case(3, (61, 131), (3, 3), padding=(1, 1), epilogue=True),  # a prime number of rows
        case(2, (96, 100), (3, 3), padding=(1, 1), epilogue=True, store_raw=False),  # blocks of rows
        case(2, (96, 100), (5, 3), padding=(2, 1), stride=(2, 2), epilogue=True),
        case(24, (70, 76), (3, 3), padding=(1, 1), batch=3),  # in chunks
        case(6, (8, 8), (3, 3), padding=(1, 1), batch=0),
        *small,
    ]


def few_channel_cases(direction: Direction) -> list[Case]:
    """Fewer filters or channels than lanes, over rows of pixels: whole vectors, ragged ones, many strips, groups."""
    case = functools.partial(convolution_case, direction)
    cases = [
        case(2, 1, (12, 28), 6, (5, 5), padding=(2, 2), images=images, epilogue=epilogue, store_raw=store_raw)
        for images, (epilogue, store_raw) in itertools.product(IMAGE_ORDERS, RESULTS)
    ]
    return [
        *cases,
        case(2, 3, (9, 33), 2, (3, 3), padding=(1, 1), dilation=(2, 3), images="NHWC"),
        case(1, 2, (9, 33), 3, (3, 3), padding=(4, 5), stride=(2, 1)),  # rows of padding alone
        case(2, 5, (7, 31), 3, (1, 1), images="NHWC", weights="HWIO"),
        case(2, 12, (8, 30), 18, (3, 3), padding=(1, 1), groups=6, images="NHWC", epilogue=True, store_raw=False),
        case(1, 3, (150, 120), 3, (5, 3), padding=(2, 1), images="NHWC"),  # many strips, in chunks
        case(9, 4, (40, 64), 4, (3, 3), padding=(1, 1), epilogue=True),
        case(1, 3, (5, 16), 1, (3, 3), padding=(1, 1), dtype=F64),
        case(1, 20, (3, 50), 1, (7, 7), padding=(3, 3), images="NHWC"),
        case(37, 20, (14, 15), 24, (3, 3), padding=(1, 1), images="NHWC", epilogue=True),  # images in chunks
        case(37, 20, (14, 15), 24, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),
        case(2, 96, (40, 52), 70, (1, 1), images="NHWC"),  # large images in blocks of rows
    ]


def strip_cases(direction: Direction) -> list[Case]:
    """Many channels and filters, in strips of rows: taps above and below the image that are left out, rows that no tap
    reaches, several blocks of which the last is short, images whose planes lie apart, chunks."""
    case = functools.partial(convolution_case, direction)
    padded = functools.partial(case, padding=(1, 1))
    return [
        *(padded(2, 19, (7, 7), 33, (3, 3), images=images) for images in ("NCHW", "NHWC", "CHWN")),
        *(padded(1, 48, (61, 58), 37, (3, 3), images=images, epilogue=True) for images in ("NCHW", "NHWC")),
        case(2, 20, (9, 8), 21, (5, 4), padding=(6, 5)),  # rows and columns of padding alone
        case(1, 24, (23, 12), 18, (3, 3), padding=(7, 2), dilation=(5, 2), epilogue=True, store_raw=False),
        case(1, 24, (23, 12), 18, (3, 2), padding=(9, 0), dilation=(3, 1), stride=(2, 2)),
        case(1, 40, (62, 60), 34, (3, 3), padding=(1, 1), stride=(2, 2), epilogue=True, store_raw=False),
        case(2, 36, (33, 31), 40, (3, 3), padding=(1, 1), groups=2, epilogue=True),
        padded(3, 17, (1, 6), 19, (3, 3)),
        padded(3, 17, (6, 1), 19, (3, 3)),
        padded(2, 18, (41, 40), 20, (3, 3), dtype=F64),
        case(2, 18, (40, 43), 20, (3, 3), padding=(0, 1), stride=(3, 1), dtype=F64),
        padded(2, 512, (5, 6), 24, (3, 3)),  # pixels kept apart
        padded(9, 64, (14, 14), 64, (3, 3), epilogue=True),  # units in chunks
    ]


def first_layer_cases(direction: Direction) -> list[Case]:
    """Few channels and many filters, in planes: strides, where a tap has a row of its own, with even and odd padding,
    rows shorter than a vector and ragged ones, taps beyond the ends, groups."""
    case = functools.partial(convolution_case, direction)
    return [
        *(
            case(2, 3, size, 20, taps, stride=stride, padding=padding, epilogue=epilogue, store_raw=store_raw)
            for size, (taps, stride, padding), (epilogue, store_raw) in pairwise(
                ((21, 37), (9, 64)),
                (((7, 7), (2, 2), (3, 3)), ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1)),
                 ((4, 2), (1, 2), (2, 0)), ((2, 5), (2, 2), (0, 4))),
                RESULTS,
            )
        ),
        case(1, 4, (12, 34), 17, (3, 4), stride=(2, 2), padding=(2, 3), dilation=(2, 1)),
        case(1, 4, (12, 40), 17, (3, 3), stride=(2, 2), padding=(2, 2), dilation=(1, 3), epilogue=True),
        case(1, 4, (12, 40), 17, (3, 3), stride=(1, 2), padding=(4, 4), dilation=(3, 2), weights="HWIO"),
        case(1, 1, (5, 3), 33, (3, 7), stride=(1, 2), padding=(1, 6)),
        case(2, 6, (10, 35), 36, (3, 3), stride=(2, 2), padding=(1, 1), groups=3, epilogue=True),
        case(1, 2, (30, 60), 24, (3, 3), stride=(2, 2), padding=(1, 1), dtype=F64),
        case(3, 3, (90, 96), 32, (3, 3), stride=(2, 2), padding=(1, 1)),  # many strips, in chunks
        case(3, 3, (48, 48), 40, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),
        case(0, 3, (9, 32), 20, (3, 3), stride=(2, 2)),
    ]  # fmt: skip


def filtering_cases(direction: Direction) -> list[Case]:
    """Three by three taps and stride one, as minimal filtering takes them: images that tiles cover and ragged ones,
    narrower than a tile, padding of none, one and more; ragged vectors of channels and filters, several panels; images
    in every order, read in place and through scratch memory; blocks of tiles, several images a segment, chunks, filters
    in parts; both precisions."""
    case = functools.partial(convolution_case, direction)
    padded = functools.partial(case, padding=(1, 1), images="NHWC")
    cases = [
        *(
            padded(2, 20, size, 37, (3, 3), weights=weights, epilogue=epilogue, store_raw=store_raw)
            for size, weights, (epilogue, store_raw) in pairwise(((8, 8), (7, 9), (3, 2)), WEIGHT_ORDERS, RESULTS)
        ),
        *(case(2, 24, (9, 10), 24, (3, 3), padding=(1, 1), images=images) for images in IMAGE_ORDERS),
        case(2, 32, (10, 8), 16, (3, 3), images="NHWC", epilogue=True),  # in place
        case(1, 17, (6, 7), 19, (3, 3), padding=(2, 3), images="NHWC"),
        case(1, 16, (5, 5), 16, (3, 3), padding=(0, 4), images="NHWC"),  # columns of padding alone
        padded(3, 16, (1, 6), 16, (3, 3)),
        padded(3, 16, (6, 1), 40, (3, 3), epilogue=True, store_raw=False),
        padded(2, 40, (45, 41), 40, (3, 3)),  # rows in bands
        padded(1, 130, (14, 15), 260, (3, 3), epilogue=True, store_raw=False),  # filters in parts
        padded(37, 24, (7, 6), 24, (3, 3), epilogue=True),  # images in segments, the last of them short
        padded(1, 96, (6, 6), 512, (3, 3), images="NCHW", epilogue=True, store_raw=False),
    ]
    for former in cases[:]:
        coarse = replace(former, kernel=replace(cast(Convolution, former.kernel), precision="high"))
        cases.append(replace(coarse, label=f"{former.label} high"))
    return cases


def packed_pixel_cases(direction: Direction) -> list[Case]:
    """One tap and many filters, where a weight gradient packs its pixels: several images at a time and large ones in
    blocks, tall and short panels, rows in one piece and rows apart, ends of pixels, chunks of images and of tiles."""
    case = functools.partial(convolution_case, direction, images="NHWC")
    return [
        case(3, 37, (5, 7), 131, (1, 1)),
        case(1, 1, (1, 1), 128, (1, 1), epilogue=True),
        case(5, 70, (7, 7), 150, (1, 1), epilogue=True, store_raw=False),
        case(3, 37, (9, 11), 130, (1, 1), stride=(2, 2)),
        case(2, 19, (9, 7), 128, (1, 1), stride=(1, 3), weights="HWIO"),
        case(2, 19, (9, 7), 128, (1, 1), stride=(3, 1), weights="OHWI", epilogue=True),
        case(2, 21, (6, 5), 129, (1, 1), dtype=F64),
        case(2, 9, (6, 5), 128, (1, 1), dtype=np.dtype("int32")),
        case(2, 100, (61, 53), 70, (1, 1)),  # images in blocks of rows, the last of them short
        case(3, 200, (47, 51), 190, (1, 1), stride=(2, 2), epilogue=True),
        case(37, 24, (14, 15), 128, (1, 1)),  # images in chunks
        case(9, 130, (14, 15), 260, (1, 1), epilogue=True),  # tiles in chunks
    ]


def plane_product_cases(direction: Direction) -> list[Case]:
    """One tap over planes: whole panels and ragged ones, blocks of rows, terms in several passes, weights that are
    read in place and those that are copied, groups, parts of the outputs in chunks, pixels that are gathered."""
    case = functools.partial(convolution_case, direction)
    return [
        *(
            case(2, 20, (8, 12), 37, (1, 1), weights=weights, epilogue=epilogue, store_raw=store_raw)
            for weights, (epilogue, store_raw) in itertools.product(WEIGHT_ORDERS, RESULTS)
        ),
        case(1, 1, (1, 16), 1, (1, 1)),
        case(3, 5, (1, 31), 2, (1, 1), epilogue=True),
        case(2, 300, (5, 19), 290, (1, 1), epilogue=True, store_raw=False),  # several passes
        case(1, 1024, (4, 8), 9, (1, 1)),  # weights a page apart
        case(1, 9, (4, 8), 1024, (1, 1)),
        case(2, 96, (40, 52), 70, (1, 1), epilogue=True, store_raw=False),  # images in blocks of rows
        case(3, 24, (9, 7), 36, (1, 1), groups=3, epilogue=True),
        case(1, 130, (14, 14), 260, (1, 1), epilogue=True, store_raw=False),  # outputs in parts, in chunks
        case(37, 24, (14, 15), 50, (1, 1)),  # images in chunks
        case(2, 600, (14, 16), 70, (1, 1)),  # several passes over several panels
        case(12, 100, (14, 14), 130, (1, 1), epilogue=True),  # idle lanes, but images that come from memory
        case(2, 40, (15, 23), 37, (1, 1), stride=(2, 2), epilogue=True, store_raw=False),  # gathered
        case(2, 3, (16, 62), 50, (1, 1), stride=(2, 2), weights="HWIO"),
        case(2, 300, (29, 46), 290, (1, 1), stride=(2, 3), epilogue=True),
        case(3, 24, (17, 32), 36, (1, 1), stride=(2, 2), groups=3, epilogue=True, store_raw=False),
        case(1, 130, (80, 95), 260, (1, 1), stride=(2, 2)),
        case(2, 12, (8, 14), 20, (1, 1), padding=(0, 1)),
        case(2, 6, (6, 8), 5, (1, 1), dtype=F64, epilogue=True),
        case(2, 6, (6, 8), 5, (1, 1), dtype=np.dtype("int32")),
        case(0, 6, (6, 8), 5, (1, 1)),
    ]


def plane_cases() -> list[Case]:
    """Weight gradients of images in the layout of users: several images at a time and blocks of rows, the last of them
    short; few channels and many, ragged panels of both operands, taps that reach rows and columns by strides, taps
    beyond the image, y channels last; chunks of blocks, of panels of channels, and none."""
    case = functools.partial(convolution_case, "weight_grad")
    return [
        case(5, 9, (7, 6), 50, (3, 3), padding=(1, 1)),  # all images at a time
        case(5, 17, (7, 6), 33, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),
        case(1, 130, (8, 7), 120, (3, 3), padding=(1, 1), epilogue=True),  # panels in chunks, each stored at once
        case(2, 20, (61, 50), 70, (3, 3), padding=(1, 1)),  # blocks of rows in chunks
        case(2, 60, (41, 50), 70, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),  # panels over several blocks
        case(2, 60, (82, 101), 70, (3, 3), padding=(1, 1), stride=(2, 2), weights="HWIO", epilogue=True),
        case(37, 12, (13, 12), 20, (3, 3), padding=(1, 1)),  # blocks of images, the last of them short
        case(1, 3, (97, 95), 33, (7, 7), padding=(3, 3), stride=(2, 2), epilogue=True),
        case(2, 3, (70, 65), 16, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),
        case(2, 10, (19, 23), 9, (3, 4), stride=(3, 4), padding=(2, 3), dilation=(2, 3)),
        case(1, 10, (30, 33), 9, (5, 2), stride=(2, 2), dilation=(3, 4), padding=(7, 9)),
        case(1, 10, (30, 33), 9, (4, 3), stride=(4, 2), dilation=(2, 1), dtype=F64),
        case(1, 12, (9, 1), 20, (3, 1), padding=(1, 0)),
        case(3, 12, (1, 40), 20, (1, 3), padding=(0, 1), stride=(1, 2)),
        case(2, 24, (12, 9), 40, (3, 3), padding=(1, 1), groups=2, epilogue=True, store_raw=False),
        case(2, 64, (40, 44), 64, (3, 3), padding=(1, 1), groups=16),
        case(3, 10, (9, 8), 21, (3, 3), padding=(1, 1), outputs="NHWC", epilogue=True),
        case(2, 3, (60, 61), 30, (3, 3), padding=(1, 1), stride=(2, 2), outputs="NHWC"),
        case(2, 10, (9, 8), 21, (3, 3), padding=(1, 1), outputs="CHWN"),
        case(2, 4, (57, 57), 4, (3, 3), padding=(1, 1), stride=(2, 2), dtype=F64, epilogue=True),  # lanes are pixels
        case(1, 40, (31, 33), 24, (3, 3), padding=(1, 1), groups=8, stride=(2, 2), epilogue=True, store_raw=False),
        case(1, 3, (120, 118), 40, (3, 3), padding=(1, 1), weights="HWIO", epilogue=True),
        case(6, 24, (7, 7), 24, (3, 3), padding=(1, 1), groups=6),  # several images at a time
        case(3, 7, (1, 300), 3, (1, 5), padding=(0, 2), epilogue=True, store_raw=False),
        case(5, 17, (7, 6), 33, (3, 3), padding=(1, 1), images="NHWC", epilogue=True, store_raw=False),
        case(2, 60, (82, 101), 70, (3, 3), padding=(1, 1), stride=(2, 2), images="NHWC", epilogue=True),
        case(1, 41, (31, 33), 70, (5, 3), padding=(2, 2), dilation=(3, 2), images="NHWC", outputs="NCHW"),
        case(3, 11, (9, 3), 20, (3, 3), padding=(1, 1), images="NHWC"),  # narrower than a square of a transpose
        case(2, 24, (40, 39), 40, (3, 3), padding=(1, 1), groups=2, images="NHWC", dtype=F64),
        case(
            2, 260, (5, 4), 200, (3, 3), padding=(1, 1), images="NHWC", epilogue=True, store_raw=False
        ),  # many weights
        case(1, 301, (9, 17), 150, (3, 3), padding=(1, 1), stride=(2, 2), images="NHWC", weights="HWIO", epilogue=True),
        case(3, 410, (9, 3), 420, (3, 3), padding=(2, 1), dilation=(3, 2), groups=2, images="NHWC", outputs="NCHW"),
        case(1, 130, (8, 33), 200, (3, 3), padding=(1, 1), images="NHWC", dtype=F64),
        case(2, 9, (10, 11), 20, (3, 3), padding=(1, 1), dtype=np.dtype("int64")),
        case(2, 9, (10, 70), 20, (3, 3), padding=(1, 1), stride=(2, 2), dtype=np.dtype("int16")),
    ]


def plane_weight_product_cases() -> list[Case]:
    """Weight gradients of one tap over planes: several images at a time and blocks of rows, the last of them short;
    rows that are filters and rows that are channels, ragged panels of both; planes that are gathered because of a
    stride or padding; weights in any order; chunks of segments, of panels, of parts of panels, and none."""
    case = functools.partial(convolution_case, "weight_grad")
    return [
        case(5, 9, (7, 6), 50, (1, 1)),  # few columns of filters, all images at a time
        case(5, 50, (7, 6), 9, (1, 1), epilogue=True),
        case(37, 33, (7, 9), 17, (1, 1), epilogue=True, store_raw=False),  # the last images are fewer
        case(2, 20, (61, 50), 70, (1, 1)),  # blocks of rows in chunks with sums of their own
        case(2, 70, (61, 50), 20, (1, 1), epilogue=True, store_raw=False),
        case(2, 200, (31, 33), 310, (1, 1), epilogue=True),  # panels in chunks
        case(2, 310, (31, 33), 201, (1, 1), epilogue=True, store_raw=False),
        case(3, 310, (17, 16), 201, (1, 1), weights="HWIO"),
        case(1, 20, (50, 51), 1000, (1, 1), dtype=F64),  # parts of panels
        case(1, 1000, (50, 51), 20, (1, 1), dtype=F64, epilogue=True),
        case(2, 60, (82, 101), 70, (1, 1), stride=(2, 2), weights="HWIO", epilogue=True),
        case(7, 130, (13, 14), 150, (1, 1), stride=(2, 3), epilogue=True, store_raw=False),
        case(2, 24, (12, 9), 40, (1, 1), padding=(2, 1), epilogue=True),
        case(3, 10, (64, 64), 12, (1, 1)),  # planes a multiple of a page apart
        case(2, 48, (40, 39), 64, (1, 1), groups=2, epilogue=True, store_raw=False),
        case(9, 64, (10, 9), 36, (1, 1), groups=4, epilogue=True),
        case(3, 10, (9, 8), 21, (1, 1), outputs="CHWN"),
        case(70, 12, (1, 1), 20, (1, 1)),
        case(2, 9, (10, 11), 20, (1, 1), dtype=np.dtype("int64")),
        case(2, 9, (10, 70), 20, (1, 1), stride=(2, 2), dtype=np.dtype("int16")),
        case(0, 6, (6, 8), 5, (1, 1)),
    ]


def layout_cases(direction: Direction) -> list[Case]:
    """Every order of images and weights: ragged sizes, strides, dilations, groups."""
    cases = []
    for images, weights in (("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI"), ("CHWN", "OIHW")):
        case = functools.partial(convolution_case, direction, images=images, weights=weights)
        cases += [
            case(2, 5, (9, 11), 7, (3, 3), padding=(1, 1)),
            case(2, 6, (9, 11), 8, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2),
            case(1, 8, (10, 9), 20, (3, 3), padding=(1, 1), epilogue=True),
            case(2, 8, (10, 9), 20, (3, 3), padding=(1, 1), stride=(2, 2), epilogue=True, store_raw=False),
            case(1, 40, (45, 41), 40, (3, 3), padding=(1, 1), stride=(2, 2)),
        ]
    return cases


def other_cases(direction: Direction) -> list[Case]:
    """One tap, a group for each channel, taps at a distance and far outside, other dtypes."""
    case = functools.partial(convolution_case, direction)
    return [
        case(1, 3, (8, 8), 4, (1, 1), images="NHWC"),
        case(2, 4, (7, 6), 6, (1, 1), images="NHWC", epilogue=True, store_raw=False),
        case(2, 4, (7, 6), 6, (1, 1), stride=(2, 3)),
        case(1, 4, (9, 8), 6, (1, 1), stride=(2, 2), images="NHWC"),
        case(1, 6, (9, 10), 6, (3, 3), padding=(1, 1), groups=6),
        case(2, 37, (9, 10), 37, (3, 3), padding=(1, 1), groups=37, images="NHWC", epilogue=True),
        case(2, 6, (9, 11), 6, (3, 2), stride=(2, 3), dilation=(1, 2), groups=6, epilogue=True, store_raw=False),
        case(1, 21, (5, 6), 21, (2, 2), groups=21, images="NHWC", weights="HWIO"),
        case(1, 4, (9, 10), 8, (3, 3), padding=(1, 1), groups=4, images="NHWC"),
        case(1, 6, (12, 10), 10, (5, 3), stride=(3, 2), padding=(2, 0), dtype=F64),
        case(1, 4, (15, 16), 5, (3, 4), stride=(4, 2), padding=(1, 2), dilation=(2, 4)),  # strides meet dilations
        case(1, 2, (5, 5), 3, (2, 2), padding=(3, 2)),  # more padding than taps
        case(1, 512, (4, 5), 9, (2, 2), padding=(1, 0)),  # pixels kept apart
        case(2, 40, (20, 30), 40, (3, 3), padding=(1, 1), images="NHWC"),
        case(2, 24, (60, 50), 24, (3, 3), padding=(1, 1), epilogue=True, store_raw=False),
        case(1, 24, (61, 51), 24, (3, 3), stride=(2, 3), epilogue=True, store_raw=False, images="NHWC"),
        case(2, 3, (6, 6), 4, (3, 3), padding=(1, 1), dtype=np.dtype("int32")),
        case(1, 4, (6, 6), 4, (3, 3), padding=(1, 1), dilation=(2, 2), images="NHWC"),
    ]


EVERY_DIRECTION = (
    layout_cases, other_cases, depthwise_cases, depthwise_plane_cases, few_channel_cases, first_layer_cases,
    strip_cases, filtering_cases, packed_pixel_cases, plane_product_cases,
)  # fmt: skip
GROUPS: dict[str, Callable[[], list[Case]]] = {
    make.__name__: make for make in (contraction_cases, narrow_cases, plane_cases, plane_weight_product_cases)
} | {
    f"{make.__name__}-{direction}": functools.partial(make, direction)
    for make in EVERY_DIRECTION
    for direction in DIRECTIONS
}  # made when they are tested: the arrays of all together are many


# -- one module a target ----------------------------------------------------------------------------------------


def emit_epilogue(module: IRModule, case: Case, name: str) -> str:
    """``out[i…] = raw[i…] + raw[i…] + bias[i0]`` over ranges, with out in C order."""
    shape, element = case.expected.shape, memory_type(case.kernel.dtype)
    f = module.function(name, ["ptr"] * 3 + ["i64"] * (2 * len(shape)))
    raw, bias, out = f.params[:3]
    bounds = f.params[3:]
    strides = plan_kernel(case.kernel, module.target).raw_strides
    packed = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
    add = "fadd" if case.kernel.dtype.kind == "f" else "add"

    def at(base: Value, numbers: list[Value], steps: tuple[int, ...] | list[int]) -> Value:
        total: Index = 0
        for number, step in zip(numbers, steps):
            total = f.add(total, f.mul(number, step))
        return f.offset(base, total, element)

    def body(f: Function, numbers: list[Value]) -> None:
        depth = len(numbers)
        if depth < len(shape):
            with f.loop(bounds[2 * depth], bounds[2 * depth + 1]) as loop:
                body(f, [*numbers, loop.index])
            return
        value = f.load(element, at(raw, numbers, strides))
        shift = f.load(element, f.offset(bias, numbers[0], element))
        f.store(f.binary(add, f.binary(add, value, value), shift), at(out, numbers, packed))

    body(f, [])
    return f.finish()


def emit_case(module: IRModule, case: Case, number: int) -> None:
    kernel, epilogue = case.kernel, None
    if case.has_epilogue:
        epilogue = emit_epilogue(module, case, f"epilogue{number}")
    emit = contraction.emit_contraction if isinstance(kernel, Contraction) else emit_convolution
    emit(module, replace(plan_kernel(kernel, module.target), is_shared=False), f"kernel{number}", epilogue)
    pointers = 2 + kernel.store_raw + (2 if epilogue else 0) + 1
    f = module.function(f"run{number}", ["ptr"] * pointers, internal=False)
    f.call(f"kernel{number}", "void", *f.params)
    f.finish()


def compiled(cases: list[Case], target: Target) -> NativeModule:
    """All kernels as one module, with functions ``run0``, ``run1``, …"""
    module = IRModule(target)
    for number, case in enumerate(cases):
        emit_case(module, case, number)
    return NativeModule(module.texts(), target)


def run_case(native: NativeModule, case: Case, number: int) -> np.ndarray:
    """Call the kernel; returns the epilogue's output where there is one, else the result."""
    size = plan_kernel(case.kernel, native.target).scratch_bytes(1)
    assert size % 64 == 0
    memory = np.full(size + 64 + GUARD, 0xFF, np.uint8)
    scratch = -(-memory.ctypes.data // 64) * 64
    case.result.fill(99)
    out = np.full(case.expected.shape, 99, case.kernel.dtype)
    pointers = [operand.ctypes.data for operand in case.operands]
    if case.kernel.store_raw:
        pointers.append(case.result.ctypes.data)
    if case.has_epilogue:
        pointers += [case.bias.ctypes.data, out.ctypes.data]
    pointers.append(scratch)
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))
    signature(native.address(f"run{number}"))(*pointers)
    start = scratch - memory.ctypes.data
    assert (memory[:start] == 0xFF).all()
    assert (memory[start + size :] == 0xFF).all(), f"{case.label}: wrote behind its scratch memory"
    return out if case.has_epilogue else case.result


def check_case(native: NativeModule, case: Case, number: int) -> None:
    got, expected = run_case(native, case, number), case.expected
    dtype, what = case.kernel.dtype, f"{native.target.name}: {case.label}"
    tolerance = case.magnitude * 20 * (np.finfo(dtype).eps if dtype.kind == "f" else 0)
    if case.kernel.precision == "high":  # where pixels of a tile differ in size errors are those of the largest
        tolerance = 8 * np.maximum(tolerance, tolerance.max(axis=(2, 3), keepdims=True, initial=0))
    if case.has_epilogue:
        shift = case.bias.astype(F64).reshape(-1, *[1] * (expected.ndim - 1))
        expected, tolerance = 2 * expected + shift, 3 * tolerance + 1e-5
    assert got.shape == expected.shape, what
    error = np.abs(got.astype(F64) - expected.astype(F64))
    at = np.unravel_index(np.argmax(error - tolerance), got.shape) if got.size else ()
    assert (error <= tolerance).all(), f"{what}: error {error[at]} at {at}"
    if case.has_epilogue and case.kernel.store_raw:
        assert np.allclose(case.result, case.expected, rtol=1e-3, atol=1e-3), what


def check_threads(cases: Sequence[Case], kernels: Sequence[Contraction | Convolution], atol: float) -> None:
    """One thread gives what is expected, several the same bits, and none writes behind its scratch memory."""
    target = current_target()
    module, pools = IRModule(target), []
    for number, kernel in enumerate(kernels):
        planned = plan_kernel(kernel, target)
        pools.append(planned.is_shared)
        name = emit_kernel(module, planned, f"kernel{number}")
        f = module.function(f"run{number}", ["ptr"] * (4 + pools[-1]), internal=False)
        f.call(name, "void", *f.params)
        f.finish()
    native = NativeModule(module.texts(), target)
    for number, (case, kernel, shared) in enumerate(zip(cases, kernels, pools, strict=True)):
        found = []
        for threads in (1, 2, 3):
            size = plan_kernel(kernel, target).scratch_bytes(threads)
            memory = np.full(size + 64 + GUARD, 0xFF, np.uint8)
            scratch = -(-memory.ctypes.data // 64) * 64
            case.result.fill(99)
            pointers = [*(operand.ctypes.data for operand in case.operands), case.result.ctypes.data, scratch]
            pointers += [pool_address(threads)] * shared
            ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(native.address(f"run{number}"))(*pointers)
            assert (memory[scratch - memory.ctypes.data + size :] == 0xFF).all(), case.label
            found.append(case.result.copy())
        assert np.allclose(found[0], case.expected, rtol=1e-3, atol=atol), case.label
        for result in found[1:]:
            np.testing.assert_array_equal(result, found[0], err_msg=case.label)


@pytest.mark.share(2)
@pytest.mark.parametrize("group", GROUPS)
def test_references_match_numpy(group: str) -> None:
    """Those by which ``STATICGRAD_VERIFY=2`` judges, beside what the cases expect."""
    for case in GROUPS[group]():
        kernel = replace(case.kernel, epilogue=None, store_raw=True)
        case.result.fill(99)
        run_kernel(kernel, [_memory(x) for x in (*case.operands, case.result)])
        tolerance = case.magnitude * 4 * (np.finfo(kernel.dtype).eps if kernel.dtype.kind == "f" else 0)
        assert (np.abs(case.result.astype(F64) - case.expected.astype(F64)) <= tolerance).all(), case.label


def _memory(x: np.ndarray) -> np.ndarray:
    """The flat memory from an array's first element on."""
    extent = 1 + sum((n - 1) * s // x.itemsize for n, s in zip(x.shape, x.strides, strict=True)) if x.size else 0
    return np.lib.stride_tricks.as_strided(x, (extent,), (x.itemsize,))


@pytest.mark.share(2)
@pytest.mark.parametrize("group", GROUPS)
def test_kernels_match_numpy(group: str) -> None:
    cases = GROUPS[group]()
    for name in EVERY:
        native = compiled(cases, named(name))
        for number, case in enumerate(cases):
            check_case(native, case, number)


Settings = dict[str, int]
PANELS = ("PANEL_BYTES", "SHORT_PANEL_BYTES", "LOW_PANEL_BYTES", "LOW_SHORT_PANEL_BYTES")
SHORT: Settings = dict.fromkeys(PANELS, 2 << 10)
BLOCKS: dict[str, Settings] = {
    "small blocks": {**SHORT, "DEPTH_BYTES": 4 << 10, "BLOCK_BYTES": 16 << 10, "FAR_BLOCK_BYTES": 16 << 10},
    "small blocks of one pass": {**SHORT, "DEPTH_BYTES": 2 << 10, "BLOCK_BYTES": 1, "FAR_BLOCK_BYTES": 1},
    "usual blocks": {},
}


@pytest.fixture(params=BLOCKS)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Products are cut in other blocks than usual, or in those."""
    for name, value in BLOCKS[request.param].items():
        monkeypatch.setattr(contraction_plan, name, value)
    contraction_plan._make_plan.cache_clear()
    yield request.param
    contraction_plan._make_plan.cache_clear()


def product_block_cases() -> list[Case]:
    """So many columns and so much k that small blocks cut both, the last ones ragged."""
    shapes = ((70, 110, 300), (30, 401, 77), (101, 330, 520), (9, 250, 129))
    return [
        contraction_case(m, n, k, layouts=layouts, batch=batch, shared=shared, epilogue=epilogue, store_raw=store_raw,
                         dtype=dtype)
        for (m, n, k), dtype in zip(shapes, (F32, F64, F32, np.dtype("int32")))
        for layouts in ("nnn", "ntn", "ttn", "nnt")
        for batch, shared in (((), ""), ((3,), ""), ((2,), "b"))
        for epilogue, store_raw in ((False, True), (True, True), (True, False))
    ]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("name", HERE)
def test_products_in_other_blocks_match_numpy(blocks: str, name: str) -> None:
    """Sums wait in C for the next block, epilogues for the last one."""
    cases = product_block_cases()
    strided = contraction_case(70, 110, 300, layouts="nnn", step=2)
    cases.append(strided)
    native = compiled(cases, TARGETS[name])
    for number, case in enumerate(cases):
        check_case(native, case, number)


def test_products_by_threads_have_the_same_bits_for_any_number(blocks: str) -> None:
    """Each worker has scratch memory of its own, the panels of B are everyone's."""
    target = current_target()
    sizes = ((300, 410, 300, ()), (101, 1030, 520, ()), (1100, 1010, 15, ()),
             (64, 300, 300, (20,)), (150, 300, 300, (3,)))  # fmt: skip
    cases = [contraction_case(m, n, k, layouts=layouts, batch=batch) for m, n, k, batch in sizes
             for layouts in ("nnn", "ntn", "ttn", "nnt")]  # fmt: skip
    kernels = [cast(Contraction, case.kernel) for case in cases]
    assert all(plan_kernel(kernel, target).is_shared for kernel in kernels)
    check_threads(cases, kernels, atol=1e-3)


def test_operands_contiguous_along_many_terms_are_not_packed() -> None:
    """Neither of A·Bᵀ: tiles of dot products read both where they lie."""
    for m, n in ((11, 12), (3, 50), (16, 16)):
        kernel = Contraction(F64, (), m, n, 800, (800, 1), (1, 800), (n, 1))
        plan = contraction_plan.plan_of(kernel, TARGETS["avx512"])
        assert plan.tiling.of_dots
        assert not plan.pack_a
        assert not plan.pack_b


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("size", [(7, 7), (5, 3), (14, 14)])
def test_an_infinite_pixel_is_only_in_the_weights_of_taps_that_meet_it(name: str, size: tuple[int, int]) -> None:
    """The last row of an image beside no row of gradients: their product is no zero."""
    case = convolution_case("weight_grad", 1, 2, size, 2, (3, 3), padding=(1, 1), groups=2)
    case.operands[0][:, :, -1] = np.inf
    module = IRModule(TARGETS[name])
    emit_case(module, case, 0)
    pointers = [*(operand.ctypes.data for operand in case.operands), case.result.ctypes.data]
    memory = np.zeros(plan_kernel(case.kernel, module.target).scratch_bytes(1) + 64, np.uint8)
    native = NativeModule(module.text(), module.target)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(native.address("run0"))
    run(*pointers, -(-memory.ctypes.data // 64) * 64)
    assert np.allclose(case.result[:, :, 0], case.expected[:, :, 0], rtol=1e-3, atol=1e-3)
    assert not np.isfinite(case.result[:, :, 1:]).any()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("name", "size", "stride"),
    [
        ("avx512", (7, 7), 1),
        ("avx512", (14, 14), 1),
        ("avx512", (14, 14), 2),
        ("avx2", (7, 7), 1),
        ("avx2", (14, 14), 2),
    ],
)
def test_small_planes_are_read_where_they_lie(
    direction: Direction, name: str, size: tuple[int, int], stride: int
) -> None:
    """Frames and rows shorter than a vector cost as much again."""
    module = IRModule(TARGETS[name])
    emit_case(module, convolution_case(direction, 2, 8, size, 8, (3, 3), padding=(1, 1), stride=(stride, stride),
                                       groups=8), 0)  # fmt: skip
    assert "@small_plane" in module.text()
    assert "@frame" not in module.text()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("stride", [1, 2])
def test_the_last_pixels_of_rows_of_planes_are_not_done_one_by_one(direction: Direction, stride: int) -> None:
    """Without masked stores a plane of 14 × 14 pixels took three times as long."""
    module = IRModule(TARGETS["avx2"])
    emit_case(module, convolution_case(direction, 2, 8, (15, 28), 8, (3, 3), padding=(1, 1), stride=(stride, stride),
                                       groups=8), 0)  # fmt: skip
    assert "fma.v8f32" in module.text()
    assert "fma.f32" not in module.text()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_few_outputs_do_not_wait_for_all_pixels_of_the_next_block_at_once(target: Target) -> None:
    """Asking for hundreds of lines between two tiles was waiting for memory: 32 → 16 channels took twice as long."""
    kernel = convolution_case("forward", 1, 32, (112, 112), 16, (1, 1)).kernel
    plan = product_plan(replace(kernel, epilogue=None), target)
    assert plan.lines > AT_ONCE * plan.turns
    assert plan.by_tiles


def test_taps_of_few_channels_are_no_loops_of_their_own() -> None:
    """Leaving out the taps beside the image made loops of one term: 1 → 32 channels took 1.3 times as long."""
    module = IRModule(TARGETS["avx2"])
    emit_case(module, convolution_case("forward", 2, 1, (28, 28), 32, (3, 3), padding=(1, 1), images="NHWC"), 0)
    assert "@tile." in module.text()
    assert "@bordered_tile" not in module.text()


def test_six_filters_are_lanes_along_the_pixels_where_vectors_are_short() -> None:
    """Tiles of one vector of filters load a pixel for each multiply-add, and leave lanes idle: 1.4 times as long."""
    kernel = convolution_case("forward", 2, 1, (28, 28), 6, (5, 5), padding=(2, 2), images="NHWC").kernel
    assert isinstance(PLANNER.plan(kernel, TARGETS["avx2"]), Planar)


def many_weights_cases() -> list[Case]:
    """So many weights that several threads pack their panels, the last panel whole or ragged, in groups or not, of one
    phase or of several."""
    return [
        convolution_case(direction, batch, channels, (9, 8), filters, (3, 3), padding=(1, 1), groups=groups,
                         images="NHWC", weights=weights, stride=stride)
        for direction in ("forward", "input_grad")
        for batch, channels, filters, groups, weights, stride in (
            (9, 96, 96, 1, "OIHW", (1, 1)), (2, 101, 103, 1, "OIHW", (1, 1)), (9, 100, 90, 1, "HWIO", (1, 1)),
            (3, 206, 202, 2, "OIHW", (1, 1)), (5, 101, 103, 1, "OIHW", (2, 2)), (5, 206, 202, 2, "OIHW", (2, 1)),
        )
    ]  # fmt: skip


PACKED = (functools.partial(packed_pixel_cases, "weight_grad"), many_weights_cases, plane_cases,
          plane_weight_product_cases, functools.partial(filtering_cases, "forward"),
          functools.partial(filtering_cases, "weight_grad"))  # fmt: skip


@pytest.mark.parametrize(
    "make", PACKED, ids=("packed_pixels", "many_weights", "planes", "plane_products", "filtered", "filtered_weights")
)
def test_packing_by_threads_gives_the_same_bits_for_any_number(make: Callable[[], list[Case]]) -> None:
    """Blocks of pixels, panels of weights or of filters are packed by several threads; sums are those of one."""
    cases = make()
    kernels = [cast(Convolution, replace(case.kernel, epilogue=None, store_raw=True)) for case in cases]
    check_threads(cases, kernels, atol=1e-2)


def test_microkernels_are_shared() -> None:
    """Equal tiles of different kernels are one function: code size is compile time."""
    module = IRModule(TARGETS["avx512"])
    sizes = ((64, 64, 64), (64, 64, 100), (128, 64, 80))
    for number, (m, n, k) in enumerate(sizes):
        emit_case(module, contraction_case(m, n, k), number)
    assert module.text().count("define internal void @tile.") == 1


@pytest.mark.parametrize("layouts", ["nnn", "ntn"])
@pytest.mark.parametrize(("name", "dtype"), [("avx512", F32), ("avx512", F64), ("avx2", F32)])
def test_narrow_products_have_terms_side_by_side(name: str, dtype: np.dtype, layouts: str) -> None:
    """Half a vector of columns does half the work that a tile could do."""
    module = IRModule(TARGETS[name])
    emit_case(module, contraction_case(300, module.target.lanes(dtype) // 2, 300, layouts=layouts, dtype=dtype), 0)
    assert re.search(r"@tile\S*\.by\d", module.text())


def test_a_strided_operand_is_packed_once() -> None:
    """Not for each strip of columns that threads could take: that took as long as the product."""
    kernel = replace(contraction_case(200, 100, 150).kernel, a_strides=(300, 2))
    assert isinstance(kernel, Contraction)
    plan = contraction_plan.plan_of(kernel, TARGETS["avx512"])
    assert plan.pack_a
    assert plan.share is not None
    assert plan.share.strip == plan.tiling.column_panels


def test_small_products_need_no_scratch() -> None:
    kernel = contraction_case(32, 32, 64).kernel
    assert plan_kernel(kernel, TARGETS["avx512"]).scratch_bytes(1) == 0


@pytest.mark.parametrize("name", ["avx512", "avx2"])
@pytest.mark.parametrize("n", [300, 512])
def test_a_row_times_a_matrix_reads_it_where_it_lies(name: str, n: int) -> None:
    """By wide tiles, whole lines of each of its rows: packing it for a ragged end took four times as long."""
    plan = contraction_plan.plan_of(contraction_case(1, n, 700).kernel, TARGETS[name])
    assert not plan.pack_b
    assert plan.tiling.vectors >= 7


@pytest.mark.parametrize("name", ["avx512", "avx2", "generic"])
def test_the_rows_of_a_long_matrix_are_read_from_end_to_end(name: str) -> None:
    """Pieces of a quarter of a page of them, as chunks of each tile were, took half as long again."""
    for sizes, layouts in (((1, 1024, 1024), "nnn"), ((512, 1, 4096), "tnn")):
        plan = contraction_plan.plan_of(contraction_case(*sizes, layouts=layouts).kernel, TARGETS[name])
        assert plan.combines
        assert not plan.pack_b
        assert plan.share is None or plan.share.strip * plan.tiling.width * 4 >= min(2048, plan.way.n * 4)
    near = contraction_case(1, 64, 64).kernel
    assert not contraction_plan.plan_of(near, TARGETS[name]).combines


def test_a_row_adds_in_one_order_whatever_else_is_kept() -> None:
    """The order of a combination is none that tiles of a packed operand have."""
    for name in HERE:
        assert not contraction_plan.takes_packed(contraction_case(1, 1024, 1024).kernel, TARGETS[name], 1)


def test_packed_panels_do_not_lie_a_multiple_of_a_page_apart() -> None:
    """Packing writes to all of them for each row: those of one set of the caches evict each other."""
    for m, n, k in ((10, 4096, 256), (256, 256, 256), (1024, 1024, 1024)):
        plan = contraction_plan.plan_of(contraction_case(m, n, k).kernel, TARGETS["avx2"])
        assert plan.pack_b
        assert plan.panel_pitch * 4 % 4096


def test_long_operands_that_low_tiles_read_often_are_packed() -> None:
    """Both: lines of A that lie a page or more apart, or come from memory for each block of B, were waited for."""
    for n, layouts in ((1000, "tnn"), (2048, "nnn"), (2048, "ntn")):
        plan = contraction_plan.plan_of(contraction_case(n, n, n, layouts=layouts).kernel, TARGETS["avx2"])
        assert plan.pack_a
        assert plan.pack_b
    plan = contraction_plan.plan_of(contraction_case(1000, 1000, 1000).kernel, TARGETS["avx2"])
    assert not plan.pack_a


def test_tiles_have_sums_to_spare_where_rows_allow_it() -> None:
    """Eight sums just hide the latency of a multiply-add: tiles of four rows by two vectors reached nine tenths."""
    for n in (128, 256):
        tiling = contraction_plan.plan_of(contraction_case(n, n, n).kernel, TARGETS["avx2"]).tiling
        assert tiling.rows * tiling.vectors > 8


def test_few_rows_do_not_pack_a_transposed_matrix() -> None:
    """Packing it costs more than the product: x @ w.T for a small batch, the linear layer of many models."""
    kernel = contraction_case(16, 512, 512, layouts="ntn").kernel
    for target in TARGETS.values():
        assert plan_kernel(kernel, target).scratch_bytes(1) < 512 * 512 * 4 / 4


def test_a_matrix_that_low_tiles_read_often_is_packed() -> None:
    """Where registers are few, 43 tiles of rows read it from the second cache, a quarter slower than packed."""
    kernel = contraction_case(256, 256, 256).kernel
    assert contraction_plan.plan_of(kernel, TARGETS["avx2"]).pack_b
    assert not contraction_plan.plan_of(kernel, TARGETS["avx512"]).pack_b


@pytest.mark.parametrize(("sizes", "layouts", "function"), [
    ((20, 601, 300), "nnn", "copy_rows.float32.far"), ((700, 16, 300), "tnn", r"tile\S*far_a"),
])  # fmt: skip
def test_short_pieces_of_far_rows_are_not_waited_for(sizes: tuple[int, int, int], layouts: str, function: str) -> None:
    """Each is new to the prefetchers: 16 columns by a long matrix took 2.5 times as long."""
    module = IRModule(TARGETS["avx2"])
    emit_case(module, contraction_case(*sizes, layouts=layouts), 0)
    assert re.search(function, module.text())
