"""Warnings where something silent goes wrong: each once for the user's line, with the remedy, and nowhere else."""

from __future__ import annotations

import copy
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.graph.graph import Tensor


@pytest.fixture(autouse=True)
def own_graph() -> Iterator[None]:
    with sg.Graph():
        yield


def caught(category: type[Warning], make: Callable[[], object]) -> list[warnings.WarningMessage]:
    """The warnings of a class that a function causes where the user has set no filter."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        make()
    return [w for w in found if issubclass(w.category, category)]


def is_at(warning: warnings.WarningMessage, text: str) -> bool:
    """Whether a warning's location is a line of this file that contains ``text``."""
    with open(__file__, encoding="utf-8") as lines:
        return warning.filename == __file__ and text in lines.read().splitlines()[warning.lineno - 1]


def test_every_warning_is_exported_and_has_one_base() -> None:
    import staticgrad.errors

    classes = [c for c in vars(staticgrad.errors).values() if inspect.isclass(c) and issubclass(c, Warning)]
    assert {c.__name__ for c in classes} <= {*sg.__all__}
    assert all(issubclass(c, sg.StaticGradWarning) and issubclass(c, UserWarning) for c in classes)


def test_a_filter_by_module_finds_the_user_s_module() -> None:
    x = sg.placeholder((3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=sg.PromotionWarning, module=__name__)
        x * np.ones(3)


# -- promotion --------------------------------------------------------------------------------------------------------


def of(dtype: Any, shape: tuple[int, ...] = (3,)) -> Tensor:
    return sg.placeholder(shape, dtype)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: of(sg.float32) * np.ones(3), "multiply: float32 (tensor) and float64 (NumPy array)"),
        (lambda: np.ones(3) + of(sg.float32), "add: float32 (tensor) and float64 (NumPy array)"),
        (lambda: of(sg.float32) @ np.ones((3, 2)), "matmul: float32 (tensor) and float64 (NumPy array)"),
        (lambda: sg.nn.linear(of(sg.float32), np.ones((2, 3))), "linear: float32 (tensor) and float64 (NumPy array)"),
        (lambda: of(sg.float32) + of(sg.float64), ".astype(sg.float32) of the tensor keeps float32"),
        (lambda: of(sg.float16) + of(sg.float64), "float16 (tensor) and float64 (tensor)"),
        (lambda: of(sg.float32) + np.float64(1), "a Python float keeps float32"),
        (lambda: of(sg.float32) / of(sg.int64), "divide: float32 (tensor) and int64 (tensor)"),
        (lambda: of(sg.float32) * np.arange(3, dtype=np.int32), "float32 (tensor) and int32 (NumPy array)"),
        (lambda: of(sg.int64) * np.ones(3, np.float32), "float32 (NumPy array) and int64 (tensor)"),
        (lambda: of(sg.float32) * [np.float64(1)] * 3, "float32 (tensor) and float64 (list)"),
        (lambda: of(sg.float32) - (np.int64(1),) * 3, "np.asarray(the tuple, np.float32) keeps float32"),
        (lambda: sg.where(of(sg.bool), of(sg.float32), np.zeros(3)), "where: float32 (tensor)"),
        (lambda: sg.concat([of(sg.float32), of(sg.float64)]), "concat: float32 (tensor)"),
        (lambda: sg.nn.mse_loss(of(sg.float32), np.zeros(3)), "mse_loss: float32 (tensor)"),
    ],
)  # fmt: skip
def test_raising_a_short_float_to_float64_warns(make: Callable[[], Tensor], text: str) -> None:
    found = caught(sg.PromotionWarning, make)
    assert [text in str(w.message) and ".astype(sg.float64)" in str(w.message) for w in found] == [True]
    assert found[0].filename == __file__


def test_promotion_warns_once_for_a_line() -> None:
    def declare() -> None:
        x = of(sg.float32)
        for _ in range(3):
            x * np.ones(3)  # a line of its own

    found = caught(sg.PromotionWarning, declare)
    assert len(found) == 1
    assert is_at(found[0], "a line of its own")


