"""The gradients by which an optimizer steps: of one process or of all, over the whole batch or in shards."""

from __future__ import annotations

from staticgrad.base.collection import importing
from staticgrad.base.errors import GraphError
from staticgrad.base.types import integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.scopes import no_grad
from staticgrad.optim.arguments import GradAndVar, Variables, check, depends_on, trained


def gradients_of(
    name: str,
    loss: Tensor,
    var_list: Variables | None,
    distributed: bool = False,
    buckets: int = 1,
    shards: int | None = None,
) -> list[GradAndVar]:
    """The gradients of ``loss`` by what shall be updated, those of all ranks where it is ``distributed``, each with its
    variable. ``name`` is that of the optimizer; the other arguments are those of ``Optimizer.minimize``.

    Raises:
        GraphError: there is nothing to update, or an argument is out of its range.
    """
    with importing():
        from staticgrad.compiler.autodiff.reverse import gradients

    if not isinstance(loss, Tensor):
        raise GraphError(f"{name}: expected a loss, a tensor of the graph, actual {loss!r}")
    variables = depends_on(loss) if var_list is None else trained(var_list, name)
    if not variables:
        raise GraphError(f"{name}: {loss.name!r} depends on no trainable variable", source=loss.source)
    own = f"{name}: minimize"
    check(not isinstance(buckets, bool) and isinstance(buckets, int) and buckets >= 1, own, "buckets", buckets,
          "an int of at least 1")  # fmt: skip
    check(distributed or (buckets == 1 and shards is None), own, "distributed", distributed,
          "True, with buckets or shards")  # fmt: skip
    if shards is None:
        found = gradients(loss, variables)
    else:
        check(buckets == 1, own, "buckets", buckets, "1, with shards")
        from staticgrad.optim.exchange import over_shards

        number = integer(shards, f"{own}: shards", 1)
        with loss.graph:
            found = list(over_shards(loss, variables, number, gradients, own))
    if all(gradient is None for gradient in found):
        raise GraphError(
            f"{name}: {loss.name!r} depends on none of the variables that it shall update,"
            f" {', '.join(repr(v.name) for v in variables[:3])}{', …' if len(variables) > 3 else ''}",
            source=loss.source,
        )
    if distributed and shards is None:
        from staticgrad.optim.exchange import averaged

        with loss.graph, no_grad():
            found = averaged(found, buckets)
    return list(zip(found, variables, strict=True))
