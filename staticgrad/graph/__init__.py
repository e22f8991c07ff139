"""Graphs: the table of ops, nodes and tensors, their names, scopes, texts and pictures.

What users may import from here lies in ``graph``: ``staticgrad.graph.GraphEntry`` and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from staticgrad.graph.graph import GradFn as GradFn
    from staticgrad.graph.graph import Graph as Graph
    from staticgrad.graph.graph import GraphEntry as GraphEntry
    from staticgrad.graph.graph import Node as Node
    from staticgrad.graph.graph import Tensor as Tensor
    from staticgrad.graph.hooks import HookHandle as HookHandle
else:

    def __getattr__(name: str) -> Any:
        if name not in ("GradFn", "Graph", "GraphEntry", "HookHandle", "Node", "Tensor"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from staticgrad.graph import graph

        return getattr(graph, name)