@pytest.mark.parametrize(
    "make",
    [
        lambda: of(sg.float32) * 2.0 + 1,
        lambda: of(sg.float32) * np.float32(2) + np.ones(3, np.float32),
        lambda: of(sg.float32) * [0.5, 1.0, 2.0],
        lambda: of(sg.float32) * [0.5, 1, True] + [1, 2, 3],
        lambda: of(sg.int64) * [0.5, 1.0, 2.0],
        lambda: of(sg.float64) * [1, 2, 3],
        lambda: of(sg.int32) * [1, 2, 3] / [1, 2, 3],
        lambda: of(sg.float32).astype(sg.float64) * np.ones(3),
        lambda: of(sg.float32) * of(sg.int64).astype(sg.float64),
        lambda: of(sg.float32) * of(sg.int16),
        lambda: of(sg.float32) < np.ones(3),
        lambda: sg.isin(of(sg.float32), np.ones(3)),
        lambda: of(sg.float64) * np.ones(3, np.float32) + np.float32(2),
        lambda: of(sg.int64) * np.ones(3) / 2,
        lambda: of(sg.int64) / of(sg.int32),
        lambda: sg.sum(sg.placeholder((None,))) / sg.placeholder((None,)).shape[0],
    ],
)
def test_promotion_that_is_meant_or_none_does_not_warn(make: Callable[[], Tensor]) -> None:
    assert not caught(sg.PromotionWarning, make)


def test_what_is_derived_or_updated_does_not_warn_of_promotion() -> None:
    def declare() -> None:
        w = sg.Variable(np.ones(3, np.float32))
        for optimizer in (sg.optim.Adam(), sg.optim.SGD(0.1, momentum=0.9), sg.optim.RMSprop(), sg.optim.Lion()):
            optimizer.minimize(sg.sum((w.astype(sg.float64) * np.ones(3)).astype(sg.float32)))
        mixed = sg.sum(w.astype(sg.float64) * np.arange(3) + w.astype(sg.float64))
        sg.hessian(mixed, w)

    assert len(caught(sg.PromotionWarning, declare)) == 0


def test_a_schedule_of_several_dtypes_does_not_warn_of_promotion() -> None:
    def declare() -> None:
        scale = sg.Variable(np.float32(0.5), trainable=False)

        def schedule(step: Tensor) -> Tensor:
            return sg.minimum(scale * sg.sqrt(step + 1), sg.constant(np.float32(1)) / (step + np.float32(1)))

        w = sg.Variable(np.ones(3, np.float32))
        train = sg.optim.SGD(lr=schedule).minimize(sg.sum(w * w))
        sg.Session().run(train)
        w * np.ones(3)  # after it

    (found,) = caught(sg.PromotionWarning, declare)
    assert is_at(found, "# after it")


@pytest.mark.parametrize(
    "dtypes", [("int8", "float32"), ("float32", "float64"), ("float16", "float64"), ("bfloat16", "float32")]
)
def test_norms_and_clipping_of_several_dtypes_do_not_warn_of_promotion(dtypes: tuple[str, str]) -> None:
    def declare() -> None:
        tensors = [of(getattr(sg, dtype)) for dtype in dtypes]
        sg.optim.global_norm(tensors)
        for bound in (1.0, 1, np.float64(1), sg.constant(1.0), sg.constant(np.float64(1))):
            clipped = sg.optim.clip_by_global_norm([*tensors, None], bound)
            assert [x.dtype for x in clipped[:2]] == [np.float64 if x.dtype == "int8" else x.dtype for x in tensors]

    assert not caught(sg.PromotionWarning, declare)


# -- broadcasting -----------------------------------------------------------------------------------------------------

LOSSES = (
    sg.nn.mse_loss, sg.nn.l1_loss, sg.nn.huber_loss, sg.nn.smooth_l1_loss, sg.nn.kl_div, sg.nn.binary_cross_entropy,
    sg.nn.binary_cross_entropy_with_logits,
)  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1)), ((5, 4), (4,)), ((5, 4), (5, 1))])
def test_a_loss_of_two_shapes_warns(loss: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...]) -> None:
    x, t = (sg.placeholder(shape) for shape in shapes)

    def declare() -> None:
        for _ in range(2):
            loss(x, t)  # once

    (found,) = caught(sg.BroadcastWarning, declare)
    assert is_at(found, "loss(x, t)  # once")
    assert f"{loss.__name__}: the input of shape {x.shape} and the target of shape {t.shape}" in str(found.message)
    assert "target.reshape(input.shape)" in str(found.message)


