"""Dead code: what no fetch and no effect needs is dropped."""

from __future__ import annotations

from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import needed_nodes


def dce(region: Region) -> Region:
    needed = needed_nodes(region.fetches, region.effects) | {x.op for x in region.feeds}
    if len(needed) == len(region.graph.nodes):
        return region
    return rebuild(region, lambda node, inputs: None)
