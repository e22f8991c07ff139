"""Normalisations as layers; those by batch keep running statistics."""

from __future__ import annotations

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTypeLike, computed, float32, int64, integer, integers, number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_floats
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import control_dependencies, no_grad
from staticgrad.nn import functional as F
from staticgrad.nn import initializers as init
from staticgrad.nn.module import Module, parameter, repr_of
from staticgrad.ops.convolution import Sizes


class _BatchNorm(Module):
    """Batch norm with running statistics. Training: the batch's own statistics, and the running ones are updated."""

    _ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        dtype: DTypeLike = float32,
    ) -> None:
        num_features = self.num_features = integer(num_features, f"{type(self).__name__}: num_features", 0)
        self.eps = number(eps, f"{type(self).__name__}: eps")
        self.momentum = None if momentum is None else number(momentum, f"{type(self).__name__}: momentum")
        shape = (num_features,)
        self.weight = parameter(init.ones(), shape, dtype) if affine else None
        self.bias = parameter(init.zeros(), shape, dtype) if affine and bias else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = parameter(init.zeros(), shape, dtype, trainable=False)
            self.running_var = parameter(init.ones(), shape, dtype, trainable=False)
            self.num_batches_tracked = parameter(init.zeros(), (), int64, trainable=False)

    def forward(self, input: TensorLike) -> Tensor:
        own_dtype = next((p.dtype for p in (self.weight, self.running_mean) if p is not None), float32)
        x = lift_floats(input, None, own_dtype)
        if x.ndim not in self._ranks:
            raise GraphError(f"{type(self).__name__}: expected an input of {self._ranks} dimensions, actual {x.type}")
        if self.num_batches_tracked is not None and self.training:
            return self._train(x, self.num_batches_tracked)
        own = self.running_mean is None or self.training  # without running statistics the batch's own always serve
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, 0.0, self.eps)

    def _train(self, x: Tensor, counter: Tensor) -> Tensor:
        o = FUNCTIONS
        with x.graph, no_grad():
            count = o.add(o.latest_value(counter), 1)
            counted = o.assign(counter, count)
            momentum = self.momentum  # None: the running statistics are the means over all batches so far
            weight = o.divide(1.0, o.astype(count, computed(x.dtype))) if momentum is None else momentum
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True, weight, self.eps)
        with x.graph, control_dependencies([counted]):
            return o.identity(y)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {repr_of(eps=self.eps, momentum=self.momentum)}"