def test_a_loss_of_two_shapes_with_a_weight_or_a_free_size_warns() -> None:
    n = sg.dim("n")
    x, t, w = of("f4", (4, 1)), of("f4", (4,)), of("f4", (4, 1))
    assert len(caught(sg.BroadcastWarning, lambda: sg.nn.huber_loss(x, t, weight=w))) == 1
    x, t = sg.placeholder((n, 1)), sg.placeholder((n,))
    assert len(caught(sg.BroadcastWarning, lambda: sg.nn.mse_loss(x, t))) == 1


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_of_equal_shapes_or_against_a_number_does_not_warn(loss: Callable[..., Tensor]) -> None:
    def declare() -> None:
        n = sg.dim("n")
        for shape in ((), (4,), (4, 1), (1, 4), (n, 3), (n, 1), (None,)):
            x = sg.placeholder(shape)
            loss(x, sg.placeholder(shape))
            loss(x, 0.5)
            loss(x, sg.constant(0.5))
        loss(sg.placeholder((1, 4)), sg.placeholder((4,)))
        loss(sg.placeholder((4, 4)), sg.broadcast_to(sg.placeholder((4,)), (4, 4)))

    assert not caught(sg.BroadcastWarning, declare)


# -- modes ------------------------------------------------------------------------------------------------------------


def dropping() -> sg.nn.Sequential:
    return sg.nn.Sequential(sg.nn.Linear(4, 4), sg.nn.Dropout(0.5), sg.nn.Linear(4, 1))


ROWS = np.ones((2, 4), np.float32)


def training_ops(net: sg.nn.Module) -> tuple[Tensor, Tensor, Any]:
    x = sg.placeholder((2, 4))
    y = net(x)
    return x, y, sg.optim.SGD(0.1).minimize(sg.sum(y))


@pytest.mark.parametrize("call", ["run", "compile", "forward"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "run before"])
def test_running_training_ops_after_eval_warns(call: str, known: bool) -> None:
    net = dropping()
    x, y, train = training_ops(net)
    sess = sg.Session()

    def run() -> None:
        sess.run(train, {x: ROWS})
        if known:
            sess.run(y, {x: ROWS})
        net.eval()
        for _ in range(2):
            if call == "run":
                sess.run(y, {x: ROWS})  # too late
            elif call == "compile":
                sess.compile(y, [x])  # too late
            else:
                sess.forward(y, {x: ROWS})  # too late

    (found,) = caught(sg.ModeWarning, run)
    assert is_at(found, "# too late")
    text = str(found.message)
    assert "Sequential (Dropout in it), made at" in text
    assert "declared in training mode, and is in evaluation mode now" in text
    assert "Call the module once more after eval()" in text


def test_training_what_was_declared_in_eval_mode_warns_after_train() -> None:
    net = dropping().eval()
    x, _, train = training_ops(net)
    (found,) = caught(sg.ModeWarning, lambda: (net.train(), sg.Session().run(train, {x: ROWS})))
    assert "declared in evaluation mode, and is in training mode now" in str(found.message)


