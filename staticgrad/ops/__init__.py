"""The op table's entries by family, and the public functions that declare them.

A module enters its ops and functions into the table and the namespace (``staticgrad.graph.optable``) when it is
imported: when one of its functions is first asked for, by a user or by another op's rule. Most programs need a few
families.
"""

from __future__ import annotations

from staticgrad.graph.optable import FUNCTIONS

# The public functions that each module defines; nothing, where ops have none.
DEFINED = {
    "checkpointing": "checkpoint",
    "collectives": "",
    "contraction": "dot linear matmul outer tensordot vecdot",
    "convolution": "conv1d conv2d conv3d conv_transpose2d convolution convolution_input_grad convolution_weight_grad",
    "cumulative": "cumulative_prod cumulative_sum diff product_of_others",
    "curves": "gradient interp trapezoid",
    "custom": "custom_gradient once_differentiable",
    "distinct": "nonzero unique",
    "distributions": "",
    "einsum": "einsum",
    "grouped": "quantized_linear",
    "effects": "accumulate_grad assert_ assign bounds_check group latest_value print py_call",
    "fourier": "fft ifft irfft rfft",
    "own": "",
    "missing": "nanmax nanmean nanmin nanprod nanstd nansum nanvar",
    "moments": "mean std var",
    "pooling": "adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
    " avg_pool1d avg_pool3d max_pool1d max_pool3d",
    "positions": "argmax argmin",
    "randoms": "apply_dropout dropout",
    "reductions": "all any count_nonzero max min prod sum unbroadcast",
    "scans": "associative_scan cummax cummin logcumsumexp",
    "sizes": "shape size_value",
    "sorting": "argsort isin lexsort searchsorted sort topk",
    "sources": "accumulated_grad arange asarray constant empty empty_like eye full full_like iota linspace ones"
    " ones_like placeholder zeros zeros_like",
    "statistics": "average bincount corrcoef cov digitize histogram median percentile ptp quantile",
    "transposed": "conv_transpose1d conv_transpose3d",
    "variables": "Variable",
    "windows": "adaptive_avg_pool2d avg_pool2d fold max_pool2d window",
    "control.bodies": "",
    "control.branches": "cond",
    "control.loops": "map scan while_loop",
    "control.rewinding": "",
    "elementwise.activations": "elu gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish relu relu6 selu"
    " sigmoid silu softplus softsign",
    "elementwise.arithmetic": "abs add copysign divide floor_divide maximum minimum multiply multiply_no_nan"
    " multiply_zeros negative positive pow reciprocal remainder sign signbit square subtract",
    "elementwise.bessel": "i0 i0e i1 i1e iv ive",
    "elementwise.bits": "bitcast clz nextafter popcount",
    "elementwise.closeness": "allclose isclose nan_to_num",
    "elementwise.comparison": "bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
    " equal greater greater_equal isfinite isinf isnan less less_equal logical_and logical_not logical_or logical_xor"
    " not_equal",
    "elementwise.copies": "astype identity stop_gradient",
    "elementwise.elementary": "acos acosh asin asinh atan atan2 atanh cbrt cos cosh exp exp2 expm1 hypot log log10"
    " log1p log2 logaddexp rsqrt sin sinh sqrt tan tanh",
    "elementwise.error": "erf erfc erfinv gaussian",
    "elementwise.expressions": "",
    "elementwise.gamma": "digamma lgamma polygamma",
    "elementwise.incomplete_beta": "beta_density betainc betainc_by_shape betaln",
    "elementwise.incomplete_gamma": "gamma_density gamma_draw gammainc gammainc_by_a gammaincc",
    "elementwise.normal": "erfcinv erfcx log1mexp log_ndtr ndtr ndtri sinc sinc_slope xlog1py xlogy",
    "elementwise.rounding": "ceil floor round trunc",
    "elementwise.selection": "clip where",
    "indexing.bounds": "",
    "elementwise.zeta": "zeta",
    "indexing.gathering": "gather index index_add scatter_add",
    "indexing.labels": "one_hot",
    "indexing.meetings": "",
    "indexing.scattering": "scatter",
    "indexing.subscripts": "getitem take take_along_axis",
    "linalg.blocks": "block_diag kron",
    "linalg.cholesky": "cholesky",
    "linalg.determinants": "det slogdet",
    "linalg.eigen": "eigh eigvalsh",
    "linalg.elimination": "inv matrix_power solve",
    "linalg.exponential": "expm",
    "linalg.least_squares": "lstsq",
    "linalg.lu": "lu lu_factor lu_solve pivots_to_permutation",
    "linalg.matrices": "cross diagonal matrix_norm meshgrid trace tril triu vector_norm",
    "linalg.orthogonal": "householder_product qr",
    "linalg.singular": "matrix_rank pinv spectral_norm svd svdvals",
    "linalg.spectral": "logm sqrtm",
    "linalg.triangular": "solve_triangular",
    "linalg.tridiagonal": "tridiagonal_solve",
    "losses.alignment": "ctc_loss",
    "losses.classes": "cross_entropy nll_loss",
    "losses.probabilities": "apply_sigmoid_cross_entropy binary_cross_entropy binary_cross_entropy_with_logits kl_div",
    "losses.regression": "huber_loss l1_loss mse_loss smooth_l1_loss",
    "neural.attention": "scaled_dot_product_attention",
    "neural.batch_norm": "batch_norm",
    "neural.embedding": "embedding",
    "neural.normalisation": "group_norm layer_norm rms_norm standardize",
    "neural.softmax": "log_softmax logsumexp softmax",
    "views.broadcasting": "broadcast_arrays broadcast_to",
    "views.joining": "bucket concat roll split stack unstack",
    "views.padding": "pad",
    "views.permuting": "matrix_transpose moveaxis permute_dims swapaxes transpose",
    "views.repeating": "repeat tile",
    "views.reshaping": "expand_dims flatten reshape shards squeeze",
    "views.slicing": "flip pad_with",
    "views.stacking": "column_stack diag dstack hstack vstack",
}
MODULES = tuple(f"{__name__}.{module}" for module in DEFINED)

FUNCTIONS.expect({f"{__name__}.{module}": names.split() for module, names in DEFINED.items()})
