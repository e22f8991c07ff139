"""A variational autoencoder learns to draw small pictures of a round spot, from which it makes up new ones.

    python examples/vae.py

The encoder gives the mean and the logarithm of the variance of a normal distribution over a code of two numbers; a code
is drawn as mean + deviation * noise, so that gradients flow through the draw (Kingma and Welling 2014), and the decoder
gives the logit of each pixel. The loss is the cross-entropy of the pixels and the Kullback-Leibler divergence of the
code from the standard normal distribution. New pictures are decoded from codes drawn in the program itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

SIDE, CODE, WIDTH, BATCH, DRAWN = 8, 2, 64, 100, 200
SHADES = " .:+#"


def spots(centres: Any) -> Any:
    """Pictures (n, SIDE * SIDE) of a spot at each centre (n, 2), with values between 0 and 1."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    squares = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2
    return np.exp(-squares / 3).reshape(len(centres), -1).astype(np.float32)


def batch(rng: np.random.Generator) -> Any:
    return spots(rng.uniform(1.5, SIDE - 2.5, (BATCH, 2)))


def divergence(mean: sg.Tensor, log_variance: sg.Tensor) -> sg.Tensor:
    """Of each normal distribution (n, CODE) from the standard one, (n,)."""
    return 0.5 * sg.sum(mean**2 + sg.exp(log_variance) - 1 - log_variance, axis=1)


class Autoencoder(sg.nn.Module):
    def __init__(self) -> None:
        self.encoder = sg.nn.Sequential(sg.nn.Linear(SIDE**2, WIDTH), sg.nn.ReLU(), sg.nn.Linear(WIDTH, 2 * CODE))
        inner = sg.nn.Sequential(sg.nn.Linear(CODE, WIDTH), sg.nn.ReLU(), sg.nn.Linear(WIDTH, WIDTH), sg.nn.ReLU())
        self.decoder = sg.nn.Sequential(inner, sg.nn.Linear(WIDTH, SIDE**2))

    def forward(self, pictures: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        """Both terms of the loss, means over the pictures: of the pixels and of the codes."""
        mean, log_variance = sg.split(self.encoder(pictures), 2, axis=1)
        codes = mean + sg.exp(0.5 * log_variance) * sg.random.normal(mean.shape)
        pixels = sg.nn.binary_cross_entropy_with_logits(self.decoder(codes), pictures, reduction="none")
        return sg.mean(sg.sum(pixels, axis=1)), sg.mean(divergence(mean, log_variance))


class Model:
    """The net, a session that holds its weights, and the programs that train it and draw with it."""

    def __init__(self, seed: int = 0) -> None:
        with sg.Graph() as graph:
            net = Autoencoder()
            pictures = sg.placeholder((BATCH, SIDE**2), name="pictures")
            pixels, codes = net(pictures)
            train = sg.optim.Adam(lr=3e-3).minimize(pixels + codes)
            drawn = sg.nn.sigmoid(net.decoder(sg.random.normal((DRAWN, CODE))))
        self.session = sg.Session(graph, seed=seed)
        self.step = self.session.compile([pixels, codes, train], [pictures])
        self.draw = self.session.compile(drawn, [])

    def learn(self, steps: int = 1500) -> list[tuple[float, float]]:
        """Both terms of the loss before each step."""
        rng = np.random.default_rng(0)
        losses = []
        for _ in range(steps):
            pixels, codes, _ = self.step(batch(rng))
            losses.append((float(pixels), float(codes)))
        return losses

    def generate(self) -> Any:
        """New pictures (DRAWN, SIDE * SIDE), other ones in each call."""
        return self.draw()


def misfit(pictures: Any) -> Any:
    """Root mean square difference of each picture from the most similar one of a spot."""
    places = np.linspace(1, SIDE - 2, 51)
    known = spots(np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2))
    squares = (pictures**2).sum(1)[:, None] + (known**2).sum(1) - 2 * pictures @ known.T
    return np.sqrt(np.maximum(squares.min(1), 0)) / SIDE


def main() -> None:
    model = Model()
    before = np.median(misfit(model.generate()))
    losses = model.learn()
    for number in [*range(0, len(losses), 300), len(losses) - 1]:
        pixels, codes = losses[number]
        print(f"step {number:4}: pixels {pixels:.2f} + codes {codes:.2f} = loss {pixels + codes:.2f}")
    pictures = model.generate()
    after = np.median(misfit(pictures))
    assert sum(losses[-1]) < sum(losses[0]) / 2
    assert after < before / 10
    print(f"made up pictures miss a spot by {before:.3f} -> {after:.3f} a pixel")
    shades = np.clip(pictures[:6] * len(SHADES), 0, len(SHADES) - 1).astype(int).reshape(-1, SIDE, SIDE)
    for row in range(SIDE):
        print("   ".join("".join(SHADES[shade] for shade in picture[row]) for picture in shades))


if __name__ == "__main__":
    main()