def test_a_module_of_the_user_s_that_looks_at_its_mode_warns_too() -> None:
    class Noisy(sg.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + sg.random.normal((2, 4)) if self.training else x * 1.0

    net = Noisy()
    x = sg.placeholder((2, 4))
    y = net(x)
    (found,) = caught(sg.ModeWarning, lambda: (net.eval(), sg.Session().run(y, {x: ROWS})))
    assert str(found.message).startswith("Noisy, made at")


def test_both_modes_declared_run_in_any_order_do_not_warn() -> None:
    def run() -> None:
        net = sg.nn.Sequential(dropping(), sg.nn.BatchNorm1d(1))
        x, y, train = training_ops(net)
        sess = sg.Session()
        sess.run(train, {x: ROWS})
        net.eval()
        z = net(x)
        for mode in (True, False):
            net.train(mode)
            sess.run([y, train], {x: ROWS})
            sess.run(z, {x: ROWS})
            sess.run([y, z], {x: ROWS})

    assert not caught(sg.ModeWarning, run)


def test_a_mode_that_is_put_back_or_changes_nothing_does_not_warn() -> None:
    def run() -> None:
        x, sess = sg.placeholder((2, 4)), sg.Session()
        net = dropping().eval()
        y = net(x)
        net.train()  # as a function that predicts puts it back
        sess.run(y, {x: ROWS})
        net = dropping().eval().train()
        y = net(x)
        net.eval()
        sess.run(y, {x: ROWS})
        plain = sg.nn.Sequential(sg.nn.Linear(4, 4), sg.nn.Dropout(0.0), sg.nn.LSTM(4, 4), sg.nn.ReLU())
        y = plain[3](plain[1](plain[0](x)))
        plain.eval()
        sess.run(y, {x: ROWS})
        frozen = sg.nn.Sequential(sg.nn.BatchNorm1d(4), sg.nn.Dropout(0.1))
        frozen[0].eval()
        sess.run(frozen(x), {x: ROWS})
        other = dropping()
        other(x)
        other.eval()
        sess.run(frozen(x), {x: ROWS})  # which reads nothing of the other

    assert not caught(sg.ModeWarning, run)


# -- gradients that do not know of a change ---------------------------------------------------------------------------


def trained() -> tuple[Tensor, Tensor, sg.Node]:
    """A variable, what is made of it, and an update of it."""
    w = sg.Variable([1.0, 2.0], name="w")
    h = w * 2.0
    return w, h, sg.optim.SGD(lr=0.5).minimize(sg.sum(h * h))


@pytest.mark.parametrize("call", ["run", "compile", "forward"])
def test_a_hook_after_minimize_warns_where_the_update_runs(call: str) -> None:
    _, h, train = trained()
    sess = sg.Session()
    (slope,) = sg.gradients(h * h, [h])

    def run() -> None:
        sess.run(train)
        h.register_hook(lambda grad: grad * 0)
        for _ in range(2):
            if call == "run":
                sess.run(train)  # unhooked
            elif call == "compile":
                sess.compile(train)()  # unhooked
            else:
                sess.forward(slope)  # unhooked

    (found,) = caught(sg.StaleGradientWarning, run)
    assert is_at(found, "# unhooked")
    text = str(found.message)
    assert "'multiply', declared at" in text
    assert "a hook was registered after gradients by it were declared at" in text
    assert ("minimize(sg.sum(h * h))" if call != "forward" else "sg.gradients(h * h") in text
    assert "Register hooks before sg.gradients or minimize, or declare them once more and run those" in text


def test_freezing_a_variable_after_minimize_warns_where_the_update_runs() -> None:
    w, _, train = trained()
    (found,) = caught(sg.StaleGradientWarning, lambda: (w.requires_grad_(False), sg.Session().run(train)))
    assert "'w', declared at" in str(found.message)
    assert "it was frozen after gradients by it were declared at" in str(found.message)


def test_changes_that_a_later_declaration_knows_do_not_warn() -> None:
    def run() -> None:
        w, h, train = trained()
        (dw,) = sg.gradients(h * h, [w])
        h.register_hook(lambda grad: grad * 0)
        again = sg.gradients(h * h, [w])
        sg.Session().run([dw, train, again])
        w, h, train = trained_of(w)
        h.register_hook(lambda grad: grad * 0)
        sess = sg.Session()
        sess.forward(y := sg.sum(h), {}).backward(y)
        sess.run(train)
        v = sg.Variable([1.0, 2.0])
        both = sg.optim.SGD(lr=0.5).minimize(sg.sum(v * w))
        w.requires_grad_(False)
        one = sg.optim.SGD(lr=0.5).minimize(sg.sum(v * w))
        sess.run(both)
        sess.run(one)

    def trained_of(w: Tensor) -> tuple[Tensor, Tensor, sg.Node]:
        h = w * 2.0
        return w, h, sg.optim.SGD(lr=0.5).minimize(sg.sum(h * h))

    assert not caught(sg.StaleGradientWarning, run)


def test_changes_that_are_taken_back_or_that_a_program_does_not_meet_do_not_warn() -> None:
    def run() -> None:
        w, h, train = trained()
        handle = h.register_hook(lambda grad: grad * 0)
        sg.Session().run(h)  # computes no gradient
        handle.remove()
        w.requires_grad_(False)
        sg.Session().run(sg.gradients(h, [w]))  # which is asked for
        w.requires_grad_(True)
        sg.Session().run(train)
        v = sg.Variable([1.0, 2.0])
        aside = sg.exp(v * w)
        dv, _ = sg.gradients(sg.sum(aside * h), [v, w])
        h.register_hook(lambda grad: grad * 0)
        sg.Session().run(dv)  # passes h no more than the forward does

    assert not caught(sg.StaleGradientWarning, run)


# -- growth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "allowed"), [("run", 3), ("forward", 3), ("compile", 10)])
def test_ops_declared_in_a_loop_of_runs_warn_when_they_have_grown_several_times(call: str, allowed: int) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    sess = sg.Session()

    def run(times: int) -> None:
        for number in range(times):
            y = x + float(number)  # the newest
            if call == "run":
                sess.run(y, {x: [0.0, 1.0]})  # again
            elif call == "compile":
                sess.compile(y, [x])  # again
            else:
                sess.forward(y, {x: [0.0, 1.0]})  # again

    assert not caught(sg.GrowthWarning, lambda: run(allowed))  # one growth less: the first run knows of none
    (found,) = caught(sg.GrowthWarning, lambda: run(allowed + 5))
    assert is_at(found, "# again")
    text = str(found.message)
    assert "y = x + float(number)  # the newest" in text
    assert "before the loop" in text
    assert "graph.finalize()" in text


def train_in_turn(models: int) -> None:
    """Train models of the same lines in one session, each for some steps."""
    x, sess = sg.placeholder((2, 4)), sg.Session()
    for _ in range(models):
        train = sg.optim.SGD(0.1).minimize(sg.sum(sg.nn.Linear(4, 1)(x)))
        for _ in range(3):
            sess.run(train, {x: ROWS})


def test_models_that_are_trained_in_turn_do_not_warn_of_growth_until_they_are_many() -> None:
    assert not caught(sg.GrowthWarning, lambda: train_in_turn(10))
    assert len(caught(sg.GrowthWarning, lambda: train_in_turn(12))) == 1


def test_tapes_that_are_run_again_do_not_warn_of_growth() -> None:
    def run() -> None:
        x, sess = sg.placeholder((2, 4)), sg.Session()
        for _ in range(5):
            loss = sg.sum(sg.nn.Linear(4, 1)(x))
            for _ in range(2):
                sess.forward(loss, {x: ROWS})

    assert not caught(sg.GrowthWarning, run)


@pytest.mark.parametrize("call", ["the last value", "an optimizer"])
def test_a_loop_that_declares_its_next_step_warns_of_growth(call: str) -> None:
    def run() -> None:
        w, sess = sg.Variable(np.ones(3, np.float32)), sg.Session()
        y = w * 1.0
        for _ in range(8):
            y = y + w if call == "the last value" else sg.optim.Adam(1e-3).minimize(sg.sum(w * w))  # type: ignore[assignment]
            sess.run(y)

    assert len(caught(sg.GrowthWarning, run)) == 1


def test_a_loop_over_other_operands_functions_or_lists_made_before_does_not_warn_of_growth() -> None:
    def run() -> None:
        weights, sess = [sg.Variable(np.ones(3, np.float32)) for _ in range(8)], sg.Session()
        for w in weights:
            sess.run(sg.sum(w**2))
        fetches = [[sg.sum(w), w * 2.0] for w in weights]
        for each in fetches:
            sess.run(each)
        for function in (lambda a: a, lambda a: a + 1, lambda a: a + 2, lambda a: a + 3, lambda a: a + 4):
            sess.run(sg.py_call(function, [weights[0]], [(sg.float32, (3,))]))

    assert not caught(sg.GrowthWarning, run)


def test_declaring_between_runs_does_not_warn_of_growth() -> None:
    x = sg.placeholder((2,))

    def show(sess: sg.Session, y: Tensor) -> None:
        sess.run(y, {x: [0.0, 1.0]})

    def run() -> None:
        sess = sg.Session()
        show(sess, x + 1)
        show(sess, x + 1)
        show(sess, x + 1)
        show(sess, x + 1)
        show(sess, x + 1)
        for size in range(1, 9):
            show(sess, sg.sum(sg.Variable(np.zeros((size, 2), np.float32)) + x))
        for _ in range(9):
            show(sg.Session(), x + 1)
        y = x * 2
        for size in (1, 2, 3, 4, 5, 6):
            sess.run([y] * size, {x: [0.0, 1.0]})

    assert not caught(sg.GrowthWarning, run)


# -- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "update"),
    [
        ("+", operator.iadd),
        ("-", operator.isub),
        ("*", operator.imul),
        ("/", operator.itruediv),
        ("//", operator.ifloordiv),
        ("%", operator.imod),
        ("**", operator.ipow),
        ("@", operator.imatmul),
    ],
)
def test_an_augmented_assignment_to_a_variable_warns(symbol: str, update: Callable[[Any, Any], Any]) -> None:
    w = sg.Variable([1.0, 2.0])
    results = []
    (found,) = caught(sg.UpdateWarning, lambda: results.append(update(w, [2.0, 2.0])))
    assert results[0] is not w
    assert f"'{symbol}=' makes a new tensor and leaves the variable w as it is" in str(found.message)
    assert f"sg.assign(w, w {symbol} …)" in str(found.message)


