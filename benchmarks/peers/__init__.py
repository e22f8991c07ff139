"""The peers: who they are, and what the module of each offers.

A module is imported only in the process that measures its peer, by an interpreter that may lack all others. It has
``build(workload, settings)``, which declares the program and gives a ``Program``. Compiling it gives the call: arrays
in the order of the feed come in, a sequence of arrays comes out (anything that is None is left out of the answer). With
``settings.double`` parameters and float32 feeds are float64: the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import models
from workloads import Workload

Call = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a program is built. ``variant``: one of several that a module has."""

    threads: int
    double: bool = False
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What a module builds. ``temporary_bytes``, once compiled: memory for intermediate values, where a peer tells."""

    compile: Callable[[], Call]
    temporary_bytes: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """One way of computing the workloads.

    ``modules`` must be there to be imported; the first names the package whose version is reported. ``compiler``: it
    needs a C++ compiler. ``covers`` says whether it can do a workload.
    """

    title: str
    module: str
    modules: tuple[str, ...]
    covers: Callable[[Workload], bool]
    variant: str = ""
    compiler: bool = False


def _everything(_: Workload) -> bool:
    return True


def _whole_steps(workload: Workload) -> bool:
    """Training, but that ``torch.compile`` cannot put PyTorch's recurrent layers into one graph with their backward."""
    return workload.kind == "train" and not isinstance(workload.model, models.Recurrent)


def _by_hand(workload: Workload) -> bool:
    """What somebody would derive on paper; gelu needs an error function, which NumPy has not."""
    model = workload.model
    if isinstance(model, models.Perceptron):
        return model.activation != "gelu"
    return isinstance(model, models.Function)


def _images(workload: Workload) -> bool:
    return isinstance(workload.model, models.ConvNet | models.ResNet)


def _no_images(workload: Workload) -> bool:
    """PyTensor has no convolution of images with derivatives."""
    return not _images(workload)


def _forward(workload: Workload) -> bool:
    """Runtimes for inference derive nothing."""
    if workload.dtype != "float32":
        return False
    return workload.kind == "infer" or isinstance(
        workload.model, models.Product | models.Softmax | models.LayerNorm | models.Chain
    )


PEERS: dict[str, Peer] = {
    "staticgrad": Peer("staticgrad", "staticgrad_program", ("staticgrad",), _everything),
    "numpy": Peer("NumPy", "numpy_formulas", ("numpy",), _by_hand),
    "torch": Peer("PyTorch", "torch_eager", ("torch",), _everything),
    "torch_nhwc": Peer("PyTorch channels last", "torch_eager", ("torch",), _images, "channels_last"),
    "torch_compile": Peer("torch.compile", "torch_compile", ("torch",), _everything, "calls", compiler=True),
    "torch_step": Peer("torch.compile whole step", "torch_compile", ("torch",), _whole_steps, "step", compiler=True),
    "jax": Peer("JAX", "jax_jit", ("jax",), _everything),
    "tf1": Peer("TensorFlow 1", "tensorflow_session", ("tensorflow",), _everything),
    "tf_xla": Peer("TensorFlow XLA", "tensorflow_xla", ("tensorflow",), _everything),
    "pytensor": Peer("PyTensor", "pytensor_function", ("pytensor",), _no_images),
    "onnxruntime": Peer("ONNX Runtime", "onnxruntime_session", ("onnxruntime", "onnx"), _forward),
    "openvino": Peer("OpenVINO", "openvino_model", ("openvino", "onnx"), _forward),
}
