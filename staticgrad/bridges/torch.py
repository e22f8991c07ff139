"""Executables as functions of PyTorch's tensors: ``staticgrad.torch.wrap``.

Input: an executable. Output: a function of CPU tensors that autograd differentiates: a ``torch.autograd.Function``
whose backward is a program of ours, derived from the graph. Tensors and results share memory with NumPy's arrays, so
nothing is copied that a program can read as it is.

A backward calls the program of cotangents, which computes again what it reads of the forward; where the result is one
number the forward has computed the derivatives along with it. A backward that is differentiated itself calls the
program of cotangents as a function of the same kind, so there is a derivative of any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import FeedError, GraphError, StateChangedError, refuse_copies
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.recent import Recent
from staticgrad.base.types import bfloat16, is_floating
from staticgrad.bridges.derived import Derivable, derivable
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.binding import as_array, ready, wrong_shape
from staticgrad.runtime.session.executable import Executable

try:
    import torch
    from torch.autograd import forward_ad
except ImportError as error:
    raise ImportError("staticgrad.torch needs PyTorch: pip install '.[torch]' in a checkout") from error

Versions = dict[str, int]  # of each variable the number of its last write
KEPT = 64  # combinations of shapes of one function
DTYPES = {
    getattr(torch, name): np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32")
} | {torch.float64: np.dtype("float64"), torch.bfloat16: bfloat16}
TORCH = {dtype: name for name, dtype in DTYPES.items()}


class TorchFunction:
    """An executable as a function of PyTorch's tensors: ``staticgrad.torch.wrap(exe)``.

    It is called with CPU tensors in the order of the executable's feeds and gives tensors in the nest of its fetches.
    Several threads may call it; an attribute of a ``torch.nn.Module`` may hold it.

    Attributes:
        executable: what was wrapped.
    """

    __reduce_ex__ = refuse_copies(
        "a function for PyTorch", "wrap the executable in each process, for each module: staticgrad.torch.wrap(exe)"
    )

    def __init__(self, executable: Executable) -> None:
        """These are made by ``wrap``."""
        self.executable = executable
        self._known: Recent[_TorchProgram] = Recent(KEPT)
        self._is_tensor = [isinstance(leaf, Tensor) for leaf in nests.flatten(executable.fetches)]

    def __repr__(self) -> str:
        return f"<PyTorch function of {self.executable!r}>"

    def __call__(self, *tensors: Any) -> Any:
        try:
            feeds = self.executable.feeds
            if len(tensors) != len(feeds):
                names = ", ".join(repr(x.name) for x in feeds) or "none"
                raise FeedError(f"expected {len(feeds)} tensors (for {names}), actual {len(tensors)}")
            given = [_tensor(x, value) for x, value in zip(feeds, tensors, strict=True)]
            results = iter(self._results(given))
            return nests.pack(self.executable.fetches, [next(results) if found else None for found in self._is_tensor])
        except Exception as error:
            end_at_user(error)
            raise

    def _results(self, given: Sequence[Any]) -> Sequence[Any]:
        if not _is_traced(given):
            return tensors_of(_run(self.executable, [array_of(t) for t in given]))
        shapes = tuple([tuple(t.shape) for t in given])
        program = self._known.get(shapes)
        if program is None:
            made = derivable(self.executable, shapes)
            program = self._known.put(shapes, _TorchProgram(made, self.executable, is_forward=True))
        return program.call(given)


@boundary
def wrap(executable: Executable) -> TorchFunction:
    """An executable as a function of PyTorch's tensors, which autograd differentiates.

    It runs on the CPU. Its gradients are programs of the graph's own derivatives, of any order (``create_graph=True``).
    Variables are the session's, as in a call of the executable; where one that a backward reads has changed since the
    forward, that is refused.

    Returns:
        A function that takes tensors in the order of the feeds and gives the nest of the fetches, None at ops. Numbers
        and arrays may stand for tensors.

    Raises:
        GraphError: no executable.
        FeedError: (when called) a wrong number of tensors, a wrong device, shape or dtype.
        GradientError: (in a backward) an op without a derivative on the way, or one that draws random numbers.
        StateChangedError: (in a backward) a variable that it reads was written since the forward.

    Example:
        >>> import torch
        >>> import staticgrad.torch
        >>> x = sg.placeholder((3,))
        >>> f = staticgrad.torch.wrap(sg.Session().compile(sg.sum(x**3), x))
        >>> at = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> f(at).backward()
        >>> at.grad
        tensor([ 3., 12., 27.])
    """
    if not isinstance(executable, Executable):
        raise GraphError(f"wrap: expected an executable (sess.compile), actual {executable!r}")
    return TorchFunction(executable)


# -- tensors and arrays -----------------------------------------------------------------------------------------------


def _tensor(x: Tensor, value: Any) -> Any:
    """The tensor for what is given as the feed ``x``, of its dtype."""
    if not isinstance(value, torch.Tensor):
        array = as_array(x, value)
        return tensors_of([array if array.flags.writeable else array.copy()])[0]  # no tensor is read-only
    what = f"feed of {x.name!r}"
    if value.device.type != "cpu":
        raise FeedError(f"{what}: expected a tensor on the CPU, actual {value.device}: use .cpu()", source=x.source)
    if value.layout is not torch.strided:
        raise FeedError(f"{what}: expected a dense tensor, actual {value.layout}: use .to_dense()", source=x.source)
    given = DTYPES.get(value.dtype)
    if given is None or not np.can_cast(given, x.dtype, "safe"):
        raise FeedError(
            f"{what}: wrong dtype\n  expected {x.dtype}\n  actual   {value.dtype}, which does not cast to it safely:"
            f" use .to(torch.{x.dtype.name})",
            source=x.source,
        )
    if value.dim() != x.ndim or any(isinstance(s, int) and s != n for s, n in zip(x.shape, value.shape, strict=True)):
        raise wrong_shape(x, tuple(value.shape), what)
    return value if given == x.dtype else value.to(TORCH[x.dtype])


def array_of(tensor: Any) -> Array:
    """The tensor's memory as an array that a program can read; a copy where it is not contiguous."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.contiguous().view(torch.int16)
        array: Array = tensor.numpy().view(bfloat16)
    else:
        array = tensor.resolve_conj().resolve_neg().numpy()
    return array if ready(array, array.dtype) else np.array(array, order="C")


