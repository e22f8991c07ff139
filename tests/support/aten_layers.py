"""Functions of PyTorch's for networks, as ``aten_cases`` has others: images, normalisation, losses, backwards."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from support.aten_cases import ROWS, X, Y, Z, aten, case, normal, positive, unit, whole

SIGNAL, IMAGE, VOLUME = normal(2, 4, 9), normal(2, 4, 7, 6), normal(1, 2, 5, 6, 4)
WINDOWS = [
    case("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), SIGNAL, normal(6, 4, 3), normal(6)),
    case("conv1d without a batch", lambda x, w: F.conv1d(x[0], w), SIGNAL, normal(6, 4, 3)),
    case("conv2d", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2)), IMAGE, normal(3, 4, 3, 2), normal(3)),
    case("conv2d in groups", lambda x, w: F.conv2d(x, w, groups=2), IMAGE, normal(6, 2, 3, 3)),
    case("conv2d of channels", lambda x, w: F.conv2d(x, w, padding=1, groups=4), IMAGE, normal(4, 1, 3, 3)),
    case("conv2d same", lambda x, w: F.conv2d(x, w, padding="same"), IMAGE, normal(3, 4, 2, 3)),
    case("conv3d", lambda x, w, b: F.conv3d(x, w, b, padding=1), VOLUME, normal(3, 2, 3, 3, 3), normal(3)),
    case("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), SIGNAL, normal(4, 3, 3), normal(3)),
    case(
        "conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), IMAGE, normal(4, 3, 3, 3), normal(3)
    ),
    case(
        "conv_transpose2d in groups",
        lambda x, w: F.conv_transpose2d(x, w, None, 3, 0, 0, 2, 2),
        IMAGE,
        normal(4, 3, 2, 2),
    ),
    case(
        "conv_transpose3d",
        lambda x, w, b: F.conv_transpose3d(x, w, b, (2, 1, 2), 1, (1, 0, 1)),
        VOLUME,
        normal(2, 3, 3, 2, 3),
        normal(3),
    ),
    case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), SIGNAL),
    case("max_pool2d", lambda x: F.max_pool2d(x, 2), IMAGE),
    case("max_pool2d with overlap", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
    case("max_pool2d places", lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE),
    case("max_pool1d places", lambda x: F.max_pool1d(x, 2, return_indices=True), SIGNAL),
    case("max_pool3d", lambda x: F.max_pool3d(x, (2, 3, 2), 2, (1, 1, 0)), VOLUME),
    case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), SIGNAL),
    case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    case("avg_pool2d without the border", lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), IMAGE),
    case("avg_pool2d divided", lambda x: F.avg_pool2d(x, (2, 3), divisor_override=4), IMAGE),
    case("avg_pool3d", lambda x: F.avg_pool3d(x, 2, 1), VOLUME),
    case("avg_pool3d with a border", lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), VOLUME),
    case("lp_pool2d", lambda x: F.lp_pool2d(x.abs(), 2, 2), IMAGE),
    case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), SIGNAL),
    case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
    case("adaptive_avg_pool2d to 1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), VOLUME),
    case("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), SIGNAL),
    case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), IMAGE),
    case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), VOLUME),
    *(
        case(f"pad {mode} {x.ndim - 2}d", lambda x, mode=mode: F.pad(x, (1, 2) + (0, 1) * (x.ndim - 3), mode=mode), x)
        for mode in ("reflect", "replicate", "circular")
        for x in (SIGNAL, IMAGE, VOLUME)
    ),
    *(
        case(f"resize {mode}", lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), x)
        for mode, x in (
            ("nearest", SIGNAL),
            ("linear", SIGNAL),
            ("nearest", IMAGE),
            ("bilinear", IMAGE),
            ("bicubic", IMAGE),
            ("nearest", VOLUME),
            ("trilinear", VOLUME),
            ("nearest-exact", IMAGE),
            ("area", IMAGE),
        )
    ),
    case("resize to a size", lambda x: F.interpolate(x, (4, 9), mode="bilinear", align_corners=True), IMAGE),
    case("resize smaller", lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True), IMAGE),
    case("resize nearest to a size", lambda x: F.interpolate(x, (5, 9)), IMAGE),
    case("unfold", lambda x: F.unfold(x, (2, 3), dilation=1, padding=1, stride=2), IMAGE),
    case("fold", lambda x: F.fold(x, (7, 6), (2, 3), padding=1, stride=2), normal(2, 12, 12)),
    case("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, unit(2, 3, 5, 2) * 1.2),
    case(
        "grid_sample at borders",
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
        IMAGE,
        unit(2, 3, 5, 2) * 1.2,
    ),
    case(
        "grid_sample nearest",
        lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        IMAGE,
        unit(2, 3, 5, 2),
    ),
    case(
        "grid_sample of cubes",
        lambda x, g: F.grid_sample(x, g, mode="bicubic", padding_mode="reflection", align_corners=True),
        IMAGE,
        unit(2, 3, 5, 2) * 1.2,
    ),
    case(
        "grid_sample of volumes",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        VOLUME,
        unit(1, 2, 3, 2, 3) * 1.2,
    ),
    case("affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), normal(2, 2, 3)),
]

LABELS = whole(1, 0, 3)
CHANCES = positive(3, 4) / positive(3, 4).sum(1, keepdim=True)
NEURAL = [
    case("layer_norm", lambda x, w, b: F.layer_norm(x, (3, 4), w, b), Z, X, Y),
    case("native_layer_norm", lambda x, w, b: aten.native_layer_norm(x, [4], w, b, 1e-5), Z, normal(4), normal(4)),
    case("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), Z, normal(4)),
    case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), IMAGE, normal(4), normal(4)),
    case("instance_norm", lambda x, w: F.instance_norm(x, weight=w), IMAGE, normal(4)),
    case("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), IMAGE, normal(4), normal(4)),
    case(
        "batch_norm for use",
        lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b),
        IMAGE,
        normal(4),
        positive(4),
        normal(4),
        normal(4),
    ),
    case("local_response_norm", lambda x: F.local_response_norm(x, 3), IMAGE),
    case(
        "attention", F.scaled_dot_product_attention, normal(2, 2, 5, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4, seed=3)
    ),
    case(
        "causal attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        normal(2, 5, 4),
        normal(2, 5, 4, seed=1),
        normal(2, 5, 4, seed=2),
    ),
    case(
        "masked attention",
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m > 0) + F.scaled_dot_product_attention(q, k, k, m),
        normal(2, 5, 4),
        normal(2, 5, 4, seed=1),
        normal(5, 5) + torch.eye(5, dtype=torch.float64) * 9,
    ),
    case(
        "attention in groups",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True, scale=0.3),
        normal(1, 4, 5, 2),
        normal(1, 2, 5, 2),
    ),
    case("cross_entropy", lambda x, t: F.cross_entropy(x, t), X, LABELS),
    case(
        "cross_entropy weighted",
        lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.1),
        X,
        LABELS,
        positive(4),
    ),
    case("cross_entropy ignoring", lambda x, t: F.cross_entropy(x, t, ignore_index=0, reduction="sum"), X, LABELS),
    case("cross_entropy of images", lambda x, t: F.cross_entropy(x, t, reduction="none"), normal(2, 4, 3), ROWS),
    case("cross_entropy of chances", F.cross_entropy, X, CHANCES),
    case("nll_loss", lambda x, t: F.nll_loss(x.log_softmax(1), t), X, LABELS),
    case("nll_loss of images", lambda x, t: F.nll_loss(x, t, reduction="sum"), normal(2, 4, 3), ROWS),
    *(
        case(f"{name} {how}", lambda x, y, name=name, how=how: getattr(F, name)(x, y, reduction=how), X, Y)
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
        for how in ("mean", "sum", "none")
    ),
    case("kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y, reduction="batchmean"), X, CHANCES),
    case("kl_div of logarithms", lambda x, y: F.kl_div(x, y, reduction="none", log_target=True), X, Y),
    case("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), X, CHANCES),
    case(
        "binary_cross_entropy_with_logits",
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w.detach()),
        X,
        CHANCES,
        positive(4),
    ),
    case("soft_margin_loss", lambda x, y: F.soft_margin_loss(x, y.detach().sign()), X, Y),
    case("hinge_embedding_loss", lambda x, y: F.hinge_embedding_loss(x, y.sign()), X, Y),
    case("margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, torch.ones(3, 4)), X, Y),
    case("multilabel_soft_margin_loss", lambda x, y: F.multilabel_soft_margin_loss(x, y), X, CHANCES),
    case("triplet_margin_loss", F.triplet_margin_loss, X, Y, normal(3, 4, seed=4)),
    case("cosine_embedding_loss", lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(3)), X, Y),
    case("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y), X, positive(3, 4)),
]

BACKWARDS = [
    case(
        "_adaptive_avg_pool2d",
        lambda x: (aten._adaptive_avg_pool2d(x, [3, 3]), aten._adaptive_avg_pool2d_backward(x[:, :, :3, :3], x)),
        IMAGE,
    ),
    case("_adaptive_avg_pool3d", lambda x: aten._adaptive_avg_pool3d(x, [2, 3, 2]), VOLUME),
    case(
        "avg_pool2d_backward",
        lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
        normal(2, 4, 3, 3),
        IMAGE,
    ),
    case(
        "max_pool2d_with_indices_backward",
        lambda g, x: aten.max_pool2d_with_indices_backward(
            g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, aten.max_pool2d_with_indices(x, [2, 2])[1]
        ),
        normal(2, 4, 3, 3),
        IMAGE,
        gradients=False,
    ),
    case(
        "convolution_backward",
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [3], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        normal(2, 3, 7, 6),
        IMAGE,
        normal(3, 4, 3, 3),
    ),
    case(
        "embedding_dense_backward", lambda g, i: aten.embedding_dense_backward(g, i, 5, 1, False), normal(2, 3, 4), ROWS
    ),
    case(
        "native_layer_norm_backward",
        lambda g, x, w: aten.native_layer_norm_backward(
            g, x, [4], *aten.native_layer_norm(x, [4], w, w, 1e-5)[1:], w, w, [True, True, True]
        ),
        normal(2, 3, 4, seed=9),
        Z,
        normal(4),
        gradients=False,
    ),
    case(
        "native_group_norm_backward",
        lambda g, x, w: aten.native_group_norm_backward(
            g, x, *aten.native_group_norm(x, w, w, 2, 4, 42, 2, 1e-5)[1:], w, 2, 4, 42, 2, [True, True, True]
        ),
        normal(2, 4, 7, 6, seed=9),
        IMAGE,
        normal(4),
        gradients=False,
    ),
    case("_softmax", lambda x: (aten._softmax(x, 1, False), aten._log_softmax(x, 0, False)), X),
    case("_safe_softmax", lambda x: aten._safe_softmax(x, 1), X),
    case("split_with_sizes", lambda x: aten.split_with_sizes(x, [1, 3], 1)[1], X),
    case("sizes", lambda x: (aten.full([x.shape[0]], 2.0), x.numel()), X, gradients=False),
    case("scalars", lambda x: aten.mul.Scalar(aten.add.Scalar(x, 2), 3) - aten.div.Scalar(x, 2), X),
    case("scatter.value", lambda x, i: aten.scatter.value(x, 0, i, 2.0), X, ROWS),
    case(
        "empty",
        lambda x: (aten.empty.memory_format([2]).shape[0], aten.empty_strided([2, 3], [3, 1]) * 0),
        X,
        gradients=False,
    ),
    case(
        "_native_batch_norm_legit.no_stats",
        lambda x, w: aten._native_batch_norm_legit.no_stats(x, w, w, True, 0.1, 1e-5)[0],
        IMAGE,
        normal(4),
    ),
    case("native_dropout for use", lambda x: aten.native_dropout(x, 0.5, False)[0], X),
]

LAYERS = {"windows": WINDOWS, "neural": NEURAL, "backwards": BACKWARDS}
