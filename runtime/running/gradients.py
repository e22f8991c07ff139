"""Programs that read accumulated gradients, such as ``optimizer.step()``.

Input: a region with ``accumulated_grad`` sources. Output: a runner that leaves out every write that depends on a
gradient which no backward has accumulated, as PyTorch's optimizers skip parameters without a gradient. There is one
program for each set of gradients that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from staticgrad.base.errors import FetchError
from staticgrad.base.extents import at_sizes
from staticgrad.compiler.regions.region import Region, gradients_read
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.sources import ACCUMULATED_GRAD
from staticgrad.runtime.running.kept import TapeContext
from staticgrad.runtime.running.runner import Runner
from staticgrad.runtime.running.state import SessionState


def without(region: Region, absent: Collection[str]) -> Region:
    """The region without what depends on the gradients ``absent``.

    Raises:
        FetchError: something fetched depends on one of them.
    """
    dead: set[Node] = set()
    graph = Graph()
    tensors: dict[Tensor, Tensor] = {}
    nodes: dict[Node, Node] = {}
    for node in region.graph.nodes:
        if _depends(node, absent, dead):
            dead.add(node)
            continue
        control = [nodes[before] for before in node.control if before in nodes]
        new = nodes[node] = graph.clone(node, [tensors[x] for x in node.inputs], control)
        tensors.update(zip(node.outputs, new.outputs, strict=True))
    for x in region.fetches:
        if x.op in dead:
            names = ", ".join(map(repr, sorted(absent)))
            raise FetchError(f"{x.name!r} depends on a gradient that no backward has accumulated: {names}")
    effects = tuple(nodes[node] for node in region.effects if node in nodes)
    return Region(graph, tuple(tensors[x] for x in region.feeds), tuple(tensors[x] for x in region.fetches), effects)


def _depends(node: Node, absent: Collection[str], dead: Collection[Node]) -> bool:
    """True if a node depends on an absent gradient: through an operand, or declared to come after the gradient
    itself."""
    if node.op is ACCUMULATED_GRAD:
        return node.attrs.key in absent
    gradients = (before for before in node.control if before.op is ACCUMULATED_GRAD)
    return any(x.op in dead for x in node.inputs) or any(before in dead for before in gradients)


class GradientReader:
    """Runs the program for the gradients that are there now."""

    def __init__(self, region: Region, store: SessionState, load: Callable[[Region], Runner]) -> None:
        self.region = region
        self.types = tuple(x.type for x in region.fetches)
        self._store = store
        self._load = load
        self._keys = gradients_read(region)
        self._runners: dict[frozenset[str], Runner] = {}

    def current(self) -> Runner:
        """The program for the gradients that are there now."""
        absent = frozenset(key for key in self._keys if not self._store.has_gradient(key))
        runner = self._runners.get(absent)
        if runner is None:
            runner = self._runners[absent] = self._load(without(self.region, absent) if absent else self.region)
        return runner

    def at(self, numbers: tuple[int, ...]) -> Runner:
        """The runner for these open sizes."""
        return _SizedReader(self, numbers)

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]:
        """Run once; gradients stay as they are."""
        return self.current().run(arrays, outs, tape)


class _SizedReader:
    """A reader for some open sizes of its program."""

    def __init__(self, reader: GradientReader, numbers: tuple[int, ...]) -> None:
        self._reader = reader
        self._numbers = numbers
        self.types = at_sizes(reader.types, numbers)

    def current(self) -> Runner:
        """The program for the gradients that are there now, at these sizes."""
        return self._reader.current().at(self._numbers)

    def at(self, numbers: tuple[int, ...]) -> Runner:
        return self._reader.at(numbers)

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array | None] | None = None, tape: TapeContext | None = None
    ) -> list[Array]:
        """Run once; gradients stay as they are."""
        return self.current().run(arrays, outs, tape)


def current_of(runner: Runner) -> Runner:
    """The runner that runs a program itself: that of the gradients which are there now where there are several."""
    return runner.current() if isinstance(runner, GradientReader | _SizedReader) else runner
