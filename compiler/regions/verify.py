"""The verifier of regions: types inferred again and compared, operands before users, feeds and fetches inside."""

from __future__ import annotations

from staticgrad.base.errors import StaticGradError
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.text import print_node

WINDOW = 10  # lines shown on each side of a fault


class VerifyError(StaticGradError):
    """A region that breaks its grammar: a bug of the pass that made it."""


def verify(region: Region, stage: str) -> None:
    """Raise ``VerifyError`` with the node, its source line and the nodes around it."""
    seen: set[object] = set()
    for number, node in enumerate(region.graph.nodes):
        problem = ""
        if node.graph is not region.graph:
            problem = "belongs to another graph"
        elif any(x not in seen for x in node.inputs):
            problem = "reads a tensor that is not made before it"
        elif not all(y.type.static for y in node.outputs):
            problem = "has a size that is not bound"
        else:
            inferred = node.op.infer(node.attrs, *(x.type for x in node.inputs))
            types = inferred if isinstance(inferred, tuple) else (inferred,)
            if types != tuple(y.type for y in node.outputs):
                problem = f"has types {[str(y.type) for y in node.outputs]}, expected {[str(t) for t in types]}"
        if problem:
            nodes = region.graph.nodes[max(0, number - WINDOW) : number + WINDOW + 1]
            around = "\n".join(("> " if n is node else "  ") + print_node(n) for n in nodes)
            raise VerifyError(f"after {stage}: {node.name!r} {problem}\n{around}", source=node.source)
        seen.update(node.outputs)
    for x in (*region.feeds, *region.fetches):
        if x not in seen:
            raise VerifyError(f"after {stage}: {x!r} is fed or fetched but not in the region")
