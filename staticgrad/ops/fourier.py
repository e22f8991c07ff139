"""Discrete Fourier transforms over pairs of reals: ``fft``, ``ifft``, ``rfft``, ``irfft``.

Complex numbers are two tensors, the real and the imaginary parts. Inside, a row is a matrix (2, n) of both, and a
transform a product of matrices:

- of a prime or a small size by the matrix of cosines and sines itself;
- of a product n = a·b by transforms of size a, a factor for each element, and transforms of size b (J. Cooley &
  J. Tukey, An algorithm for the machine calculation of complex Fourier series, 1965), until the sizes are small;
- of a size with a large prime factor as a convolution of a smooth size (L. Bluestein, A linear filtering approach to
  the computation of discrete Fourier transform, 1970).

All of it is linear, so derivatives follow from the products. Angles are reduced in integers before sines are taken.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import integer, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Namespace, public
from staticgrad.graph.results import ComplexResult
from staticgrad.ops.declare import FLOAT, accepted, not_known, shown_as
from staticgrad.ops.elementwise.copies import rounded, widened

Norm = Literal["backward", "ortho", "forward"]
DENSE = 48  # elements up to which a transform is one product: two of half the size would pack as much as they save
LARGEST_PRIME = 200  # of which transforms are products, too; of a larger one three of twice its size take less


def _turns(numerators: Array, size: int) -> tuple[Array, Array]:
    """Cosines and sines of that many parts of a turn, of which there are ``size``; exact at quarters."""
    part = numerators % size
    angle = 2 * math.pi * part / size
    quarter = (4 * part) % size == 0
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.where(quarter, np.rint(cosine), cosine), np.where(quarter, np.rint(sine), sine)


@functools.lru_cache(maxsize=64)
def _dense(size: int) -> Array:
    """(2·n, 2·n): from the real parts and then the imaginary parts of a row to those of its transform."""
    number = np.arange(size)
    cosine, sine = _turns(np.outer(number, number), size)
    return np.block([[cosine, sine], [-sine, cosine]])


def _factor(size: int) -> int:
    """The divisor of a size that is nearest to its root among those that are no larger; 1 of a prime."""
    return max(d for d in range(1, math.isqrt(size) + 1) if size % d == 0)


def _largest_prime(size: int) -> int:
    found, divisor = 1, 2
    while divisor * divisor <= size:
        if size % divisor:
            divisor += 1
        else:
            found, size = divisor, size // divisor
    return max(found, size)


def _times(o: Namespace, x: Tensor, cosine: Array, sine: Array) -> Tensor:
    """Rows (…, 2, n) times cosine − i·sine, elementwise."""
    exchanged = o.flip(x, axis=-cosine.ndim - 1)
    signed = np.stack([sine, -sine]).astype(x.dtype)
    return o.add(o.multiply(x, cosine.astype(x.dtype)), o.multiply(exchanged, signed))


def _transformed(o: Namespace, x: Tensor) -> Tensor:
    """The transforms of rows (m, 2, n)."""
    m, _, n = x.shape
    assert isinstance(n, int)
    if n == 1:
        return x
    if n <= DENSE or (n <= LARGEST_PRIME and _factor(n) == 1):
        flat = o.reshape(x, (m, 2 * n))
        return o.reshape(o.matmul(flat, _dense(n).T.astype(x.dtype)), (m, 2, n))
    if _largest_prime(n) > LARGEST_PRIME:
        return _by_convolution(o, x)
    a = _factor(n)
    b = n // a
    columns = o.reshape(_transformed(o, _rows_of_columns(o, x, a, b)), (m, b, 2, a))  # element (j, k): column j
    columns = o.permute_dims(columns, (0, 3, 2, 1))  # (m, k, 2, j)
    cosine, sine = _turns(np.outer(np.arange(a), np.arange(b)), n)
    turned = o.permute_dims(columns, (0, 2, 1, 3))  # (m, 2, k, j)
    turned = o.permute_dims(_times(o, turned, cosine, sine), (0, 2, 1, 3))
    rows = o.reshape(_transformed(o, o.reshape(turned, (m * a, 2, b))), (m, a, 2, b))
    return o.reshape(o.permute_dims(rows, (0, 2, 3, 1)), (m, 2, n))


def _rows_of_columns(o: Namespace, x: Tensor, a: int, b: int) -> Tensor:
    """(m, 2, a·b) as rows (m·b, 2, a): every b-th element."""
    m = x.shape[0]
    return o.reshape(o.permute_dims(o.reshape(x, (m, 2, a, b)), (0, 3, 1, 2)), (m * b, 2, a))


def _smooth(least: int) -> int:
    """The next size that is a product of powers of 2, 3 and 5 with a factor 4."""
    size = -(-least // 4) * 4
    while _largest_prime(size) > 5:
        size += 4
    return size


def _by_convolution(o: Namespace, x: Tensor) -> Tensor:
    """With k·j = (k² + j² − (k − j)²)/2 a transform is a convolution with exp(i·π·j²/n) between products with its
    conjugate."""
    n = int(x.shape[2])
    size = _smooth(2 * n - 1)
    number = np.arange(n)
    cosine, sine = _turns(number * number, 2 * n)
    chirp = np.zeros(size, complex)
    chirp[:n] = cosine + 1j * sine
    chirp[size - n + 1 :] = chirp[1:n][::-1]
    spectrum = np.fft.fft(chirp)
    spread = o.pad(_times(o, x, cosine, sine), ((0, 0), (0, 0), (0, size - n)))
    product = _times(o, _transformed(o, spread), spectrum.real, -spectrum.imag)
    back = o.multiply(_inverse(o, product), 1 / size)
    return _times(o, back[:, :, :n], cosine, sine)


def _inverse(o: Namespace, x: Tensor) -> Tensor:
    """The transform with the other sign: that of the parts exchanged, exchanged."""
    return o.flip(_transformed(o, o.flip(x, axis=1)), axis=1)


# -- functions ------------------------------------------------------------------------------------------------------


def _scale(norm: str, n: int, inverse: bool, what: str) -> float:
    if norm not in ("backward", "ortho", "forward"):
        raise GraphError(f"{what}: norm={norm!r}: expected 'backward', 'ortho' or 'forward'")
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "backward") == inverse else 1.0


def _length(what: str, x: Tensor, axis: int, n: int | None) -> tuple[int, int]:
    """The axis, and how many of its elements are transformed.

    Raises:
        GraphError: the size is bound by feeds, or there is nothing to transform.
    """
    along = normalize_axis(axis, x.ndim, what)
    size = x.shape[along] if n is None else integer(n, f"{what}: n", 1)
    if not isinstance(size, int):
        raise not_known(what, f"the size of axis {along} of {x.name!r} {x.type}")
    if size < 1:
        raise GraphError(f"{what}: expected elements on axis {along} of {x.name!r} {x.type}")
    if not isinstance(x.shape[along], int):
        raise not_known(what, f"the size of axis {along} of {x.name!r} {x.type}")
    return along, size


def _rows(o: Namespace, x: Tensor, along: int, count: int) -> Tensor:
    """The first elements of an axis as the last one, with zeros where there are fewer."""
    moved = o.moveaxis(x, along, -1)
    missing = count - int(moved.shape[-1])
    return o.pad(moved, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else moved


def _pair(what: str, real: TensorLike, imag: TensorLike | None) -> list[Tensor]:
    if imag is None:
        (x,) = accepted(what, FLOAT, real)
        return [x]
    x, y = accepted(what, FLOAT, real, imag)
    if x.shape != y.shape:
        raise GraphError(
            f"{what}: expected imaginary parts of the shape of the real parts {x.name!r} {x.type}, actual {y.name!r}"
            f" {y.type}"
        )
    return [x, y]


def _both(o: Namespace, parts: list[Tensor]) -> Tensor:
    """(…, n) of each part as rows (m, 2, n)."""
    imag = parts[1] if len(parts) > 1 else o.zeros_like(parts[0])
    pairs = o.stack([parts[0], imag], axis=-2)
    return o.reshape(pairs, (math.prod(parts[0].shape[:-1]), 2, parts[0].shape[-1]))


def _complex(
    what: str, real: TensorLike, imag: TensorLike | None, n: int | None, axis: int, norm: str, inverse: bool
) -> ComplexResult:
    o = FUNCTIONS
    given = _pair(what, real, imag)
    along, count = _length(what, given[0], axis, n)
    scale = _scale(norm, count, inverse, what)
    parts = [_rows(o, x, along, count) for x in widened(given)]
    rows = _both(o, parts)
    made = _inverse(o, rows) if inverse else _transformed(o, rows)
    return _answer(o, made if scale == 1 else o.multiply(made, scale), parts[0], along, given[0])


def _answer(o: Namespace, made: Tensor, like: Tensor, along: int, given: Tensor) -> ComplexResult:
    """Rows (m, 2, k) as two tensors with the batch of ``like`` and the axis in its place."""
    shape = (*like.shape[:-1], made.shape[-1])
    parts = [o.moveaxis(o.reshape(made[:, part], shape), -1, along) for part in (0, 1)]
    return ComplexResult(*rounded(parts, [given] * 2))


@public
@shown_as("FftC2CBackward0")
def fft(
    real: TensorLike, imag: TensorLike | None = None, n: int | None = None, axis: int = -1, *, norm: Norm = "backward"
) -> ComplexResult:
    """The discrete Fourier transform of complex numbers in two parts, as ``np.fft.fft``: of x[j] the sums over j of
    x[j]·exp(−2πi·j·k/n).

    Args:
        real, imag: of one shape; without ``imag`` the numbers are real.
        n: the length; default: that of the axis, of which it takes the first elements, or after which zeros come.
        axis: the axis that is transformed, of a size known when declared.
        norm: the factor 1/n is that of the inverse (``"backward"``), of the forward transform (``"forward"``), or its
            root of both (``"ortho"``).

    Returns:
        A named tuple: ``real`` and ``imag``.

    Raises:
        GraphError: parts of two shapes, an empty axis, or one whose size is not known.

    Example:
        >>> sg.Session().run(sg.fft([1.0, 2.0, 3.0, 4.0]))
        ComplexResult(real=array([10., -2., -2., -2.], dtype=float32), imag=array([ 0.,  2.,  0., -2.], dtype=float32))
    """
    return _complex("fft", real, imag, n, axis, norm, False)


@public
@shown_as("FftC2CBackward0")
def ifft(
    real: TensorLike, imag: TensorLike | None = None, n: int | None = None, axis: int = -1, *, norm: Norm = "backward"
) -> ComplexResult:
    """The inverse of ``fft``, whose arguments it has.

    Raises:
        GraphError: parts of two shapes, an empty axis, or one whose size is not known.

    Example:
        >>> real, imag = sg.ifft(*sg.fft([1.0, 2.0, 3.0]))
        >>> sg.Session().run(real).round(4)
        array([1., 2., 3.], dtype=float32)
    """
    return _complex("ifft", real, imag, n, axis, norm, True)


@public
@shown_as("FftR2CBackward0")
def rfft(x: TensorLike, n: int | None = None, axis: int = -1, *, norm: Norm = "backward") -> ComplexResult:
    """The first n // 2 + 1 elements of ``fft`` of real numbers; the others are their conjugates.

    An even number of real ones is half as many complex ones, whose transform is taken apart.

    Args:
        x: real numbers.
        n, axis, norm: as for ``fft``.

    Raises:
        GraphError: an empty axis, or one whose size is not known.

    Example:
        >>> sg.Session().run(sg.rfft([1.0, 2.0, 3.0, 4.0]))
        ComplexResult(real=array([10., -2., -2.], dtype=float32), imag=array([0., 2., 0.], dtype=float32))
    """
    o, what = FUNCTIONS, "rfft"
    given = _pair(what, x, None)
    along, count = _length(what, given[0], axis, n)
    scale = _scale(norm, count, False, what)
    row = _rows(o, widened(given)[0], along, count)
    if count % 2 or count <= DENSE:
        made = _transformed(o, _both(o, [row]))[..., : count // 2 + 1]
    else:
        made = _half(o, _both(o, [row[..., 0::2], row[..., 1::2]]))
    return _answer(o, made if scale == 1 else o.multiply(made, scale), row, along, given[0])


def _half(o: Namespace, x: Tensor) -> Tensor:
    """From z[j] = x[2j] + i·x[2j + 1], (m, 2, h), the first h + 1 elements of the transform of x.

    With Z that of z, and Z* its conjugate in reverse, those of the even and odd elements are (Z + Z*)/2 and
    (Z − Z*)/2i; the wanted one is the first plus exp(−πi·k/h) times the second."""
    h = int(x.shape[2])
    z = _transformed(o, x)
    z = o.concat([z, z[..., :1]], axis=-1)  # Z[h] = Z[0]
    mirrored = o.multiply(o.flip(z, axis=-1), np.array([[1.0], [-1.0]], x.dtype))
    even = o.multiply(o.add(z, mirrored), 0.5)
    odd = o.multiply(o.subtract(z, mirrored), 0.5)
    odd = o.multiply(o.flip(odd, axis=1), np.array([[1.0], [-1.0]], x.dtype))  # over i
    return o.add(even, _times(o, odd, *_turns(np.arange(h + 1), 2 * h)))


@public
@shown_as("FftC2RBackward0")
def irfft(
    real: TensorLike, imag: TensorLike, n: int | None = None, axis: int = -1, *, norm: Norm = "backward"
) -> Tensor:
    """The inverse of ``rfft``: real numbers from the first elements of their transform.

    Args:
        real, imag: n // 2 + 1 elements along the axis; the imaginary part of the first, and of an even ``n`` of the
            last one, is not used.
        n: the length of the result; default: 2·(m − 1) of m elements.
        axis, norm: as for ``fft``.

    Raises:
        GraphError: parts of two shapes, an empty axis, or one whose size is not known.

    Example:
        >>> sg.Session().run(sg.irfft(*sg.rfft([1.0, 2.0, 3.0]), n=3)).round(4)
        array([1., 2., 3.], dtype=float32)
    """
    o, what = FUNCTIONS, "irfft"
    given = _pair(what, real, imag)
    along, elements = _length(what, given[0], axis, None)
    count = 2 * (elements - 1) if n is None else integer(n, f"{what}: n", 1)
    if count < 1:
        raise GraphError(f"{what}: expected two elements or more without n, actual {given[0].name!r} {given[0].type}")
    scale = _scale(norm, count, True, what)
    first, second = (_rows(o, x, along, count // 2 + 1) for x in widened(given))
    rest = (count - 1) // 2  # elements that follow as conjugates
    mirrored = [o.flip(x[..., 1 : rest + 1], axis=-1) for x in (first, second)]
    whole = [o.concat([first, mirrored[0]], axis=-1), o.concat([second, o.negative(mirrored[1])], axis=-1)]
    made = _inverse(o, _both(o, whole))[:, 0]
    y = o.moveaxis(o.reshape(o.multiply(made, scale), (*first.shape[:-1], count)), -1, along)
    return rounded([y], [given[0]])[0]
