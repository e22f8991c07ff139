"""What is computed: models and optimizers, as values. A peer has a function for each model that it can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "tanh", "sigmoid", "silu", "gelu"]


# -- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Squares:
    """z = 4·x²: the mean and the sum of z, and both gradients. Fed: x."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """The mean logistic loss with ``l2``/2·|w|², and its gradients by w and b. Fed: x, y, w, b."""

    l2: float


@dataclass(frozen=True, slots=True)
class BlackScholes:
    """The price of European calls (Black and Scholes 1973) and its derivatives by the five inputs.
    Fed: spot, strike, years, rate, volatility."""


@dataclass(frozen=True, slots=True)
class Product:
    """A·B of two matrices. Fed: A, B."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """Softmax along the rows of a matrix. Fed: x."""


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer norm along the rows of a matrix, ε = 1e-5. Fed: x, weight, bias."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Ten cheap elementwise operations on a vector, so that passing memory is all that costs. Fed: x."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a vector. Fed: x."""


@dataclass(frozen=True, slots=True)
class Perceptron:
    """Dense layers ``fc1`` … ``fc<depth>`` with an activation between. Fed: x, and labels in training."""

    depth: int
    activation: Activation


@dataclass(frozen=True, slots=True)
class ConvNet:
    """Convolutions ``c1``, ``c2``, … with bias, each with its padding, followed by the activation and a max pool of
    2×2; then dense layers with the activation between. Fed: images and labels."""

    paddings: tuple[int, ...]
    depth: int
    activation: Activation


@dataclass(frozen=True, slots=True)
class ResNet:
    """A residual network for small images (He et al. 2016, section 4.2, shortcuts A): a stem, then blocks of two 3×3
    convolutions, each followed by a batch norm in training mode; ``blocks`` has inputs, outputs and stride of each.
    Fed: images and labels."""

    blocks: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Transformer:
    """A pre-norm block (attention of ``heads`` heads, a GELU network of four times the width) and a head of classes at
    each position. Fed: (batch, tokens, width) and labels (batch, tokens)."""

    heads: int
    causal: bool


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One LSTM layer (gates i, f, g, o in ``wx`` (inputs, 4·hidden), ``wh``, ``b``; zero first state) and a dense layer
    ``fc1`` at each step. Fed: (batch, steps, inputs) and labels (batch, steps)."""


Function = Squares | Logistic | BlackScholes | Product | Softmax | LayerNorm | Chain | Copy
Network = Perceptron | ConvNet | ResNet | Transformer | Recurrent
Model = Function | Network


# -- optimizers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Momentum:
    """Stochastic gradient descent with momentum, the velocity v ← µ·v + g, the step −lr·v."""

    lr: float
    momentum: float


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba 2015) with its published defaults: β = (0.9, 0.999), ε = 1e-8; weights decay by lr·decay in
    each step (Loshchilov and Hutter 2019)."""

    lr: float
    decay: float = 0.0


Optimizer = Momentum | Adam