class BatchNorm1d(_BatchNorm):
    """Batch norm (Ioffe and Szegedy 2015) of (N, C) or (N, C, L): each channel has mean 0 and variance 1, then its
    ``weight`` and ``bias``, (C,) each, unless ``affine=False`` or ``bias=False``.

    In training over the batch, which also updates ``running_mean`` and ``running_var``: (1 - momentum)·old +
    momentum·new, ``momentum`` None: the mean of all batches. In evaluation the running ones are used.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance.
        momentum: the part of the new statistics in the running ones; None: these are the mean of all batches.
        affine: whether there are ``weight`` and ``bias``.
        track_running_stats: whether there are running statistics; without them the batch's own always serve.
        bias: whether there is a ``bias`` as well as a ``weight``.
        dtype: of the parameters.

    Example:
        >>> norm = sg.nn.BatchNorm1d(2, momentum=0.5)
        >>> x = sg.constant([[1.0, 10.0], [3.0, 30.0]])
        >>> sess = sg.Session()
        >>> sess.run(norm(x)).round(2)
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
        >>> sess.run([norm.running_mean, norm.running_var])
        [array([ 1., 10.], dtype=float32), array([  1.5, 100.5], dtype=float32)]
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm (Ioffe and Szegedy 2015) of (N, C, H, W), as ``BatchNorm1d``.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance.
        momentum: the part of the new statistics in the running ones; None: these are the mean of all batches.
        affine: whether there are ``weight`` and ``bias``.
        track_running_stats: whether there are running statistics; without them the batch's own always serve.
        bias: whether there is a ``bias`` as well as a ``weight``.
        dtype: of the parameters.

    Example:
        >>> norm = sg.nn.BatchNorm2d(3)
        >>> norm(sg.zeros((8, 3, 32, 32))).shape
        (8, 3, 32, 32)
        >>> [name for name, _ in norm.named_parameters()], [name for name, _ in norm.named_buffers()]
        (['weight', 'bias'], ['running_mean', 'running_var', 'num_batches_tracked'])
    """

    _ranks = (4,)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes (Ba, Kiros, Hinton 2016), then ``weight`` and ``bias``.

    ``(…, *normalized_shape)`` to the same; weight and bias are of ``normalized_shape``.

    Args:
        normalized_shape: the last sizes of the input, or the last one as a number.
        eps: added to the variance.
        elementwise_affine: whether there are ``weight`` and ``bias``.
        bias: whether there is a ``bias`` as well as a ``weight``.
        dtype: of the parameters.

    Example:
        >>> norm = sg.nn.LayerNorm(2)
        >>> x = sg.constant([[1.0, 3.0], [10.0, 30.0]])
        >>> sg.Session().run(norm(x)).round(2)
        array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)
        >>> sg.nn.LayerNorm((5, 64), bias=False)(sg.zeros((8, 5, 64))).shape
        (8, 5, 64)
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        shape = self.normalized_shape = integers(normalized_shape, "LayerNorm: normalized_shape", 0)
        self.eps = number(eps, "LayerNorm: eps")
        self.weight = parameter(init.ones(), shape, dtype) if elementwise_affine else None
        self.bias = parameter(init.zeros(), shape, dtype) if elementwise_affine and bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, {repr_of(eps=self.eps)}"


class RMSNorm(Module):
    """Root mean square 1 over the last axes (Zhang and Sennrich 2019), then ``weight``, of ``normalized_shape``.

    Args:
        normalized_shape: the last sizes of the input, or the last one as a number.
        eps: added to the mean square; None: the dtype's machine epsilon.
        elementwise_affine: whether there is ``weight``.
        dtype: of the parameters.

    Example:
        >>> norm = sg.nn.RMSNorm(2)
        >>> sg.Session().run(norm(sg.constant([[3.0, 4.0], [0.0, 2.0]]))).round(3)
        array([[0.849, 1.131],
               [0.   , 1.414]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        shape = self.normalized_shape = integers(normalized_shape, "RMSNorm: normalized_shape", 0)
        self.eps = eps if eps is None else number(eps, "RMSNorm: eps")
        self.weight = parameter(init.ones(), shape, dtype) if elementwise_affine else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, {repr_of(eps=self.eps)}"


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels (Wu and He 2018), then ``weight`` and ``bias``, (C,) each, unless
    ``affine=False`` or ``bias=False``.

    (N, C, …) to the same; ``num_groups`` divides C.

    Args:
        num_groups: divides ``num_channels``.
        num_channels: C, the channels of the input.
        eps: added to the variance.
        affine: whether there are ``weight`` and ``bias``.
        bias: whether there is a ``bias`` as well as a ``weight``.
        dtype: of the parameters.

    Example:
        >>> norm = sg.nn.GroupNorm(num_groups=4, num_channels=16)
        >>> norm(sg.zeros((8, 16, 7, 7))).shape, norm.weight.shape
        ((8, 16, 7, 7), (16,))
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
        dtype: DTypeLike = float32,
    ) -> None:
        num_groups, num_channels = (
            integer(num_groups, "GroupNorm: num_groups", 1),
            integer(num_channels, "GroupNorm: num_channels", 0),
        )
        if num_channels % num_groups:
            raise GraphError(f"GroupNorm: {num_channels} channels do not fall into {num_groups} groups")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps = number(eps, "GroupNorm: eps")
        self.weight = parameter(init.ones(), (num_channels,), dtype) if affine else None
        self.bias = parameter(init.zeros(), (num_channels,), dtype) if affine and bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, {repr_of(eps=self.eps)}"
