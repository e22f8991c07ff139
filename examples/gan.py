"""A generative adversarial net learns to draw points of a tilted normal distribution in the plane.

    python examples/gan.py

One network turns noise into points, another tells such points from data; each has an optimizer of its own, which is
told by ``var_list`` what to update, and the two take turns (Goodfellow et al. 2014). The judge also pays for slopes at
the data, a penalty that needs derivatives of derivatives and lets the game settle (Mescheder et al. 2018). Both steps
draw their noise inside the program. In the end mean and covariance of what is drawn are compared with the data's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

BATCH, NOISE, STEPS, DRAWN, PENALTY = 512, 4, 3000, 20000, 2.0
MEAN = np.array([2.0, -1.0])
MIX = np.array([[1.0, 0.0], [0.6, 0.5]])  # the covariance is MIX @ MIX.T


def data(rng: np.random.Generator) -> Any:
    return (MEAN + rng.normal(size=(BATCH, 2)) @ MIX.T).astype(np.float32)


def mlp(width_in: int, width: int, width_out: int) -> sg.nn.Sequential:
    return sg.nn.Sequential(
        sg.nn.Linear(width_in, width),
        sg.nn.LeakyReLU(0.2),
        sg.nn.Linear(width, width),
        sg.nn.LeakyReLU(0.2),
        sg.nn.Linear(width, width_out),
    )


class Game:
    """The generator and its judge, and for each an op that makes a step; it is declared in the current graph."""

    def __init__(self) -> None:
        self.generator, self.judge = mlp(NOISE, 32, 2), mlp(2, 32, 1)
        self.real = sg.placeholder((BATCH, 2), name="real")
        on_real, on_drawn = self.judge(self.real), self.judge(self.draw(BATCH))
        score = sg.nn.binary_cross_entropy_with_logits
        (slopes,) = sg.gradients(sg.sum(on_real), [self.real], unconnected_gradients="error")
        self.judged = score(on_real, 1.0) + score(on_drawn, 0.0)
        self.fooled = score(on_drawn, 1.0)  # of the two forms the one whose slopes do not vanish at the start
        penalty = PENALTY / 2 * sg.mean(sg.sum(slopes**2, axis=1))
        falling = sg.optim.schedules.cosine(3e-3, steps=STEPS)  # each optimizer counts its own steps
        first, second = (sg.optim.Adam(lr=falling, betas=(0.5, 0.99)) for _ in range(2))
        self.judge_step = first.minimize(self.judged + penalty, var_list=self.judge.parameters())
        self.generator_step = second.minimize(self.fooled, var_list=self.generator.parameters())

    def draw(self, count: int) -> sg.Tensor:
        return self.generator(sg.random.normal((count, NOISE)))


def main() -> None:
    rng = np.random.default_rng(0)
    with sg.Graph() as graph:
        game = Game()
        drawn = game.draw(DRAWN)
    with sg.Session(graph, seed=0) as session:
        judge_step = session.compile([game.judged, game.judge_step], [game.real])
        generator_step = session.compile([game.fooled, game.generator_step])
        draw = session.compile(drawn)
        before = draw()
        for number in range(1, STEPS + 1):
            judged, _ = judge_step(data(rng))
            fooled, _ = generator_step()
            if number % 500 == 0:
                mean = draw().mean(axis=0).round(2)
                print(f"step {number:4}: loss of the judge {judged:.3f}, of the generator {fooled:.3f}, mean {mean}")
        after = draw()
    wanted = MIX @ MIX.T
    means, spreads = [p.mean(axis=0) for p in (before, after)], [np.cov(p.T) for p in (before, after)]
    print(f"mean: data {MEAN}, drawn {means[1].round(2)}")
    print(f"covariance: data {wanted.round(2).tolist()}, drawn {spreads[1].round(2).tolist()}")
    assert np.abs(means[1] - MEAN).max() < 0.15 < np.abs(means[0] - MEAN).max()
    assert np.abs(spreads[1] - wanted).max() < 0.3 < np.abs(spreads[0] - wanted).max()
    assert abs(judged - 2 * np.log(2)) < 0.05  # the judge can't tell: it gives both kinds one half


if __name__ == "__main__":
    main()
