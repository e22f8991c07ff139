"""Executables as functions of PyTorch's tensors, ``staticgrad.torch.wrap``, and PyTorch's modules as modules here,
``staticgrad.torch.convert``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from staticgrad.bridges.torch import TorchFunction, wrap

if TYPE_CHECKING:
    from staticgrad.bridges.aten import ExportedModule, convert

__all__ = ["ExportedModule", "TorchFunction", "convert", "wrap"]


if not TYPE_CHECKING:  # with a __getattr__, a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        """The names of conversion, which imports many converters, when one is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from staticgrad.bridges import aten

        value = globals()[name] = getattr(aten, name)
        return value
