"""Dead code: what no fetch and no effect needs is dropped."""

from __future__ import annotations

from staticgrad.compiler.region import Region, rebuild


def dce(region: Region) -> Region:
    return rebuild(region, lambda node, inputs: None)
