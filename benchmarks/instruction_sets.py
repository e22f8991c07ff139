"""The environment that gives every system the same instruction set.

Libraries choose their kernels by the processor, and variables can limit that choice. ``environment("native")`` takes
these variables out, so that each system runs all that the processor has; with ``"avx2"`` they hold each system to AVX2,
so that one processor with AVX-512 gives both tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# XLA compiles for the instruction set it is told, but hands products and convolutions to YNNPACK, which asks the
# processor; an empty list of fusions leaves them to Eigen, whose kernels are compiled.
XLA_AVX2 = "--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type="
AVX2 = {
    "STATICGRAD_TARGET": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
LIMITING = {*AVX2, "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"}


def environment(isa: str, present: Mapping[str, str]) -> dict[str, str]:
    """The variables ``present`` as ``isa`` needs them.

    Args:
        isa: ``"native"`` for all that the processor has, ``"avx2"``, or ``""`` for the variables as they are.
        present: the variables of this process.
    """
    if not isa:
        return dict(present)
    free = {name: value for name, value in present.items() if name not in LIMITING}
    if isa == "native":
        return free
    flags = f"{present.get('XLA_FLAGS', '')} {XLA_AVX2}".strip()
    return free | AVX2 | {"XLA_FLAGS": flags, "NPY_DISABLE_CPU_FEATURES": ",".join(beyond_avx2())}


def beyond_avx2() -> list[str]:
    """The features beyond AVX2 for which this NumPy has kernels that run here, under its own names."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return [name for name in found if name.startswith("AVX512") or name == "X86_V4"]
