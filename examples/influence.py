"""Which examples does a fitted model owe its errors to? And how large should a batch have been?

    python examples/influence.py

Logistic regression on examples of which some have the wrong label. A loop of conjugate gradients, which multiplies by
the Hessian and never forms it, solves for Newton's steps, and then for the influence of each example: by how much the
loss on clean examples would change if it were left out (Cook and Weisberg 1982; Koh and Liang 2017). Those whose
absence would help most are nearly all mislabelled. The gradient noise scale (McCandlish et al. 2018) is the number of
examples for which the noise of a batch's gradient is as large as the gradient: the trace of the covariance of one
example's gradient over the square of their mean. It grows as the fit gets better.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

INPUTS, COUNT, TESTED, FLIPPED, RIDGE = 8, 200, 400, 12, 0.02


def data(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Examples (COUNT, INPUTS) with labels 1 and -1, of which the first FLIPPED are wrong, and clean ones for tests."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(COUNT + TESTED, INPUTS))
    chance = 1 / (1 + np.exp(-3 * points @ rng.normal(size=INPUTS)))
    labels = np.where(rng.random(len(points)) < chance, 1.0, -1.0)
    labels[:FLIPPED] *= -1
    return points[:COUNT], labels[:COUNT], points[COUNT:], labels[COUNT:]


class Model:
    """Weights w (INPUTS,), fitted to the examples by the share (COUNT,) of each, 1 or 0 to leave it out."""

    def __init__(self, points: Any, labels: Any, others: Any, wanted: Any) -> None:
        with sg.Graph() as graph:
            self.share = sg.placeholder((COUNT,), sg.float64, name="share")
            self.w = sg.Variable(np.zeros(INPUTS), name="w")
            objective = sg.sum(self.share * self.loss(points, labels)) / COUNT + RIDGE / 2 * sg.sum(self.w**2)
            self.slope = self.gradient(objective)
            step = sg.assign(self.w, self.w - self.solve(self.slope))
            tested = sg.mean(self.loss(others, wanted))
            each = sg.vmap(lambda x, y: self.gradient(self.loss(x, y)))
            slopes = each(sg.constant(points), sg.constant(labels))  # (COUNT, INPUTS)
            influence = slopes @ self.solve(self.gradient(tested)) / COUNT

            mean = sg.mean(slopes, axis=0)
            scale = sg.sum((slopes - mean) ** 2) / COUNT / sg.sum(mean**2)
        self.session = sg.Session(graph)
        self.step = self.session.compile([sg.linalg.vector_norm(self.slope), scale, step], self.share)
        self.influence = self.session.compile(influence, self.share)
        self.tested = self.session.compile(tested)

    def loss(self, x: Any, label: Any) -> sg.Tensor:
        """Of one example, or of each along the first axis."""
        return sg.nn.softplus(-label * (x @ self.w))

    def gradient(self, y: sg.Tensor) -> sg.Tensor:
        return sg.gradients(y, self.w, unconnected_gradients="error")[0]

    def solve(self, b: sg.Tensor) -> sg.Tensor:
        """x with H x = b, by conjugate gradients; H is the objective's Hessian by w, the slope's derivative."""

        def turn(state: Any) -> Any:
            x, residual, direction, square = state
            product = sg.jvp(self.slope, self.w, direction)[0]
            length = square / sg.vecdot(direction, product)
            x, residual = x + length * direction, residual - length * product
            following = sg.vecdot(residual, residual)
            return x, residual, residual + following / square * direction, following

        start = sg.zeros_like(b), b, b, sg.vecdot(b, b)
        x: sg.Tensor = sg.while_loop(lambda state: state[3] > 1e-24, turn, start, max_steps=10 * INPUTS)[0]
        return x

    def fit(self, share: Any, steps: int = 8) -> list[tuple[float, float]]:
        """Newton's method from zero: length of the gradient and noise scale before each step."""
        self.session.set(self.w, np.zeros(INPUTS))
        return [(float(length), float(scale)) for length, scale, _ in (self.step(share) for _ in range(steps))]


def main() -> None:
    model, everyone = Model(*data()), np.ones(COUNT)
    course = model.fit(everyone)
    for number, (length, scale) in enumerate(course):
        print(f"step {number}: gradient {length:.1e}, noise scale {scale:4.0f} examples")
    assert course[-1][0] < 1e-10
    assert course[-1][1] > 10 * course[0][1]

    loss, influence = float(model.tested()), model.influence(everyone)
    worst = np.argsort(influence)[:FLIPPED]
    found = int((worst < FLIPPED).sum())
    print(f"of the {FLIPPED} examples that do most harm {found} have the wrong label, as have {FLIPPED} of {COUNT}")
    assert found >= FLIPPED * 2 // 3
    model.fit(np.where(np.isin(np.arange(COUNT), worst), 0.0, 1.0))
    change = float(model.tested()) - loss
    print(f"without them the loss is {loss:.3f} {change:+.4f}; foretold was {influence[worst].sum():+.4f}")
    assert abs(change - influence[worst].sum()) < 0.2 * abs(change)


if __name__ == "__main__":
    main()
