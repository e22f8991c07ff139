"""Versions of a kernel: the function that calls the one of the version for the size of a call, so that the result of a
size is always the same.

Input: a kernel planned in versions, and the names of their functions. Output: the function in the module.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.extents import extent_of
from staticgrad.compiler.emit.llvm import IRModule, integer
from staticgrad.compiler.emit.parallel import NO_POOL
from staticgrad.compiler.kernels.planned import Planned
from staticgrad.compiler.plans.versions import Versions


def emit_versions(module: IRModule, planned: Planned, names: Sequence[str], name: str) -> None:
    """Add the function of a kernel that calls the one of ``names``, of its versions, for the size of a call."""
    plan = planned.plan
    assert isinstance(plan, Versions)
    f = module.function(name, ["ptr"] * (len(planned.kernel.args) + 1 + planned.is_shared))
    own, pool = (f.params[:-1], f.params[-1]) if planned.is_shared else (f.params, NO_POOL)
    size, done = f.index(extent_of(plan.size)), f.label("done")
    for (end, part), version in zip(plan.numbered, names, strict=True):
        fits, after = f.label("fits"), f.label("larger")
        if end != plan.ends[-1]:
            f.branch_if(f.compare("icmp sle", size, integer(end)), fits, after)
            f.block(fits)
        f.call(version, "void", *own, *[pool] * part.is_shared)
        f.branch(done)
        if end != plan.ends[-1]:
            f.block(after)
    f.block(done)
    f.finish()
