"""Graph to graph: each pass a small value in one visible list.

A pass takes a region and gives one; it neither adds nor drops fetches or effects. ``PASSES`` is the order in which they
run; ``STATICGRAD_DISABLE=name`` leaves one out (where it is optional), ``STATICGRAD_PRINT_AFTER`` and
``STATICGRAD_VERIFY`` look between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from staticgrad.base import config
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.compiler.passes.added import added
from staticgrad.compiler.passes.bodies import bodies, rewritten
from staticgrad.compiler.passes.cse import cse
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.passes.expand import expand
from staticgrad.compiler.passes.fold import fold
from staticgrad.compiler.passes.keepdims import keepdims
from staticgrad.compiler.passes.loops import hoist, trim
from staticgrad.compiler.passes.pads import pads
from staticgrad.compiler.passes.parts import parts
from staticgrad.compiler.passes.row_updates import row_updates
from staticgrad.compiler.passes.rows import rows
from staticgrad.compiler.passes.simplify import simplify
from staticgrad.compiler.passes.sums import sums
from staticgrad.compiler.passes.unstack import unstack
from staticgrad.compiler.regions import repeats
from staticgrad.compiler.regions.region import Region, private
from staticgrad.ops.control.loops import LoopAttributes


@frozen
class Pass:
    """A rewrite of a region: its name in switches and dumps, and the function."""

    name: str
    run: Callable[[Region], Region]
    optional: bool = True

    def apply(self, region: Region) -> Region:
        """Run it, as a phase of its name."""
        with phase(self.name):
            return self.run(region)


def _reroll(region: Region) -> Region:
    if len(region.graph.nodes) <= repeats.LEAST_REPEATED:
        return region
    from staticgrad.compiler.passes.reroll import reroll

    return reroll(region)


def _bodies(region: Region) -> Region:
    return bodies(region, _run)


def _rewind(region: Region) -> Region:
    if not any(isinstance(node.attrs, LoopAttributes) and node.attrs.checkpoint for node in region.graph.nodes):
        return region
    from staticgrad.compiler.passes.rewind import rewind

    return rewind(region, lambda body: rewritten(body, _run))


def _run(region: Region) -> Region:
    for step in passes_without(config.names("DISABLE")):
        region = step.apply(region)
    return region


def passes_without(disabled: Collection[str]) -> list[Pass]:
    """The passes in their order, without those that are optional and disabled by their names."""
    return [step for step in PASSES if not step.optional or step.name not in disabled]


PASSES: tuple[Pass, ...] = (
    Pass("reroll", _reroll),
    Pass("own", private, optional=False),  # copies nodes for this compilation: after rerolling they are few
    Pass("expand", expand, optional=False),
    Pass("bodies", _bodies, optional=False),
    Pass("trim", trim),
    Pass("hoist", hoist),
    Pass("rewind", _rewind),
    Pass("added", added),
    Pass("sums", sums),
    Pass("keepdims", keepdims, optional=False),
    Pass("fold", fold),
    Pass("simplify", simplify),
    Pass("rows", rows),
    Pass("parts", parts),
    Pass("cse", cse),
    Pass("unstack", unstack),
    Pass("dce", dce),
    Pass("row_updates", row_updates),
    Pass("pads", pads),
)
