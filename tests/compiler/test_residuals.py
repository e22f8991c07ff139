"""Residuals: what computing a value again takes, and which values are kept."""

from __future__ import annotations

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.autodiff.residuals import AS_READ, Remat, remat, select
from staticgrad.graph.graph import Tensor


def test_every_kind_of_op_has_its_place_in_the_order(g: sg.Graph) -> None:
    x = sg.placeholder((4, 4))
    drawn = sg.random.uniform((4, 4))
    looped = sg.scan(lambda c, row: (c + row, c * row), x[0], x)[1]
    noisy = sg.scan(lambda c, row: (c + row, c * sg.random.uniform((4,))), x[0], x)[1]
    found = {
        Remat.FREE: sg.constant(1.0), Remat.VIEW: sg.transpose(x), Remat.CHEAP: x + x, Remat.ELEMENTWISE: sg.exp(x),
        Remat.COPY: sg.concat([x, x]), Remat.KERNEL: x @ x, Remat.BODIES: looped, Remat.NEVER: noisy,
    }  # fmt: skip
    assert {kind: remat(y.op) for kind, y in found.items()} == {kind: kind for kind in found}
    assert remat(x.op) is Remat.NEVER
    assert Remat.DRAW in {remat(node) for node in [drawn.op, *(y.op for y in drawn.op.inputs)]}
    assert {kind for kind in Remat if kind in AS_READ} == {Remat.VIEW, Remat.CHEAP, Remat.COPY}


@pytest.mark.parametrize(
    ("rematerialized", "kept"), [(("multiply",), ["sum"]), (("multiply", "sum"), ["sum"]), ((), ["multiply"] * 2)]
)
def test_what_is_kept_costs_least(g: sg.Graph, rematerialized: tuple[str, ...], kept: list[str]) -> None:
    """Of a product, the sum of its rows and two multiples of that sum, the values to keep for the multiples."""
    x = sg.placeholder((8, 8))
    y = sg.sum(x @ x, axis=0)

    def operands(z: Tensor) -> list[Tensor] | None:
        return [v for v in z.op.inputs if v.shape] if z.op.op.name in rematerialized else None

    found = select([y * 2.0, y * 3.0], operands, lambda z: z.type.nbytes)
    assert sorted(z.op.op.name for z in found) == kept


def test_a_tape_keeps_the_mask_and_not_what_follows_from_it(g: sg.Graph) -> None:
    x = sg.placeholder((64,), requires_grad=True)
    y = sg.sum(sg.nn.relu(x * 3.0) * 2.0)
    tape = sg.Session(g).forward(y, {x: np.ones(64, np.float32)})
    assert tape.memory.saved_bytes <= 64
