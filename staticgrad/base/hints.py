"""Names that users of other libraries type, and what is written here instead: one table, a sentence for each name.

    Table    ::= {place: {names: sentence}}
    place    ::= the qualified name of a class or a module; names are separated by spaces

A name of the table does not exist in its place. Asking for it raises the usual error, AttributeError or TypeError,
with the sentence added; whoever only probes (``hasattr``, ``getattr`` with a default, ``copy``, ``pickle``) sees no
difference. In the sentences ``sess`` is a session, ``tape`` what ``sess.forward`` returned, ``x`` a tensor, ``loss``
one that is a loss, ``opt`` an optimizer, ``exe`` a compiled program.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable
from typing import NoReturn

_GRADIENT = (
    "declare (dx,) = sg.gradients(loss, [x]) and fetch dx with sess.run; or tape = sess.forward(loss, feeds),"
    " tape.backward(loss), sess.grad(x)"
)
_RUN = "a tensor has a value in a run alone: sess.run(x, feeds) returns it as a NumPy array"
_IN_PLACE = "tensors are values, which nothing overwrites: write x = x + y, and sg.assign(variable, x) to change state"
_DEVICE = "there is no device to choose, programs run on the CPU: leave it out"
_LOSS = "losses are functions: "
_RANDOM = "random numbers come from sg.random: "
_SEED = "random numbers follow from the session's seed: sg.Session(seed=0)"
_NO_INIT = "variables are initialised when a session first uses them: leave it out"
_CAST = "write x.astype(sg.float32), or another dtype of sg"
_JIT = "programs are always compiled: step = sess.compile(fetches, feeds) is called with arrays"
_SAVE = "the state of a session is written by sess.save(path) and read by sess.restore(path)"
_SCHEDULE = (
    "a schedule is given as the learning rate: sg.optim.Adam(lr=sg.optim.schedules.cosine(1e-3, steps=1000));"
    " a number is state that sess.set(opt.lr, value) changes"
)
_GROUPS = (
    'groups are given when an optimizer is made: sg.optim.Adam(lr=1e-3, groups=[{"params": biases, "lr": 1e-4}]);'
    " sess.set(opt.lr, value) changes a learning rate"
)
_PADDED = (
    "sequences are padded and their lengths fed beside them: states[lengths - 1, sg.arange(n)] are the last states of a"
    " recurrent layer (guide: Sequences of different lengths)"
)
_CLIP = "write sg.optim.clip_by_global_norm(grads, max_norm) between sg.gradients and opt.apply_gradients"
_LAYERS = "write a sg.nn.Module of sg.nn.MultiheadAttention, sg.nn.LayerNorm and sg.nn.Linear"
_PARALLEL = "a program uses the session's threads by itself, sg.Session(num_threads=4): leave it out"
_RANKS = "write train = opt.minimize(loss, distributed=True), and start the script as mpiexec -n 4 python train.py"
_UPDATE = "an update is an op: train = opt.minimize(loss), and each sess.run(train, feeds) makes a step"

TABLE: dict[str, dict[str, str]] = {
    "Tensor": {
        "backward": "a session runs backwards: tape = sess.forward(loss, feeds), tape.backward(loss); or declare"
        " grads = sg.gradients(loss, xs) and fetch them with sess.run",
        "grad": f"gradients are the session's: {_GRADIENT}",
        "item numpy tolist value read_value block_until_ready": _RUN,
        "eval": "write sess.run(x, feeds)",
        "data": "write sess.get(x) and sess.set(x, value) for the value of a variable, x.detach() to cut the gradient",
        "cpu cuda to": f"{_DEVICE}; another dtype is x.astype(sg.float32)",
        "view": "write x.reshape(2, -1)",
        "view_as reshape_as expand_as": "write x.reshape(y.shape) or sg.broadcast_to(x, y.shape)",
        "expand": "write sg.broadcast_to(x, shape)",
        "permute": "write x.permute_dims((1, 0)) or sg.permute_dims(x, axes)",
        "t": "write x.T",
        "unsqueeze": "write sg.expand_dims(x, axis) or x[:, None]",
        "clone contiguous": "tensors are values, which nothing overwrites: leave it out",
        "dim": "write x.ndim",
        "numel nelement": "write x.size",
        "get_shape": "write x.shape, or sg.shape(x) for sizes that feeds bind",
        "float double half long int type_as": _CAST,
        "add_ sub_ mul_ div_ copy_ clamp_ exp_ relu_": _IN_PLACE,
        "zero_ fill_ normal_ uniform_": "a variable is set by sess.set(x, value), or by the op sg.assign(x, value);"
        " gradients are zeroed by sess.zero_grad()",
        "assign assign_add assign_sub": "write sg.assign(x, value), an op",
        "at": "write sg.scatter(x, index, updates, mode='set')",
        "scatter_ index_put_ scatter_add_": "write sg.scatter(x, index, updates, mode='add') or mode='set'",
        "masked_fill masked_fill_": "write sg.where(mask, value, x)",
        "gather": "write sg.take_along_axis(x, indices, axis)",
        "index_select": "write x.take(indices, axis)",
        "clamp": "write x.clip(min, max)",
        "mm bmm": "write x @ y",
        "norm": "write sg.linalg.vector_norm(x)",
        "chunk": "write sg.split(x, sections)",
    },
    "Node": {
        "run": "write sess.run(op, feeds)",
        "backward": "a session runs backwards of tensors: tape = sess.forward(loss, feeds), tape.backward(loss)",
    },
    "Optimizer": {
        "zero_grad": "the session keeps the gradients: sess.zero_grad(); those of sg.gradients and opt.minimize do not"
        " add up",
        "compute_gradients": "write sg.gradients(loss, xs)",
        "param_groups add_param_group": _GROUPS,
        "state_dict load_state_dict": f"what an optimizer keeps are variables: {_SAVE}",
        "init": "what an optimizer keeps is made when a session first uses it: leave it out",
    },
    "Session": {
        "partial_run make_callable": "write step = sess.compile(fetches, feeds), which is called with arrays",
        "list_devices": _DEVICE,
    },
    "staticgrad": {
        "cat": "write sg.concat(xs, axis)",
        "chunk": "write sg.split(x, sections)",
        "rand rand_like random_uniform": f"{_RANDOM}sg.random.uniform(shape)",
        "randn randn_like random_normal": f"{_RANDOM}sg.random.normal(shape)",
        "randperm": f"{_RANDOM}sg.random.permutation(n)",
        "manual_seed set_random_seed seed set_seed": _SEED,
        "tensor array as_tensor from_numpy convert_to_tensor Parameter": "write sg.constant(value) for a value that"
        " stays, sg.Variable(value) for state, sg.placeholder(shape) for what is fed",
        "from_dlpack": "what has DLPack is fed as it is: sess.run(fetches, {x: value})",
        "grad autograd GradientTape": f"gradients are declared: {_GRADIENT}",
        "jit compile": _JIT,
        "vjp": "write sg.gradients(ys, xs, grad_ys)",
        "jacfwd jacrev": "write sg.jacobian(y, x)",
        "multinomial": "write sg.random.categorical(logits, shape=shape), or sg.random.choice(values, shape)",
        "masked_fill": "write sg.where(mask, value, x)",
        "functional_call": "feed other values of its variables in a run: sess.run(y, {x: value, net.weight: weight})",
        "stack_module_state": "write a module whose weights have one more axis in front, and sg.vmap over it",
        "fori_loop": "write sg.while_loop(cond_fn, body_fn, init) or sg.scan(fn, init, xs)",
        "lax": "control flow is sg.scan, sg.while_loop, sg.cond and sg.map",
        "tree_map tree": "write sg.nest.map(fn, nest)",
        "device_put device cuda": _DEVICE,
        "inference_mode": "write with sg.no_grad():",
        "mm bmm": "write sg.matmul(x, y) or x @ y",
        "power": "write sg.pow(x, y) or x ** y",
        "mul": "write sg.multiply(x, y) or x * y",
        "sub": "write sg.subtract(x, y) or x - y",
        "div true_divide": "write sg.divide(x, y) or x / y",
        "neg": "write sg.negative(x) or -x",
        "mod fmod": "write sg.remainder(x, y) or x % y",
        "clamp clip_by_value": "write sg.clip(x, min, max)",
        "unsqueeze": "write sg.expand_dims(x, axis)",
        "permute": "write sg.permute_dims(x, axes)",
        "gather": "write sg.take(x, indices, axis) or sg.take_along_axis(x, indices, axis)",
        "index_select": "write sg.take(x, indices, axis)",
        "norm": "write sg.linalg.vector_norm(x) or sg.linalg.matrix_norm(x)",
        "softmax relu sigmoid log_softmax one_hot gelu silu dropout": "neural functions are in sg.nn: sg.nn.relu(x),"
        " sg.nn.softmax(x, dim), sg.nn.one_hot(labels, num_classes)",
        "functional": "write sg.nn.functional, or sg.nn.relu and its like",
        "reduce_sum reduce_mean reduce_max reduce_min": "write sg.sum(x, axis), sg.mean, sg.max or sg.min",
        "float double long int half": "dtypes are named by their size: sg.float32, sg.float64, sg.int64, sg.float16",
        "cast to_float to_int32": "write sg.astype(x, sg.float32)",
        "save": f"{_SAVE}; graphs by sg.save_graph(path, graph) and sg.load_graph(path)",
        "no_gradient": "write sg.stop_gradient(x)",
        "global_variables_initializer initialize_all_variables local_variables_initializer": _NO_INIT,
        "get_variable": "write sg.Variable(value, name=name), or sg.Variable(sg.init.zeros(), shape=shape)",
        "variable_scope name_scope": "write Variable(value, name='scope/w'), or let a sg.nn.Module hold the variables",
        "train": "optimizers are in sg.optim: sg.optim.Adam(lr=1e-3).minimize(loss); state is written by sess.save",
        "layers keras": "layers are in sg.nn: sg.nn.Linear(3, 4), sg.nn.Sequential(…)",
        "InteractiveSession": "write sg.Session()",
        "losses": "losses are in sg.nn: sg.nn.cross_entropy(logits, labels), sg.nn.mse_loss(x, y)",
        "utils": "batches are slices of arrays that are fed; gradients are clipped by sg.optim.clip_by_global_norm",
        "distributions": "a log density is written with ops, a normal one as -0.5 * ((x - mean) / std)**2 - sg.log(std)"
        " - 0.919; values are drawn by sg.random.normal(shape, mean, std) and its like",
    },
    "staticgrad.nn": {
        "CrossEntropyLoss": f"{_LOSS}sg.nn.cross_entropy(logits, labels)",
        "NLLLoss": f"{_LOSS}sg.nn.nll_loss(log_probabilities, labels)",
        "MSELoss": f"{_LOSS}sg.nn.mse_loss(x, y)",
        "L1Loss": f"{_LOSS}sg.nn.l1_loss(x, y)",
        "HuberLoss SmoothL1Loss": f"{_LOSS}sg.nn.huber_loss(x, y), sg.nn.smooth_l1_loss(x, y)",
        "BCELoss": f"{_LOSS}sg.nn.binary_cross_entropy(p, y)",
        "BCEWithLogitsLoss": f"{_LOSS}sg.nn.binary_cross_entropy_with_logits(logits, y)",
        "KLDivLoss": f"{_LOSS}sg.nn.kl_div(log_p, q)",
        "softmax_cross_entropy_with_logits sparse_softmax_cross_entropy_with_logits": "write"
        " sg.nn.cross_entropy(logits, labels), whose labels are classes or probabilities",
        "Parameter": "write sg.Variable(value) as an attribute of a sg.nn.Module",
        "Buffer": "write sg.Variable(value, trainable=False) as an attribute of a sg.nn.Module",
        "ParameterList ParameterDict ModuleDict": "set variables and modules as attributes of a sg.nn.Module, or hold"
        " modules in a sg.nn.ModuleList",
        "init": "first values are in sg.init: sg.Variable(sg.init.kaiming_uniform(), shape=shape)",
        "utils": "sg.optim.clip_by_global_norm(grads, max_norm) clips gradients; for utils.rnn pad in NumPy and take"
        " states[lengths - 1, sg.arange(n)] (guide: Sequences of different lengths)",
        "clip_grad_norm_ clip_grad_value_": _CLIP,
        "pack_padded_sequence pad_packed_sequence pad_sequence pack_sequence PackedSequence": _PADDED,
        "gaussian_nll_loss GaussianNLLLoss": f"{_LOSS}0.5 * sg.mean(sg.log(var) + (x - y)**2 / var), with"
        " var = sg.maximum(var, 1e-6)",
        "poisson_nll_loss PoissonNLLLoss": f"{_LOSS}sg.mean(sg.exp(x) - y * x) for x, the logarithm of the rate",
        "DataParallel parallel": _PARALLEL,
        "DistributedDataParallel": _RANKS,
        "Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer": _LAYERS,
        "RNN LSTMCell GRUCell": "write sg.nn.LSTM or sg.nn.GRU, or a step of your own in sg.scan(fn, init, xs)",
        "Dense": "write sg.nn.Linear(in_features, out_features)",
        "Conv3d": "write sg.nn.conv3d(x, weight, bias) in a sg.nn.Module",
        "MaxPool1d MaxPool3d AvgPool1d AvgPool3d AdaptiveAvgPool1d AdaptiveMaxPool2d": "write the function:"
        " sg.nn.max_pool1d(x, 2), sg.nn.max_pool3d, sg.nn.avg_pool1d, sg.nn.avg_pool3d, sg.nn.adaptive_avg_pool1d,"
        " sg.nn.adaptive_max_pool2d",
        "ConvTranspose1d ConvTranspose3d": "write sg.nn.conv_transpose1d(x, weight, bias), or"
        " sg.nn.conv_transpose3d, in a sg.nn.Module",
        "ReflectionPad2d ReplicationPad2d": 'write sg.nn.pad(x, (1, 1, 1, 1), mode="reflect") or mode="replicate"',
        "Upsample": "write sg.nn.interpolate(x, scale_factor=2.0)",
        "ZeroPad2d": "write sg.nn.pad(x, (1, 1, 1, 1))",
        "Hardtanh Hardswish Hardsigmoid Mish SELU ReLU6 LogSigmoid Softsign": "write the function: sg.nn.hardtanh(x),"
        " sg.nn.hardswish, sg.nn.hardsigmoid, sg.nn.mish, sg.nn.selu, sg.nn.relu6, sg.nn.log_sigmoid, sg.nn.softsign",
    },
    "staticgrad.optim": {
        "adam adamw sgd rmsprop adagrad lion": "optimizers are classes: opt = sg.optim.Adam(lr=1e-3); sg.optim.SGD,"
        " AdamW, RMSprop, Adagrad and Lion likewise",
        "AdamOptimizer GradientDescentOptimizer": "write sg.optim.Adam(lr=1e-3) or sg.optim.SGD(lr=0.1)",
        "lr_scheduler": _SCHEDULE,
        "apply_updates": _UPDATE,
        "clip_grad_norm_ clip_by_norm": _CLIP,
    },
    "staticgrad.init": {
        "xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ normal_ uniform_ zeros_ ones_ constant_": "an"
        " initializer makes the first value of a variable: sg.Variable(sg.init.xavier_uniform(), shape=shape)",
    },
    "staticgrad.random": {
        "rand random": "write sg.random.uniform(shape)",
        "randn standard_normal": "write sg.random.normal(shape)",
        "seed manual_seed PRNGKey key split default_rng": _SEED,
    },
    "staticgrad.distributed": {
        "get_rank": "write sg.distributed.rank()",
        "get_world_size": "write sg.distributed.size()",
        "init_process_group initialize": "leave it out, and start the script as mpiexec -n 4 python train.py",
        "all_gather_into_tensor": "write sg.distributed.all_gather(x)",
        "reduce_scatter_tensor": "write sg.distributed.reduce_scatter(x)",
    },
    "staticgrad.linalg": {
        "norm": "write sg.linalg.vector_norm(x) or sg.linalg.matrix_norm(x)",
        "eig eigvals": "write sg.linalg.eigh(x), of symmetric matrices",
        "diag": "write sg.linalg.diagonal(x)",
        "matrix_exp": "write sg.linalg.expm(x)",
    },
}

# Names of arguments: what stands in the place of one, the first of them that the function has.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
    "axis": ("dim", "axes"),
    "axes": ("axis", "dim"),
    "keepdim": ("keepdims",),
    "keep_dims": ("keepdims",),
    "keepdims": ("keepdim",),
    "input": ("x", "x1"),
    "other": ("x2", "y"),
    "grad_outputs": ("grad_ys", "grad"),
    "gradient": ("grad", "grad_ys"),
    "grad_tensors": ("grad", "grad_ys"),
    "size": ("shape",),
    "learning_rate": ("lr",),
    "seed": ("seed",),
    "loc": ("mean",),
    "scale": ("std",),
    "minval": ("low",),
    "maxval": ("high",),
    "a_min": ("min",),
    "a_max": ("max",),
    "rate": ("p",),
    "var_list": ("xs",),
}
# Names of arguments that nothing stands for.
REFUSED = {
    "lengths": _PADDED,
    "device": _DEVICE,
    "out": "a result is a new tensor; exe(*arrays, out=array) of a compiled program writes into arrays",
    "requires_grad": "ask for it afterwards: x.requires_grad_(); a sg.Variable(value) requires a gradient by itself",
    "randomness": "random ops draw for each example by itself; draw outside of the function what all share",
    "argnums": "derivatives are by tensors, not by places: sg.gradients(y, [x])",
    "create_graph": "what sg.gradients gives is a tensor, which can be derived again",
}

# Names of arguments that are given a second time, because something else was put in their place.
TWICE = {
    "lr": "variables are not given here: opt = sg.optim.Adam(lr=1e-3) updates those that opt.minimize(loss, var_list)"
    " finds or is given",
}

CONVERSIONS = {
    "bool()": "use an op (sg.where, sg.cond, sg.logical_and, …)",
    "iteration": "a, b = sg.unstack(x) are its slices, and sg.map and sg.scan go over axis 0 inside the program",
    "len()": "use x.shape[0], or sg.shape(x)[0] for the size that feeds bind",
    "formatting": "format what it returns, or declare sg.print(x, text)",
    "in": "use sg.any(x == value)",
}
# NumPy's functions that have another name here.
RENAMED = {
    "absolute": "abs", "fabs": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "around": "round",
    "rint": "round", "fix": "trunc", "concatenate": "concat",
    "cumprod": "cumulative_prod", "cumsum": "cumulative_sum", "dot": "matmul",
    "inner": "tensordot", "vdot": "vecdot", "fmax": "maximum", "fmin": "minimum", "invert": "bitwise_invert",
    "norm": "linalg.vector_norm", "ravel": "flatten", "array_split": "split", "put_along_axis": "scatter",
    "put": "scatter", "choose": "where", "select": "where", "copy": "identity",
    "array": "constant", "fliplr": "flip", "flipud": "flip", "array_equal": "equal", "cond": "linalg.svdvals",
}  # fmt: skip
PLACES = ("staticgrad", *(f"staticgrad.{name}" for name in ("nn", "optim", "linalg", "random", "init", "nest")))
NEARNESS = 0.75  # of a name to one that is suggested, as difflib has it
VALUE = "fetch it with a session (sess.run(x, feeds))"


def names_of(place: str) -> dict[str, str]:
    """The sentence of each name of a place."""
    return {name: sentence for names, sentence in TABLE.get(place, {}).items() for name in names.split()}


def missing_from_module(module: str, name: str) -> AttributeError:
    """The error of a name that a module does not have, with a sentence that answers it or a public name near it."""
    text = f"module {module!r} has no attribute {name!r}"
    sentence = names_of(module).get(name) or _renamed(module, name)
    return AttributeError(f"{text}: {sentence}" if sentence else _Near(text, module, name))


class _Near:
    """The text of an error with the public name that is nearest, of this module before others.

    It is looked for when the text is read: imports and ``hasattr`` ask for names, too. Python itself suggests names
    only where it prints the error, which a notebook does not leave to it.
    """

    def __init__(self, text: str, module: str, name: str) -> None:
        self._text, self._module, self._name = text, module, name

    def __str__(self) -> str:
        if self._name.startswith("_"):
            return self._text
        import difflib
        import importlib

        found: dict[str, str] = {}
        for place in (self._module, *PLACES):
            for known in dir(importlib.import_module(place)):
                if not known.startswith("_"):
                    found.setdefault(known, f"{place.replace('staticgrad', 'sg', 1)}.{known}")
        near = difflib.get_close_matches(self._name, found, 1, NEARNESS)
        return f"{self._text}: did you mean {found[near[0]]}?" if near else self._text

    __repr__ = __str__


def _renamed(module: str, name: str) -> str:
    """The hint for a name that exists in NumPy and has another name here, or ""."""
    if module != "staticgrad":
        return ""
    return f"write sg.{RENAMED[name]}" if name in RENAMED else ""


class Absent:
    """In the place of an attribute that a class does not have: asking for it raises AttributeError with a sentence.

    A class that has ``__getattr__`` pays for it at every attribute that is there; this costs nothing.
    """

    def __init__(self, owner: str, name: str, sentence: str) -> None:
        self._owner, self._name, self._sentence = owner, name, sentence

    def __get__(self, instance: object, owner: type) -> NoReturn:
        name = self._owner if instance is None else type(instance).__name__
        raise AttributeError(f"{name!r} object has no attribute {self._name!r}: {self._sentence}")

    def __repr__(self) -> str:
        return f"<not an attribute: {self._sentence}>"


class Answering(type):
    """The type of classes that ``answer`` names which they do not have: ``dir`` of such a class, and so its ``help``,
    tells as little of these and of the internal names as ``dir`` of its objects."""

    _untold: frozenset[str]

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in cls._untold]


class AbstractAnswering(Answering, abc.ABCMeta):
    """The type of such a class that users derive from, also together with ``abc.ABC``."""


def answer(cls: Answering, internal: Iterable[str] = ()) -> None:
    """Let a class answer the names of its place in the table that it does not have. ``dir`` of it and of its objects
    tells neither these nor the ``internal`` ones, which the package alone uses."""
    absent = {name: text for name, text in names_of(cls.__name__).items() if not hasattr(cls, name)}
    untold = cls._untold = frozenset((*absent, *internal))

    def __dir__(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in untold]

    for name, sentence in absent.items():
        setattr(cls, name, Absent(cls.__name__, name, sentence))
    cls.__dir__ = __dir__  # type: ignore[assignment]


_UNEXPECTED = r"got an unexpected keyword argument '(\w+)'"
_TOO_MANY = r"takes .*positional arguments? but \d+ (was|were) given$"
_DOUBLED = r"got multiple values for argument '(\w+)'"


def of_call(function: Callable[..., object], message: str) -> str:
    """The message of a TypeError with which a call of ``function`` failed, with a sentence about what was given where
    there is one."""
    if doubled := re.search(_DOUBLED, message):
        return _with(message, TWICE.get(doubled[1]))
    if re.search(_TOO_MANY, message):
        return _with(message, _call_of(function))
    if unexpected := re.search(_UNEXPECTED, message):
        import inspect

        name, has = unexpected[1], inspect.signature(function).parameters
        ours = next((other for other in ARGUMENTS.get(name, ()) if other in has), None)
        return _with(message[: unexpected.end()], REFUSED.get(name) if ours is None else f"write {ours}=")
    return message


def _call_of(function: Callable[..., object]) -> str | None:
    """The hint that shows how to call a function that has keyword-only arguments; None for other functions."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    if all(p.kind is not p.KEYWORD_ONLY for p in parameters):
        return None
    bare = inspect.Signature([p.replace(annotation=p.empty) for p in parameters])
    return f"what follows * is given by name, {function.__name__}{bare}"


def _with(message: str, sentence: str | None) -> str:
    return f"{message}: {sentence}" if sentence else message
