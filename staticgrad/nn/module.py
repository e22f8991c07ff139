"""Modules: what layers are made of.

A module is a Python object whose attributes are variables and other modules. Calling it declares its ops in the
current graph; it keeps no values. A variable that was declared trainable is a parameter, frozen or not, any other a
buffer; an optimizer trains those that require a gradient when it is asked. Names are paths of attributes, as in PyTorch
(``"0.weight"``), and variables are named so too where two modules do not claim one name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import FormatError, GraphError, refuse_copies
from staticgrad.base.types import DTypeLike, holds_numbers, require_number, to_array
from staticgrad.graph.graph import COPIER, Tensor
from staticgrad.graph.naming import Holder, Unmatched, match
from staticgrad.graph.optable import Array
from staticgrad.graph.scopes import in_module
from staticgrad.nn import calls
from staticgrad.ops.neural.batch_norm import is_variable
from staticgrad.ops.variables import Variable, another

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class HasForward(Protocol[P, R_co]):
    """The type by which type checkers know a module that is called: a call takes and gives what its ``forward``
    does."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class StateSource(Protocol):
    """A holder of the values of variables: a session."""

    def get(self, variable: Tensor) -> Array: ...

    def set_all(self, values: Mapping[Tensor, npt.ArrayLike]) -> None: ...


