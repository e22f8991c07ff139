"""Dead code: what no fetch and no effect needs is dropped."""

from __future__ import annotations

from staticgrad.compiler.regions.region import Region, needed_in, rebuild


def dce(region: Region) -> Region:
    if len(needed_in(region)) == len(region.graph.nodes):
        return region
    return rebuild(region, lambda node, inputs: None)
