"""Modules of modules: ``Sequential`` and ``ModuleList``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from staticgrad.lifting import TensorLike
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
    """Modules one after the other; given as arguments (named ``"0"``, ``"1"``, …) or as one dict."""

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

    def forward(self, input: TensorLike) -> Any:
        for module in self.children():
            input = module(input)
        return input


class ModuleList(_Members):
    """Modules in a list, so that their variables are found."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Add one module at the end."""
        setattr(self, str(len(self)), module)
        return self