def test_updates_in_a_loop_over_parameters_warn_once_at_their_line() -> None:
    net = sg.nn.Sequential(sg.nn.Linear(4, 3), sg.nn.Linear(3, 1))
    loss = sg.sum(net(sg.placeholder((2, 4))))
    gradients = sg.gradients(loss, net.parameters())

    def run() -> None:
        with sg.no_grad():
            for p, g in zip(net.parameters(), gradients, strict=True):
                p -= 0.1 * g  # the update

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run()
    assert [w.category for w in found] == [sg.UpdateWarning]
    assert is_at(found[0], "# the update")


def test_augmented_assignments_to_other_tensors_do_not_warn() -> None:
    def run() -> None:
        w = sg.Variable([1.0, 2.0])
        y = w * 2
        y += w
        y -= 1.0
        n = np.ones(2, np.float32)
        n = n + w  # type: ignore[assignment]
        total = 0.0
        total += sg.sum(w)  # type: ignore[assignment]
        total *= w  # type: ignore[assignment]

    assert not caught(sg.UpdateWarning, run)


# -- layers -----------------------------------------------------------------------------------------------------------


def test_a_layer_made_again_for_evaluation_warns() -> None:
    def net(x: Tensor) -> Tensor:
        h = sg.nn.relu(sg.nn.Linear(4, 3)(x))
        return sg.nn.Linear(3, 1)(h)  # made here

    def run() -> None:
        x = sg.placeholder((2, 4))
        train = sg.optim.SGD(0.1).minimize(sg.sum(net(x)))
        y = net(x)
        sess = sg.Session()
        sess.run(train, {x: ROWS})
        sess.run(y, {x: ROWS})  # the other weights

    found = caught(sg.DuplicateLayerWarning, run)
    assert len(found) == 2  # one for each layer
    assert all(is_at(w, "# the other weights") for w in found)
    assert any("# made here" in str(w.message) and "call it twice" in str(w.message) for w in found)


