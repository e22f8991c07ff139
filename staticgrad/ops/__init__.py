"""The op table's entries by family, and the public functions that declare them.

Importing this package fills the table and the namespace (``staticgrad.optable``).
"""

from types import ModuleType

from staticgrad.ops import (
    checkpointing,
    contraction,
    convolution,
    cumulative,
    custom,
    effects,
    moments,
    positions,
    randoms,
    reductions,
    sizes,
    sorting,
    sources,
    variables,
    windows,
)
from staticgrad.ops.control import bodies, branches, loops
from staticgrad.ops.elementwise import (
    activations,
    arithmetic,
    comparison,
    copies,
    elementary,
    error,
    gamma,
    rounding,
    selection,
)
from staticgrad.ops.indexing import gathering, labels, meetings, scattering, subscripts
from staticgrad.ops.linalg import cholesky, eigen, elimination, matrices, orthogonal, singular, triangular
from staticgrad.ops.losses import classes, probabilities, regression
from staticgrad.ops.neural import attention, batch_norm, embedding, normalisation, softmax
from staticgrad.ops.views import broadcasting, joining, permuting, repeating, reshaping, slicing

MODULES: tuple[ModuleType, ...] = (
    checkpointing, contraction, convolution, cumulative, custom, effects, moments, positions, randoms,
    reductions, sizes, sorting, sources, variables, windows,
    bodies, branches, loops,
    activations, arithmetic, comparison, copies, elementary, error, gamma, rounding, selection,
    gathering, labels, meetings, scattering, subscripts,
    cholesky, eigen, elimination, matrices, orthogonal, singular, triangular,
    classes, probabilities, regression,
    attention, batch_norm, embedding, normalisation, softmax,
    broadcasting, joining, permuting, repeating, reshaping, slicing,
)  # fmt: skip
