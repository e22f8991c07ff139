"""Modules of modules: ``Sequential`` and ``ModuleList``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.nn.module import Module


class _Members(Module):
    """A module whose modules are numbered by their place."""

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]


class Sequential(_Members):
    """Modules one after the other; given as arguments (named ``"0"``, ``"1"``, …) or as one dict.

    Args:
        modules: the modules, or one dict of modules by name.

    Example:
        >>> net = sg.nn.Sequential(sg.nn.Linear(4, 8), sg.nn.ReLU(), sg.nn.Linear(8, 3))
        >>> net(sg.zeros((5, 4))).shape, net[0].weight.shape
        ((5, 3), (8, 4))
        >>> [name for name, _ in net.named_parameters()]
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named: dict[str, object]
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named = dict(modules[0])
        else:
            named = {str(number): module for number, module in enumerate(modules)}
        for name, module in named.items():
            if not isinstance(module, Module):
                raise TypeError(f"Sequential holds modules, not {module!r}")
            setattr(self, name, module)

    def forward(self, input: TensorLike) -> Tensor:
        result: Any = input
        for module in self.children():
            result = module(result)
        return cast(Tensor, result)


class ModuleList(_Members):
    """Modules in a list, so that their variables are found.

    Args:
        modules: the modules to begin with.

    Example:
        >>> layers = sg.nn.ModuleList([sg.nn.Linear(4, 4) for _ in range(3)])
        >>> x = sg.zeros((8, 4))
        >>> for layer in layers:
        ...     x = layer(x)
        >>> len(layers), [name for name, _ in layers.named_parameters()][:3]
        (3, ['0.weight', '0.bias', '1.weight'])
    """

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Add one module at the end.

        Example:
            >>> layers = sg.nn.ModuleList()
            >>> layers.append(sg.nn.Linear(4, 4)).append(sg.nn.ReLU())
            ModuleList(
              (0): Linear(4, 4, bias=True)
              (1): ReLU()
            )
            >>> [name for name, _ in layers.named_parameters()]
            ['0.weight', '0.bias']
        """
        setattr(self, str(len(self)), module)
        return self
