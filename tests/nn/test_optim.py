"""Learning rates that follow the step, groups of variables with options of their own, averages of variables.

Values of schedules and groups are what ``torch.optim`` 2.13 computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.optim import schedules

COURSES: dict[str, tuple[schedules.Schedule, list[float]]] = {
    "exponential": (schedules.exponential(0.5, 0.8), [0.5, 0.4, 0.32, 0.256, 0.2048, 0.16384]),
    "step": (schedules.step(0.5, 3, 0.2), [0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.02, 0.02]),
    "multistep": (
        schedules.multistep(0.5, [2, 3, 6], 0.5), [0.5, 0.5, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625],
    ),
    "cosine": (
        schedules.cosine(0.5, 6, 0.125), [0.5, 0.47487976321, 0.40625, 0.3125, 0.21875, 0.15012023679, 0.125],
    ),
    "linear": (schedules.linear(0.125, 0.5, 5), [0.125, 0.2, 0.275, 0.35, 0.425, 0.5, 0.5, 0.5]),
    "polynomial": (
        schedules.polynomial(0.5, 5, 1.5),
        [0.5, 0.3577708764, 0.232379000772, 0.126491106407, 0.04472135955, 0.0, 0.0, 0.0],
    ),
    "one_cycle": (
        schedules.one_cycle(0.5, 10),
        [0.02, 0.26, 0.5, 0.475242316007, 0.405872826975, 0.305631010968, 0.194370989032, 0.0941291730251,
         0.0247596839933, 2e-06],
    ),
    "one_cycle in lines": (
        schedules.one_cycle(0.5, 10, 0.25, "linear", 10.0, 100.0),
        [0.05, 0.35, 0.4667, 0.4001, 0.3335, 0.2669, 0.2003, 0.1337, 0.0671, 0.0005],
    ),
    "one_cycle in three phases": (
        schedules.one_cycle(0.5, 10, three_phase=True),
        [0.02, 0.26, 0.5, 0.26, 0.02, 0.0180903609268, 0.0130908609268, 0.00691113907324, 0.00191163907324, 2e-06],
    ),
    "sequential": (
        schedules.sequential([0.5, schedules.exponential(0.5, 0.5), schedules.step(0.5, 2, 0.1)], [2, 5]),
        [0.5, 0.5, 0.5, 0.25, 0.125, 0.5, 0.5, 0.05, 0.05, 0.005],
    ),
    "warmup": (
        schedules.warmup(schedules.cosine(0.5, 4), 4, start=0.05),
        [0.05, 0.1625, 0.275, 0.3875, 0.5, 0.426776695297, 0.25, 0.0732233047034, 0.0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COURSES)
def test_a_schedule_has_the_course_of_pytorch_s(g: sg.Graph, name: str) -> None:
    schedule, expected = COURSES[name]
    course = sg.Session(g).run(schedule(sg.arange(len(expected))))
    assert course.dtype == np.float64
    np.testing.assert_allclose(course, expected, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(
    ("schedule", "last"),
    [
        (schedules.cosine(0.5, 6, 0.125), 0.125),
        (schedules.one_cycle(0.5, 10), 2e-6),
        (schedules.warmup(0.5, 4), 0.5),
    ],
)
def test_a_schedule_that_is_over_stays_where_it_is(g: sg.Graph, schedule: schedules.Schedule, last: float) -> None:
    course = sg.Session(g).run(schedule(sg.constant(np.array([12.0, 1e6]))))
    np.testing.assert_allclose(course, last, rtol=1e-12)


REFUSED: list[Callable[[], object]] = [
    lambda: schedules.constant(-1.0),
    lambda: schedules.cosine(0.1, 0),
    lambda: schedules.linear(0.1, 0.2, 1.5),  # type: ignore[arg-type]
    lambda: schedules.multistep(0.1, [3, 2]),
    lambda: schedules.sequential([0.1, 0.2], []),
    lambda: schedules.one_cycle(0.1, 10, anneal_strategy="cosine"),
    lambda: schedules.one_cycle(0.1, 3),
    lambda: schedules.warmup("fast", 3),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", REFUSED)
def test_arguments_that_schedules_refuse(make: Callable[[], object]) -> None:
    with pytest.raises(sg.GraphError, match=r"schedules\."):
        make()


# -- optimizers that follow one -------------------------------------------------------------------------------------


def test_the_learning_rate_follows_the_runs_and_compiles_nothing(g: sg.Graph, backend: str) -> None:
    w = sg.Variable(np.zeros(2), name="w")
    opt = sg.optim.SGD(lr=schedules.exponential(1.0, 0.5))
    train = opt.minimize(-sg.sum(w))
    sess = sg.Session(g)
    rates = [float(sess.run([opt.lr, train])[0]) for _ in range(4)]
    assert rates == [1.0, 0.5, 0.25, 0.125]
    assert sess.get(w).tolist() == [1.875, 1.875]
    assert sess.compile_count == 1
    assert (sess.get(opt.step_count), opt.step_count.name) == (4, "sgd/step")
    assert set(g.variables) == {"w", "sgd/step"}
    sess.set(opt.step_count, 0)
    assert sess.run(opt.lr) == 1.0


@pytest.mark.filterwarnings("ignore::staticgrad.PromotionWarning")
def test_a_function_of_the_user_s_is_a_schedule(g: sg.Graph) -> None:
    w, boost = sg.Variable(np.zeros(2), name="w"), sg.Variable(1.0, trainable=False)
    seen: list[sg.Tensor] = []

    def rate(step: sg.Tensor) -> sg.Tensor:
        seen.append(step)
        return boost / sg.sqrt(step + 1)

    opt = sg.optim.Adam(lr=rate)
    train = opt.minimize(sg.sum(w))
    sess = sg.Session(g)
    rates = [float(sess.run([opt.lr, train])[0]) for _ in range(2)]
    sess.set(boost, 10.0)
    rates.append(float(sess.run(opt.lr)))
    np.testing.assert_allclose(rates, [1, 0.5**0.5, 10 / 3**0.5], rtol=1e-7)
    assert [(x.dtype, x.shape) for x in seen] == [(np.float64, ())]
    constant = sg.optim.SGD(lr=lambda step: 0.25)
    assert sg.Session(g).run(constant.lr) == 0.25


def test_the_learning_rate_of_a_schedule_is_fed_and_not_set(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros(2), name="w")
    opt = sg.optim.SGD(lr=schedules.constant(1.0))
    train = opt.minimize(sg.sum(w))
    sess = sg.Session(g)
    with pytest.raises(sg.FetchError, match=r"'sgd/lr'.* is no variable .* feed it for one run"):
        sess.set(opt.lr, 0.1)
    sess.run(train, {opt.lr: 0.5})
    assert sess.get(w).tolist() == [-0.5, -0.5]
    with pytest.raises(sg.GraphError, match="no learning rate is a schedule"):
        _ = sg.optim.SGD(0.1).step_count


def test_what_is_no_schedule_is_refused(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros(2), name="w")
    given: list[Callable[[sg.Tensor], Any]] = [lambda step: w, lambda step: None, lambda step: [0.1]]
    for rate in given:
        with pytest.raises(sg.GraphError, match="sgd: the schedule of the learning rate: expected it to give a scalar"):
            sg.optim.SGD(lr=rate).minimize(sg.sum(w))
    with pytest.raises(sg.GraphError, match="a tensor, or a schedule"):
        sg.optim.SGD(lr="fast")  # type: ignore[arg-type]


def test_all_updates_of_an_optimizer_in_a_run_count_once(g: sg.Graph) -> None:
    w, b = (sg.Variable(np.zeros(2), name=name) for name in "wb")
    opt = sg.optim.SGD(lr=schedules.exponential(1.0, 0.5))
    first, second = opt.minimize(-sg.sum(w)), opt.minimize(-sg.sum(b))
    with sg.control_dependencies([first]), sg.no_grad():
        again = opt.apply_gradients([(-sg.ones(2, dtype=sg.float64), w)])
    sess = sg.Session(g)
    sess.run([first, second])
    assert (sess.get(opt.step_count), sess.get(w)[0], sess.get(b)[0]) == (1, 1.0, 1.0)
    sess.run(second)
    assert (sess.get(opt.step_count), sess.get(w)[0], sess.get(b)[0]) == (2, 1.0, 1.5)
    sess.run(again)  # after the first, both with the rate of this run
    assert (sess.get(opt.step_count), sess.get(w)[0]) == (3, 1.5)


def test_accumulated_gradients_count_by_steps_not_by_backwards(g: sg.Graph) -> None:
    w, other = (sg.Variable(np.zeros(2), name=name) for name in ("w", "other"))
    opt = sg.optim.SGD(lr=schedules.exponential(1.0, 0.5))
    loss, step = -sg.sum(w), opt.step([w, other])
    sess = sg.Session(g)
    for _ in range(2):
        for _ in range(3):
            sess.forward(loss).backward(loss)
        sess.run(step)
        sess.zero_grad()
    assert (sess.get(opt.step_count), sess.get(w)[0], sess.get(other)[0]) == (2, 4.5, 0.0)


def test_a_schedule_advances_once_for_the_steps_inside_a_backward(g: sg.Graph) -> None:
    w, v = (sg.Variable(np.zeros(2), name=name) for name in "wv")
    opt = sg.optim.SGD(lr=schedules.exponential(1.0, 0.5))

    def step(leaf: sg.Tensor) -> None:
        opt.step([leaf])

    loss = -sg.sum(w + v)
    for x in (w, v):
        x.register_post_accumulate_grad_hook(step)
    sess = sg.Session(g)
    for _ in range(2):
        sess.forward(loss).backward(loss)
        sess.zero_grad()
    assert (sess.get(opt.step_count), sess.get(w)[0], sess.get(v)[0]) == (2, 1.5, 1.5)
    first, second = sess.forward(loss), sess.forward(loss)
    first.backward(loss, inputs=[w])
    sess.zero_grad()
    second.backward(loss)  # with the rate of this run, not of its forward's
    assert (sess.get(opt.step_count), sess.get(w)[0], sess.get(v)[0]) == (4, 1.875, 1.625)


def test_training_with_a_schedule_resumes_bit_for_bit(tmp_path: Path) -> None:
    def training() -> tuple[sg.Session, sg.Node]:
        with sg.Graph() as graph:
            w = sg.Variable(sg.init.normal(), shape=(5,), name="w")
            opt = sg.optim.Adam(
                lr=schedules.warmup(schedules.cosine(0.1, 20), 3),
                groups=[{"params": sg.Variable(np.ones(2, np.float32), name="b"), "lr": schedules.step(0.1, 2)}],
            )
            train = opt.minimize(sg.sum(w**4) + sg.sum(graph.variables["b"] ** 2))
        return sg.Session(graph), train

    (whole, train), (cut, same) = training(), training()
    for _ in range(7):
        whole.run(train)
    for _ in range(4):
        cut.run(same)
    cut.save(tmp_path / "state")
    resumed, same = training()
    resumed.restore(tmp_path / "state")
    for _ in range(3):
        resumed.run(same)
    for name in ("w", "b", "adam/step"):
        np.testing.assert_array_equal(
            resumed.get(resumed.graph.variables[name]), whole.get(whole.graph.variables[name])
        )


def test_two_optimizers_with_schedules_keep_two_counts(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros(2), name="w")
    first, second = (sg.optim.Adam(lr=schedules.constant(0.1)) for _ in range(2))
    trains = [first.minimize(sg.sum(w)), second.minimize(sg.sum(w * 2))]
    assert {"adam/step", "adam_1/step", "w/adam/step", "w/adam_1/step"} < set(g.variables)
    sess = sg.Session(g)
    for train in (*trains, trains[0]):
        sess.run(train)
    assert (sess.get(first.step_count), sess.get(second.step_count)) == (2, 1)


# -- groups ---------------------------------------------------------------------------------------------------------

START = {"w": [1.0, -2.0], "b": [0.5, 0.25], "c": [-1.0, 3.0]}
GRADIENTS = {
    "w": [[1.0, -2.0], [0.5, 0.25], [-1.0, 3.0]],
    "b": [[0.5, 1.0], [-2.0, 0.1], [1.0, 1.0]],
    "c": [[2.0, 2.0], [1.0, -1.0], [0.0, 3.0]],
}


def adamw(b: sg.Tensor, c: sg.Tensor) -> sg.optim.Optimizer:
    return sg.optim.AdamW(
        schedules.exponential(0.1, 0.5),
        weight_decay=0.1,
        groups=[{"params": [b], "weight_decay": 0.0}, {"params": c, "lr": 0.01, "betas": (0.5, 0.9)}],
    )


def sgd(b: sg.Tensor, c: sg.Tensor) -> sg.optim.Optimizer:
    return sg.optim.SGD(0.1, 0.9, groups=[{"params": [b], "momentum": 0.0}, {"params": iter([c]), "nesterov": True}])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (adamw, {"w": [0.834074090343898, -1.84446264687437], "b": [0.43072951808809, 0.091546007907484],
                 "c": [-1.02016680741943, 2.9732437800065]}),
        (sgd, {"w": [0.734, -1.8055], "b": [0.55, 0.04], "c": [-1.9588, 2.0132]}),
    ],
)  # fmt: skip
def test_groups_have_options_of_their_own(g: sg.Graph, make: Any, expected: dict[str, list[float]]) -> None:
    variables = {name: sg.Variable(np.array(value), name=name) for name, value in START.items()}
    feeds = {name: sg.placeholder((2,), sg.float64) for name in START}
    opt = make(variables["b"], variables["c"])
    train = opt.apply_gradients([(feeds[name], variables[name]) for name in START])
    sess = sg.Session(g)
    for turn in range(3):
        sess.run(train, {feeds[name]: np.array(GRADIENTS[name][turn]) for name in START})
    for name, value in expected.items():
        np.testing.assert_allclose(sess.get(variables[name]), value, rtol=1e-9, err_msg=name)


def test_the_learning_rate_of_a_group_is_state_of_its_own(g: sg.Graph) -> None:
    w, b, c = (sg.Variable(np.zeros(2), name=name) for name in "wbc")
    opt = sg.optim.SGD(1.0, groups=[{"params": [b], "lr": 0.5}, {"params": [c], "momentum": 0.5}])
    train = opt.minimize(-sg.sum(w + b + c))
    assert opt.groups[1].lr is opt.lr
    assert {"sgd/lr", "sgd/groups/0/lr", "c/sgd/momentum_buffer"} == set(g.variables) - {"w", "b", "c"}
    assert [group.params for group in opt.groups] == [(b,), (c,)]
    sess = sg.Session(g)
    sess.run(train)
    sess.set(opt.groups[0].lr, 2.0)
    sess.set(opt.lr, 0.0)
    sess.run(train)
    assert [sess.get(x)[0] for x in (w, b, c)] == [1.0, 2.5, 1.0]
    assert sess.compile_count == 1


def test_a_group_may_have_a_tensor_or_a_schedule_as_learning_rate(g: sg.Graph) -> None:
    w, b = (sg.Variable(np.zeros(2), name=name) for name in "wb")
    rate = sg.placeholder((), sg.float64)
    opt = sg.optim.SGD(rate, groups=[{"params": [b], "lr": schedules.exponential(1.0, 0.5)}])
    train = opt.minimize(-sg.sum(w + b))
    sess = sg.Session(g)
    for _ in range(2):
        sess.run(train, {rate: 0.25})
    assert (sess.get(w)[0], sess.get(b)[0], sess.get(opt.step_count)) == (0.5, 1.5, 2)


def test_what_groups_refuse(g: sg.Graph) -> None:
    w, x = sg.Variable(np.zeros(2), name="w"), sg.placeholder((2,), name="x")
    wrong: list[tuple[list[Any], str]] = [
        ([{"params": [w]}, {"params": [w]}], r"adam: groups\[1\]: variable 'w' is in a group already"),
        ([{"params": [w], "momentum": 0.9}], r"groups\[0\]: option='momentum': expected one of lr, betas, eps"),
        ([{"params": [x]}], r"groups\[0\]: params are variables: <tensor 'x' float32\[2\]> is none"),
        ([{"params": [w], "betas": 0.9}], "betas=0.9"),
        ([{"weight_decay": 0.1}], r'groups\[0\]: expected a dict with "params"'),
        ([[w]], r'groups\[0\]: expected a dict with "params"'),
        ([{"params": 3}], "expected variables as params"),
        ([{"params": [w], "lr": "fast"}], "lr='fast'"),
    ]
    for groups, words in wrong:
        with pytest.raises(sg.GraphError, match=words):
            sg.optim.Adam(0.1, groups=groups)


# -- averages -------------------------------------------------------------------------------------------------------


def averaged(g: sg.Graph, ema: sg.optim.EMA) -> tuple[sg.Tensor, sg.Node]:
    """A variable that a step makes one larger, and the op of step and average."""
    w = sg.Variable(np.zeros(2), name="w")
    train = sg.optim.SGD(1.0).minimize(-sg.sum(w))
    with sg.control_dependencies([train]):
        return w, ema.update()


def test_averages_follow_the_new_values_of_the_variables(g: sg.Graph, backend: str) -> None:
    ema = sg.optim.EMA(0.9)
    w, update = averaged(g, ema)
    sess = sg.Session(g)
    expected = 0.0
    for turn in range(1, 5):
        sess.run(update)
        expected = 1.0 if turn == 1 else 0.9 * expected + 0.1 * turn
        np.testing.assert_allclose(sess.get(ema[w]), expected, rtol=1e-14)
    assert sess.get(w)[0] == 4
    assert (ema[w].name, ema.average(w) is ema[w], ema.variables) == ("w/ema", True, [w])
    assert {"w/ema", "w/ema/step"} < set(g.variables)


def test_averages_of_a_short_training_have_a_smaller_decay(g: sg.Graph) -> None:
    ema = sg.optim.EMA(0.25, warmup=True)
    w, update = averaged(g, ema)
    sess = sg.Session(g)
    expected = 0.0
    for turn in range(1, 6):
        sess.run(update)
        decay = 0.0 if turn == 1 else min(0.25, turn / (9 + turn))
        expected = decay * expected + (1 - decay) * turn
        np.testing.assert_allclose(sess.get(ema[w]), expected, rtol=1e-14)


def test_averages_are_swapped_in_and_out_copied_and_fed(g: sg.Graph) -> None:
    ema = sg.optim.EMA(0.5)
    w, update = averaged(g, ema)
    swap, copy, loss = ema.swap(), ema.copy_to(), sg.sum(w)
    sess = sg.Session(g)
    for op in (swap, copy):  # nothing is averaged yet
        sess.run(op)
        assert sess.run(loss) == 0
    for _ in range(3):
        sess.run(update)
    assert sess.run(loss, {x: sess.get(ema[x]) for x in ema.variables}) == 4.5
    assert sess.run(loss) == 6
    sess.run(swap)
    assert (sess.run(loss), sess.get(ema[w])[0]) == (4.5, 3.0)
    sess.run(swap)
    assert (sess.run(loss), sess.get(ema[w])[0]) == (6, 2.25)
    sess.run(copy)
    assert (sess.run(loss), sess.get(ema[w])[0]) == (4.5, 2.25)


def test_swapping_averages_makes_no_step(g: sg.Graph) -> None:
    x = sg.placeholder((2,), name="x")
    w = sg.Variable(np.zeros(2, np.float32), name="w")
    train = sg.optim.SGD(1.0, momentum=0.5).minimize(sg.sum(w * x))
    ema = sg.optim.EMA(0.5)
    with sg.control_dependencies([train]):
        update = ema.update()
    swap = ema.swap()
    sess = sg.Session(g)
    sess.run(update, {x: [1.0, 1.0]})
    before = {key: sess.get(v) for key, v in g.variables.items()}
    for _ in range(2):
        sess.run(swap)  # without x
    assert {key: sess.get(v).tolist() for key, v in g.variables.items()} == {k: v.tolist() for k, v in before.items()}


def test_averages_are_saved_with_the_session(g: sg.Graph, tmp_path: Path) -> None:
    ema = sg.optim.EMA(0.5)
    w, update = averaged(g, ema)
    first, second = sg.Session(g), sg.Session(g)
    first.run(update)
    first.save(tmp_path / "state")
    second.restore(tmp_path / "state")
    for sess in (first, second):
        sess.run(update)
    assert first.get(ema[w]).tolist() == second.get(ema[w]).tolist() == [1.5, 1.5]


def test_averages_of_chosen_variables_and_of_short_floats(g: sg.Graph) -> None:
    w = sg.Variable(np.ones(2), name="w", dtype=sg.bfloat16)
    mean = sg.Variable(np.ones(2), name="mean", trainable=False)
    first, second = sg.optim.EMA(0.5), sg.optim.EMA(0.5)
    updates = [first.update([w]), second.update([w, mean])]
    assert {"w/ema", "w/ema_1", "mean/ema_1"} < set(g.variables)
    assert (first[w].dtype, first.variables, second.variables) == (sg.float32, [w], [w, mean])
    sess = sg.Session(g)
    sess.run(updates)
    sess.run(second.copy_to())
    assert sess.get(w).tolist() == [1, 1]
    with pytest.raises(sg.GraphError, match=r"'w' is float32 and would be rounded to bfloat16"):
        second.swap()


def test_what_averages_refuse(g: sg.Graph) -> None:
    w, count = sg.Variable(np.ones(2), name="w"), sg.Variable(0, name="count")
    ema = sg.optim.EMA()
    for wrong, words in [
        (lambda: sg.optim.EMA(1.0), "decay=1.0"),
        (lambda: sg.optim.EMA(-0.1), "EMA: decay"),
        (lambda: ema[w], "declare update"),
        (ema.swap, "declare update"),
        (lambda: ema.update([]), "no variable to average"),
        (lambda: ema.update([count]), "'count' is int64"),
        (lambda: ema.update([w * 2]), "EMA averages variables: .* is none"),
    ]:
        with pytest.raises(sg.GraphError, match=words):
            wrong()  # type: ignore[no-untyped-call]


def test_a_list_of_variables_that_the_loss_does_not_depend_on_is_refused() -> None:
    """The mistake of adversarial nets: each loss with the other net's variables would train nothing, silently."""
    with sg.Graph():
        a, b = sg.nn.Linear(2, 2), sg.nn.Linear(2, 2)
        loss = sg.mean(a(sg.ones((3, 2))) ** 2)
        with pytest.raises(sg.GraphError, match=r"depends on none of the variables that it shall update"):
            sg.optim.SGD(lr=0.1).minimize(loss, var_list=b.parameters())
        sg.optim.SGD(lr=0.1).minimize(loss, var_list=[*a.parameters(), *b.parameters()])