def test_layers_that_are_meant_to_be_several_do_not_warn() -> None:
    def tower(x: Tensor) -> Tensor:
        return sg.nn.Linear(4, 4)(x)

    def run() -> None:
        x, sess = sg.placeholder((2, 4)), sg.Session()
        h = x
        for _ in range(3):
            h = tower(h)
        heads = [sg.nn.Linear(4, 1)(tower(tower(h))) for _ in range(2)]
        train = sg.optim.SGD(0.1).minimize(sg.sum(sg.concat(heads)))
        sess.run(train, {x: ROWS})
        for head in heads:
            sess.run(head, {x: ROWS})
        first, second = tower(x), tower(x)  # trained each by its own op
        for y in (first, second):
            sess.run(sg.optim.SGD(0.1).minimize(sg.sum(y)), {x: ROWS})
        sess.run(second, {x: ROWS})
        layer = sg.nn.Linear(4, 1)
        target = copy.deepcopy(layer)
        sess.run(sg.optim.SGD(0.1).minimize(sg.sum(layer(x))), {x: ROWS})
        target.load_state_dict(sess, layer.state_dict(sess))
        sess.run(target(x), {x: ROWS})

    assert not caught(sg.DuplicateLayerWarning, run)


class Net(sg.nn.Module):
    def __init__(self) -> None:
        self.a, self.b = sg.nn.Linear(4, 4), sg.nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(sg.nn.relu(self.a(x)))


