"""Convolution kernels: a planned ``Convolution`` comes in, a function of the module goes out.

The parameters of the function are ``emit/matrix.py``'s; its body is written by the emitter of the plan's class. A new
way to run convolutions is a class of plans, an emitter, and their row in ``EMITTERS``.
"""

from __future__ import annotations

from typing import Any

from staticgrad.compiler.emit.convolution.depthwise import DepthwiseEmitter, DepthwiseWeightsEmitter
from staticgrad.compiler.emit.convolution.depthwise_planes import DepthwisePlanesEmitter
from staticgrad.compiler.emit.convolution.forward import ForwardEmitter
from staticgrad.compiler.emit.convolution.planar import PlanarEmitter
from staticgrad.compiler.emit.convolution.products import ProductsEmitter
from staticgrad.compiler.emit.convolution.schedule import PackingEmitter, PlanEmitter
from staticgrad.compiler.emit.convolution.weights import WeightGradEmitter
from staticgrad.compiler.emit.convolution.weights_dots import DotWeightsEmitter
from staticgrad.compiler.emit.convolution.weights_planes import PlaneWeightsEmitter
from staticgrad.compiler.emit.convolution.weights_products import WeightProductsEmitter
from staticgrad.compiler.emit.convolution.weights_winograd import WinogradWeightsEmitter
from staticgrad.compiler.emit.convolution.winograd import WinogradEmitter
from staticgrad.compiler.emit.llvm import Function, IRModule, Value
from staticgrad.compiler.emit.matrix import write_matrix_kernel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.choice import ConvolutionPlanner, PlannedConvolution
from staticgrad.compiler.plans.convolution.depthwise import Depthwise, DepthwiseWeights
from staticgrad.compiler.plans.convolution.depthwise_planes import DepthwisePlanes
from staticgrad.compiler.plans.convolution.forward import ForwardPlan
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan
from staticgrad.compiler.plans.convolution.planar import Planar
from staticgrad.compiler.plans.convolution.products import Products
from staticgrad.compiler.plans.convolution.schedule import PackingPlan
from staticgrad.compiler.plans.convolution.weights import WeightGrad
from staticgrad.compiler.plans.convolution.weights_dots import DotWeights
from staticgrad.compiler.plans.convolution.weights_planes import PlaneWeights
from staticgrad.compiler.plans.convolution.weights_products import WeightProducts
from staticgrad.compiler.plans.convolution.weights_winograd import WinogradWeights
from staticgrad.compiler.plans.convolution.winograd import Winograd

# Plans of equal estimates are taken in this order.
EMITTERS: dict[type[ConvolutionPlan], type[PlanEmitter[Any]]] = {
    DepthwisePlanes: DepthwisePlanesEmitter,
    DepthwiseWeights: DepthwiseWeightsEmitter,
    Depthwise: DepthwiseEmitter,
    Products: ProductsEmitter,
    WeightProducts: WeightProductsEmitter,
    DotWeights: DotWeightsEmitter,
    PlaneWeights: PlaneWeightsEmitter,
    WeightGrad: WeightGradEmitter,
    ForwardPlan: ForwardEmitter,
    Planar: PlanarEmitter,
    Winograd: WinogradEmitter,
    WinogradWeights: WinogradWeightsEmitter,
}
PLANNER = ConvolutionPlanner(tuple(EMITTERS))


def emit_packing(module: IRModule, kernel: Convolution, plan: PackingPlan, name: str) -> None:
    """Add ``void @name(ptr weights, ptr packed, ptr)``, which packs the weights of ``kernel``."""
    f = module.function(name, ["ptr"] * 3)
    emitter = EMITTERS[type(plan)](plan)
    assert isinstance(emitter, PackingEmitter)
    emitter.pack(f, kernel, f.params[0], f.params[1])
    f.finish()


def emit_convolution(module: IRModule, planned: PlannedConvolution, name: str, epilogue: str | None) -> None:
    """Add the function of a convolution to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest."""
    write_matrix_kernel(module, planned, name, epilogue, _write)


def _write(
    f: Function, kernel: Convolution, plan: ConvolutionPlan, epilogue: str | None, pointers: list[Value], pool: Value
) -> None:
    EMITTERS[type(plan)](plan).emit(f, kernel, epilogue, pointers, pool)
