"""L-BFGS as an optimizer: a run makes several iterations on one loss, which is evaluated at other points in a loop of
the program.

Input: a loss, variables. Output: an op that searches and updates. The loss's value and gradient are declared once;
``compiler.autodiff.substitution`` has them at other values of the variables. In addition to the learning rate there is
state:

    <optimizer>/iterations            how many have been made in all runs
    <var>/<optimizer>/steps           the last steps, ``history_size`` rows of the variable's shape, the newest first
    <var>/<optimizer>/changes         the changes of the gradient along them
    <var>/<optimizer>/last_step       the last step and the gradient before it: a pair, once the next gradient is known
    <var>/<optimizer>/last_gradient
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NoReturn

import numpy as np

from staticgrad.base.boundary import boundary
from staticgrad.base.collection import importing
from staticgrad.base.errors import GraphError
from staticgrad.base.types import computed, int64, number
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import no_grad
from staticgrad.nn import initializers as init
from staticgrad.optim.arguments import GradAndVar, LearningRate, Variables, check
from staticgrad.optim.base import Optimizer
from staticgrad.optim.gradients import gradients_of
from staticgrad.optim.quasi_newton import (
    Pairs,
    State,
    Vector,
    choose,
    dot,
    first_step,
    largest,
    line_search,
    minus,
    plus,
    times,
)
from staticgrad.optim.state import as_op, assign

LEAST_CURVATURE = 1e-10  # of a pair that is remembered, as in PyTorch


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal 1989) for training on all of the data: a run makes up to ``max_iter`` iterations.

    θ ← θ + t·d along d = -H·g, where H is the inverse Hessian as far as the last ``history_size`` steps and changes of
    the gradient tell. An iteration evaluates the loss and its gradient at the new point, or at several in a line
    search; all of them, and the search, are in the program. Random numbers of the loss are drawn once for a run, and
    what else it prints or writes (such as running statistics) belongs to its value at the start of the run, which is
    what is fetched as the loss. The state goes on from run to run.

    Args:
        lr: t without a line search, and where the line search begins: a number, a tensor or a schedule. The very first
            step is shorter, by the gradient's sum of magnitudes if that is above 1.
        max_iter: iterations of a run at most.
        max_eval: evaluations of a run at most; default: 1.25 · max_iter.
        tolerance_grad: a run ends where no element of the gradient is larger.
        tolerance_change: it ends where no element of a step is larger, or the loss changes by less.
        history_size: pairs of steps and changes of the gradient that are kept.
        line_search_fn: ``"strong_wolfe"``: t fulfils the strong Wolfe conditions (1e-4, 0.9), by the line search of
            ``sg.minimize``; None: t is lr.

    Raises:
        GraphError: an argument that is out of its range.

    Example:
        >>> w = sg.Variable(np.array([-1.2, 1.0]))
        >>> loss = 100 * (w[1] - w[0] ** 2) ** 2 + (1 - w[0]) ** 2
        >>> train = sg.optim.LBFGS(line_search_fn="strong_wolfe").minimize(loss)
        >>> sess = sg.Session()
        >>> losses = [float(sess.run([loss, train])[0]) for _ in range(3)]
        >>> losses[0] > losses[1] > losses[2]
        True
        >>> sess.get(w).round(3)
        array([1., 1.])
    """

    name = "lbfgs"

    def __init__(
        self,
        lr: LearningRate = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: Literal["strong_wolfe"] | None = None,
    ) -> None:
        super().__init__(lr)
        for name, value in (("max_iter", max_iter), ("history_size", history_size), ("max_eval", max_eval)):
            is_count = isinstance(value, int | np.integer) and value >= 1
            check(is_count or (value is None and name == "max_eval"), self.name, name, value, "an int of at least 1")
        known = line_search_fn in (None, "strong_wolfe")
        check(known, self.name, "line_search_fn", line_search_fn, "'strong_wolfe' or None")
        self.max_iter, self.history_size, self.line_search_fn = int(max_iter), int(history_size), line_search_fn
        self.max_eval = self.max_iter * 5 // 4 if max_eval is None else int(max_eval)
        self.tolerance_grad = number(tolerance_grad, f"{self.name}: tolerance_grad", 0.0)
        self.tolerance_change = number(tolerance_change, f"{self.name}: tolerance_change", 0.0)
        self._iterations: Tensor | None = None

    @boundary
    def minimize(
        self,
        loss: Tensor,
        var_list: Variables | None = None,
        *,
        distributed: bool = False,
        buckets: int = 1,
        shards: int | None = None,
    ) -> Node:
        """An op that makes up to ``max_iter`` iterations on ``loss``.

        Args:
            loss: a floating tensor of shape ().
            var_list: what to update, as for other optimizers.
            distributed: only False: a line search would need the loss of all ranks at each of its steps.
            buckets: as for other optimizers, only with ``distributed``.
            shards: likewise.

        Raises:
            GraphError: there is nothing to update, the loss is no number, what lies between the variables and the loss
                writes a variable, or ``distributed``.

        Example:
            >>> x, t = sg.placeholder((None,), sg.float64), sg.placeholder((None,), sg.float64)
            >>> slope, offset = sg.Variable(np.float64(0)), sg.Variable(np.float64(0))
            >>> loss = sg.mean((slope * x + offset - t) ** 2)
            >>> train = sg.optim.LBFGS(line_search_fn="strong_wolfe").minimize(loss)
            >>> sess = sg.Session()
            >>> sess.run(train, {x: [0.0, 1.0, 2.0], t: [1.0, 3.0, 5.0]})
            >>> round(float(sess.get(slope)), 3), round(float(sess.get(offset)), 3)
            (2.0, 1.0)
        """
        check(
            not distributed, f"{self.name}: minimize", "distributed", distributed, "False: a line search reads the loss"
        )
        pairs = [(g, x) for g, x in gradients_of(self.name, loss, var_list, False, buckets, shards) if g is not None]
        if loss.shape != ():
            raise GraphError(f"{self.name}: expected a loss of one number, actual {loss.type}", source=loss.source)
        with loss.graph, no_grad():
            updates = self._search(loss, [g for g, _ in pairs], [x for _, x in pairs])
            return as_op(o.group(*updates, *self._state.counting(get_default_graph())))

    @boundary
    def apply_gradients(self, grads_and_vars: Iterable[GradAndVar]) -> NoReturn:
        """Refused: a gradient at one point is not enough.

        Raises:
            GraphError: always.

        Example:
            >>> sg.optim.LBFGS().apply_gradients([])
            Traceback (most recent call last):
                ...
            staticgrad.errors.GraphError: lbfgs: gradients at one point are not enough...
        """
        raise self._needs_loss()

    @boundary
    def step(self, var_list: Variables | None = None) -> NoReturn:
        """Refused: accumulated gradients are those at one point.

        Raises:
            GraphError: always.

        Example:
            >>> sg.optim.LBFGS().step()
            Traceback (most recent call last):
                ...
            staticgrad.errors.GraphError: lbfgs: gradients at one point are not enough...
        """
        raise self._needs_loss()

    def _needs_loss(self) -> GraphError:
        return GraphError(f"{self.name}: gradients at one point are not enough: it takes a loss, by minimize(loss)")

    def _search(self, loss: Tensor, slopes: list[Tensor], variables: list[Tensor]) -> list[Node]:
        """The loop of a run, and the assignments of what it ends with."""
        with importing():
            from staticgrad.compiler.autodiff.substitution import substituted

        dtype = np.result_type(*[computed(x.dtype) for x in variables])

        def vector(xs: Iterable[Tensor]) -> Vector:
            return tuple(o.astype(x, dtype) for x in xs)

        def value_and_grad(x: Vector) -> tuple[Tensor, Vector]:
            given = {v: o.astype(part, v.dtype) for v, part in zip(variables, x, strict=True)}
            value, *found = substituted([loss, *slopes], given, f"{self.name}: minimize")
            return o.astype(value, dtype), vector(found)

        names = ("steps", "changes", "last_step", "last_gradient")
        rows = (self.history_size, self.history_size, None, None)
        slots = {
            name: [self.slot(v, name, shape=v.shape if count is None else (count, *v.shape)) for v in variables]
            for name, count in zip(names, rows, strict=True)
        }
        lr = o.astype(self._rate.tensor(loss.graph), dtype)
        if self._iterations is None:
            self._iterations = self._state.scalar("iterations", init.zeros(), int64)
        f, g = o.astype(loss, dtype), vector(slopes)
        begun: State = {
            "x": vector(variables), "f": f, "g": g, "ended": largest(g) <= self.tolerance_grad,
            "count": o.zeros((), int64), "evaluated": o.ones((), int64), "iterations": self._iterations,
            "pairs": Pairs.kept(vector(slots["steps"]), vector(slots["changes"])).state(),
            "last_step": vector(slots["last_step"]), "last_gradient": vector(slots["last_gradient"]),
        }  # fmt: skip
        last: State = o.while_loop(
            lambda s: o.logical_and(o.logical_not(s["ended"]), s["count"] < self.max_iter),
            lambda s: self._iteration(s, lr, value_and_grad),
            begun,
        )
        kept = {**last, "steps": last["pairs"]["steps"], "changes": last["pairs"]["changes"]}
        updates = [assign(self._iterations, last["iterations"])]
        for name, places in (("x", variables), *slots.items()):
            updates += [assign(place, value) for place, value in zip(places, kept[name], strict=True)]
        return updates

    def _iteration(self, s: State, lr: Tensor, value_and_grad: Any) -> State:
        x, f, g = s["x"], s["f"], s["g"]
        pairs = Pairs(**s["pairs"]).entered(s["last_step"], minus(g, s["last_gradient"]), LEAST_CURVATURE)
        d = pairs.direction(g)
        first = lr * o.where(s["iterations"] == 0, first_step(g), 1.0)
        slope = dot(g, d)
        falls = slope <= -self.tolerance_change
        if self.line_search_fn is None:
            a, now = o.where(falls, first, 0.0), plus(x, first, d)
            goes_on = o.logical_and(falls, s["count"] + 1 < self.max_iter)  # no value is needed after the last step
            new_f, new_g, evaluated = o.cond(goes_on, lambda: (*value_and_grad(now), 1), lambda: (f, g, 0))
        else:
            left = self.max_eval - s["evaluated"]
            a, new_f, new_g, evaluated = line_search(
                value_and_grad, x, d, f, g, o.where(falls, slope, 0.0), first, left
            )
        moved = a > 0
        step = choose(moved, times(a, d), times(0.0, x))
        evaluated = s["evaluated"] + evaluated
        ends = [
            o.logical_not(moved), evaluated >= self.max_eval, largest(new_g) <= self.tolerance_grad,
            largest(step) <= self.tolerance_change, o.abs(new_f - f) < self.tolerance_change,
        ]  # fmt: skip
        return {
            "x": plus(x, 1.0, step), "f": new_f, "g": new_g, "ended": o.any(o.stack(ends)),
            "count": s["count"] + 1, "evaluated": evaluated, "iterations": s["iterations"] + 1,
            "pairs": pairs.state(), "last_step": step, "last_gradient": g,
        }  # fmt: skip