def run_cell(code: str, names: dict[str, object], file: str = "<kernel>/17.py") -> None:
    exec(compile(code, file, "exec"), names)


CELLS = {
    "a module": "net = Net()\ntrain = sg.optim.Adam().minimize(sg.sum(net(x)))\n",
    "a module of a function": "def f(): return Net()\nnet = f()\ntrain = sg.optim.SGD().minimize(sg.sum(net(x)))\n",
    "a variable": "w = sg.Variable([1.0])\ntrain = sg.optim.SGD().minimize(sg.sum(w * x))\n",
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_cell_that_ran_again_in_the_same_graph_warns(kind: str, begins_anew: bool) -> None:
    names: dict[str, object] = {"sg": sg, "Net": Net, "x": sg.placeholder((2, 4))}
    again = "x = sg.placeholder((2, 4))\n" if begins_anew else ""

    def run() -> None:
        for _ in range(2):
            with sg.Graph() if begins_anew else sg.get_default_graph():
                run_cell(again + CELLS[kind] + "step = sg.Session().compile(train, x)\n", names)

    found = caught(sg.DuplicateLayerWarning, run)
    assert len(found) == (not begins_anew)
    for warning in found:
        assert warning.filename == "<kernel>/17.py"
        assert "the same line declared it before" in str(warning.message)
        assert "begin the cell that declares with sg.reset_default_graph()" in str(warning.message)
        first, second = ("'variable'", "'variable_1'") if kind == "a variable" else ("'a.weight'", "'net.a.weight'")
        assert first in str(warning.message)
        assert second in str(warning.message)


def test_a_net_that_a_loop_makes_anew_after_each_session_warns() -> None:
    x = sg.placeholder((2, 4))

    def declare() -> tuple[Net, sg.Node]:
        net = Net()
        return net, sg.optim.Adam().minimize(sg.sum(net(x)))  # names are settled while the first is still there

    def run() -> None:
        for _ in range(2):
            net, train = declare()
            sg.Session().run(train, {x: ROWS})  # of the second
            assert net.a.weight.graph is x.graph

    found = caught(sg.DuplicateLayerWarning, run)
    assert len(found) == 1
    assert is_at(found[0], "# of the second")
    assert "in a loop, give each a graph" in str(found[0].message)


def test_nets_that_are_meant_to_be_several_are_no_repetition() -> None:
    x = sg.placeholder((2, 4))

    def make() -> Net:
        return Net()

    def run() -> None:
        nets = [Net() for _ in range(3)]
        trains = [sg.optim.SGD(0.1).minimize(sg.sum(net(x))) for net in nets]
        sg.Session().run(trains, {x: ROWS})
        for _ in range(3):
            nets.append(make())  # all are held, and trained one after the other
            sg.Session().run(sg.optim.SGD(0.1).minimize(sg.sum(nets[-1](x))), {x: ROWS})
        for _ in range(2):  # an ensemble, of which the training ops alone are held
            trains.append(sg.optim.SGD(0.1).minimize(sg.sum(Net()(x))))
        sg.Session().run(trains, {x: ROWS})
        student = make()
        sg.Session().run(sg.optim.SGD(0.1).minimize(sg.sum(student(x))), {x: ROWS})
        teacher = make()
        sg.Session().run(sg.optim.SGD(0.1).minimize(sg.sum(teacher(x))), {x: ROWS})

    assert not caught(sg.DuplicateLayerWarning, run)


def test_cells_of_one_notebook_may_hold_equal_nets() -> None:
    names: dict[str, object] = {"sg": sg, "Net": Net, "x": sg.placeholder((2, 4))}

    def run() -> None:
        for name in ("student", "teacher"):
            run_cell(f"{name} = Net()\nsg.Session().run(sg.sum({name}.a.weight))\n", names, f"<kernel>/{name}.py")

    assert not caught(sg.DuplicateLayerWarning, run)