class Module(Holder):
    """The base of layers. A subclass sets variables and modules as attributes and defines ``forward``.

    Calling a module calls ``forward``, which declares its ops in the current graph; calling it again declares them
    again, with the same variables. Sessions keep the values. Names are paths of attributes, as in PyTorch.

    Example:
        >>> class Residual(sg.nn.Module):
        ...     def __init__(self, features):
        ...         self.inner = sg.nn.Linear(features, features)
        ...         self.scale = sg.Variable(0.5)
        ...
        ...     def forward(self, x):
        ...         return x + sg.nn.relu(self.inner(x)) * self.scale
        >>> net = Residual(4)
        >>> net(sg.zeros((8, 4))).shape
        (8, 4)
        >>> [name for name, _ in net.named_parameters()]
        ['scale', 'inner.weight', 'inner.bias']
    """

    def __init__(self) -> None:
        super().__init__()

    @property
    def training(self) -> bool:
        """True if what is declared next is for training. Then dropout drops, and batch norm uses the statistics of the
        batch."""
        mode = bool(vars(self).get("training", True))
        calls.note_read(self, mode)
        return mode

    @training.setter
    def training(self, mode: bool) -> None:
        before, vars(self)["training"] = vars(self).get("training", True), bool(mode)
        if before != bool(mode):
            calls.note_switch(self, bool(mode))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Declare the module's ops."""
        raise TypeError(f"{type(self).__name__} does not define forward")

    __reduce_ex__ = refuse_copies(
        "a module",
        "copy.deepcopy(module) makes another one in its graph; keep values by module.state_dict(sess) or sess.save",
    )

    def __deepcopy__(self, memo: dict[Any, Any]) -> Self:
        """An independent module with variables of its own in the same graph, also of the modules that it holds.

        What it holds more than once, it holds once in the copy, too. Variables have the types and initializers of
        the original's, and names of their own; values that a session has are not copied:
        ``new.load_state_dict(sess, module.state_dict(sess))`` does that. Tensors that are no variables are shared.
        """
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        is_outermost = COPIER not in memo
        memo[COPIER] = _copied
        try:
            for name, value in vars(self).items():
                setattr(new, name, copy.deepcopy(value, memo))
        finally:
            if is_outermost:
                del memo[COPIER]
        return new

    def __call__(self: HasForward[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return what ``forward`` returns."""
        assert isinstance(self, Module)
        try:
            with in_module(self._holder_place):
                return cast(R_co, calls.call(self, args, kwargs))
        except Exception as error:
            end_at_user(error, self.forward)
            raise

    # -- what it holds ------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes, by name.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU())
            >>> [name for name, _ in net.named_children()]
            ['0', '1']
        """
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """The modules that are attributes, in order.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU())
            >>> [type(child).__name__ for child in net.children()]
            ['Linear', 'ReLU']
        """
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all that it holds, each once.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU())
            >>> [name for name, _ in net.named_modules()]
            ['', '0', '1']
        """
        seen: set[int] = set()
        for name, module in self._walk(prefix):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self) -> Iterator[Module]:
        """This module and all that it holds, each once.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU())
            >>> [type(module).__name__ for module in net.modules()]
            ['Sequential', 'Linear', 'ReLU']
        """
        return (module for _, module in self.named_modules())

    def _walk(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.named_children():
            yield from child._walk(f"{prefix}.{name}" if prefix else name)

    def _own_variables(self, trainable: bool) -> Iterator[tuple[str, Tensor]]:
        for name, value in vars(self).items():
            if is_variable(value) and value.op.attrs.trainable == trainable:
                yield name, value

    def _named(self, trainable: bool) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for path, module in self._walk(""):
            for name, variable in module._own_variables(trainable):
                if id(variable) not in seen:
                    seen.add(id(variable))
                    yield f"{path}.{name}" if path else name, variable

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters with their paths, frozen ones too; one that is shared comes once.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU(), sg.nn.Linear(8, 3, bias=False))
            >>> [(name, p.shape) for name, p in net.named_parameters()]
            [('0.weight', (8, 4)), ('0.bias', (8,)), ('2.weight', (3, 8))]
        """
        return self._named(trainable=True)

    def parameters(self) -> list[Tensor]:
        """Parameters, frozen ones too, each once.

        Example:
            >>> net = sg.nn.Linear(4, 8)
            >>> [p.shape for p in net.parameters()]
            [(8, 4), (8,)]
        """
        return [variable for _, variable in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Variables that are not trained, with their paths.

        Example:
            >>> [(name, b.shape) for name, b in sg.nn.BatchNorm1d(3).named_buffers()]
            [('running_mean', (3,)), ('running_var', (3,)), ('num_batches_tracked', ())]
        """
        return self._named(trainable=False)

    def buffers(self) -> list[Tensor]:
        """Variables that are not trained, each once.

        Example:
            >>> [b.name for b in sg.nn.BatchNorm1d(3).buffers()]
            ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return [variable for _, variable in self.named_buffers()]

    # -- modes --------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Let what is declared from now on be for training: dropout drops, batch norm uses the batch's statistics and
        updates the running ones. With ``mode=False`` it is ``eval()``.

        What the module has declared before stays as it is; to have both, call the module once in each mode.

        Example:
            >>> net = sg.nn.Dropout(0.5).eval()
            >>> net.train().training
            True
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Let what is declared from now on be for use: dropout is the identity, batch norm uses the running statistics.

        Example:
            >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.Dropout(0.5))
            >>> net.training, net.eval().training, net[1].training
            (True, False, False)
        """
        return self.train(False)

    # -- values -------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        """Every path of every variable: parameters, then buffers, module by module. Shared ones under each path."""
        result: dict[str, Tensor] = {}
        for path, module in self._walk(""):
            for trainable in (True, False):
                for name, variable in module._own_variables(trainable):
                    result[f"{path}.{name}" if path else name] = variable
        return result

    @boundary
    def state_dict(self, sess: StateSource) -> dict[str, Array]:
        """The values that a session has for parameters and buffers, by PyTorch's names.

        Example:
            >>> layer, sess = sg.nn.Linear(2, 1), sg.Session(seed=0)
            >>> {name: value.shape for name, value in layer.state_dict(sess).items()}
            {'weight': (1, 2), 'bias': (1,)}
        """
        return {name: sess.get(variable) for name, variable in self._state().items()}

    @boundary
    def load_state_dict(self, sess: StateSource, state_dict: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Set a session's values of parameters and buffers, all in one step.

        Args:
            state_dict: arrays (or what NumPy makes arrays of) by the names of ``state_dict``.
            strict: refuse missing and additional names; otherwise they are passed over.

        Returns:
            ``(missing_keys, unexpected_keys)``: names of the module that had no value, and names of values that the
            module does not have.

        Raises:
            FormatError: names or shapes that do not agree, or no name that does.

        Whatever is raised, nothing was changed.

        Example:
            >>> layer, sess = sg.nn.Linear(2, 1), sg.Session()
            >>> layer.load_state_dict(sess, {"weight": [[1.0, 2.0]], "bias": [0.5]})
            Unmatched(missing_keys=[], unexpected_keys=[])
            >>> sess.run(layer([[10.0, 10.0]]))
            array([[30.5]], dtype=float32)
        """
        own = self._state()
        what = f"load_state_dict of {type(self).__name__}"
        rest = match(what, ("state_dict", "module"), own, state_dict, (not strict, not strict))
        values = {name: _value_for(own[name], state_dict[name], name) for name in own if name in state_dict}
        for name, value in values.items():
            variable = own[name]
            if value.shape != variable.shape or not np.can_cast(value.dtype, variable.dtype, "same_kind"):
                actual = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
                raise FormatError(f"load_state_dict: {name!r}: expected {variable.type}, actual {actual}")
        sess.set_all({own[name]: value.astype(own[name].dtype) for name, value in values.items()})
        return rest

    # -- printing -----------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The part of ``repr`` that describes the module itself, without the modules in it."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
        head = f"{type(self).__name__}({self.extra_repr()}"
        return head + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


def _value_for(variable: Tensor, value: Any, name: str) -> Array:
    """A value that is loaded as an array; Python numbers, in lists too, in the dtype of the variable."""
    if not holds_numbers(value):
        return np.asarray(value)
    try:
        require_number(value, variable.dtype, f"load_state_dict: {name!r}")
        return to_array(value, variable.dtype)
    except GraphError as error:
        raise FormatError(error.message) from None


def _copied(x: Tensor) -> Tensor:
    """The tensor that a copy of a module holds where the module holds ``x``."""
    return another(x) if is_variable(x) else x


def parameter(initial: Any, shape: tuple[int, ...], dtype: DTypeLike, *, trainable: bool = True) -> Tensor:
    """A variable of a layer, which is named after the attribute that it becomes."""
    return Variable(initial, shape=shape, dtype=dtype, trainable=trainable)


def repr_of(**values: Any) -> str:
    """Arguments as a module's representation shows them."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