def tensors_of(arrays: Sequence[Array]) -> list[Any]:
    """Tensors over the memory of arrays."""
    return [
        torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == bfloat16 else torch.from_numpy(a)
        for a in arrays
    ]


def _is_traced(tensors: Sequence[Any]) -> bool:
    """True if autograd or a transformation of ``torch.func`` looks at a call with these tensors."""
    return (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)) or any(map(_is_wrapped, tensors))


def _is_wrapped(tensor: Any) -> bool:
    """True for a tensor of ``torch.func``, which has no memory, and for one with a tangent."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None


def _run(executable: Executable, arrays: Sequence[Array]) -> list[Array]:
    return [value for value in nests.flatten(executable(*arrays)) if value is not None]


# -- programs ---------------------------------------------------------------------------------------------------------


class _TorchProgram:
    """A function and how it is run: the executable itself, or the program of a derivative."""

    def __init__(self, function: Derivable, executable: Executable, *, is_forward: bool = False) -> None:
        self.function = function
        self._executable = executable
        self._is_forward = is_forward
        self._runner: Any = None
        self._derived: dict[Derivable, _TorchProgram] = {}
        self._lock = reentrant_lock()
        places = {x: place for place, x in enumerate(function.region.fetches)}
        self._places = [places[x] for x in function.tensors]

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """The results for tensors of the right types."""
        arrays = [array_of(t) for t in tensors]
        if self._is_forward:
            return tensors_of(_run(self._executable, arrays))
        with self._lock:
            if self._runner is None:
                compiler, options = self._executable.session.compiler, self._executable._programs.options
                self._runner = compiler.load(self.function.region, options)
        found = self._runner.run(arrays)
        first = {place: n for n, place in reversed(list(enumerate(self._places)))}
        return tensors_of([found[p] if first[p] == n else found[p].copy() for n, p in enumerate(self._places)])

    def of(self, derivative: Derivable) -> _TorchProgram:
        """The program of a derivative of this one."""
        with self._lock:
            if derivative not in self._derived:
                self._derived[derivative] = _TorchProgram(derivative, self._executable)
            return self._derived[derivative]

    def call(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """The results, with a backward where one is wanted, and with what ``torch.func`` makes of it."""
        by = tuple(n for n, t in enumerate(tensors) if t.requires_grad) if torch.is_grad_enabled() else ()
        if not by and not any(map(_is_wrapped, tensors)):
            return self.run(tensors)
        results: Sequence[Any] = _ProgramCall.apply(self, by, self.versions(), *tensors)
        return results[: len(self.function.results)]

    def run_for(self, by: tuple[int, ...], tensors: Sequence[Any]) -> list[Any]:
        """The results; where they are one number, then its derivatives by ``by``."""
        function = self.function
        if not by or not function.is_number or function.draws is not None:
            return self.run(tensors)
        return self.of(function.slopes(by)).run(tensors)

    def versions(self) -> Versions:
        """The numbers of the last writes of the variables that it reads."""
        store = self._executable.session.store
        return {key: store.version(key) for key in self.function.variables}


class _ProgramCall(torch.autograd.Function):
    """A call whose backward is another program."""

    @staticmethod
    def forward(program: _TorchProgram, by: tuple[int, ...], versions: Versions, *tensors: Any) -> Any:
        return tuple(program.run_for(by, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.program, ctx.by, ctx.versions, *tensors = inputs
        results = ctx.program.function.results
        ctx.count = len(output)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[len(results) :])
        ctx.save_for_forward(*tensors)
        whole = [r for r, t in zip(output, results, strict=False) if not is_floating(t.dtype)]
        ctx.mark_non_differentiable(*whole, *output[len(results) :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        program, by, function = ctx.program, ctx.by, ctx.program.function
        given = cotangents[: len(function.results)]
        of = tuple(n for n, ct in enumerate(given) if ct is not None)
        gradients: list[Any] = [None] * (3 + len(function.feeds))
        if not of:
            return tuple(gradients)
        saved = ctx.saved_tensors  # raises if one was changed in place
        tensors, slopes = saved[: len(function.feeds)], saved[len(function.feeds) :]
        if slopes and not torch.is_grad_enabled():
            found = [slope * given[of[0]].reshape(()) for slope in slopes]
        else:
            back = program.of(function.pullback(by, of))
            _check_versions(ctx.versions, back)
            found = back.call([*tensors, *(given[n] for n in of)])
        for n, gradient in zip(by, found, strict=True):
            gradients[n + 3] = gradient
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        program, function, tangents = ctx.program, ctx.program.function, moved[3:]
        by = tuple(n for n, t in enumerate(tangents) if t is not None)
        found: list[Any] = [None] * ctx.count
        if by and function.floating:
            forward = program.of(function.pushforward(by, function.floating))
            _check_versions(ctx.versions, forward)
            primals = ctx.saved_tensors[: len(function.feeds)]
            results = forward.call([*primals, *(tangents[n] for n in by)])
            for n, tangent in zip(function.floating, results, strict=True):
                found[n] = tangent
        return tuple(found)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], program: _TorchProgram, by: Any, versions: Any, *tensors: Any) -> Any:
        axes = in_dims[3:]

        def element(number: int) -> list[Any]:
            pairs = zip(tensors, axes, strict=True)
            return [t if axis is None else t.select(axis, number) for t, axis in pairs]

        calls = [_ProgramCall.apply(program, by, versions, *element(number)) for number in range(info.batch_size)]
        results = tuple(torch.stack(each) for each in zip(*calls, strict=True))
        return results, (0,) * len(results)


def _check_versions(before: Versions, derivative: _TorchProgram) -> None:
    """Refuse a derivative that would read another value of a variable than the function that it belongs to."""
    changed = [key for key, number in derivative.versions().items() if before.get(key, number) != number]
    if changed:
        raise StateChangedError(
            f"variable {changed[0]!r} was written after the forward began, and the derivative reads its value: call the"
            " forward again"
        )


__all__ = ["TorchFunction", "wrap"]
