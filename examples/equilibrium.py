"""The prices at which an exchange economy clears, and what a drought does to them.

    python examples/equilibrium.py

Households own goods and sell them to buy others, by demands of constant elasticity of substitution (Mas-Colell,
Whinston and Green, Microeconomic Theory, 1995, chapters 3 and 17). ``sg.root`` finds the prices at which of no good
more is wanted than there is. Their derivatives follow from the same equation: how much dearer each good gets where
there is less grain, and what that means to each household.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

GOODS = ("money", "grain", "meat", "cloth")
# By household: what it owns of each good, how much it likes each, and how easily it does without one for another.
OWNED = np.array([[1.0, 8.0, 1.0, 0.5], [2.0, 1.0, 6.0, 0.5], [5.0, 0.5, 0.5, 6.0]])
TASTES = np.array([[1.0, 3.0, 2.0, 1.0], [1.0, 4.0, 1.0, 2.0], [2.0, 3.0, 2.0, 1.0]])
SUBSTITUTION = np.array([0.5, 0.8, 0.6])
Array = np.ndarray[Any, np.dtype[Any]]


def purchases(prices: sg.Tensor, owned: sg.Tensor) -> sg.Tensor:
    """What each household buys of each good at some prices: as much as it likes, and as its goods bring in."""
    elasticity = SUBSTITUTION[:, None]
    cost = sg.sum(TASTES * prices ** (1 - elasticity), axis=1, keepdims=True)
    bought: sg.Tensor = TASTES * prices**-elasticity * (owned @ prices)[:, None] / cost
    return bought


def clearing_prices(owned: sg.Tensor) -> sg.Tensor:
    """Prices, in money, at which every good is sold. By Walras' law one market clears if all others do."""

    def excess(logs: sg.Tensor) -> sg.Tensor:
        prices = sg.concat([np.ones(1), sg.exp(logs)])
        return sg.sum(purchases(prices, owned) - owned, axis=0)[1:]

    return sg.concat([np.ones(1), sg.exp(sg.root(excess, np.zeros(len(GOODS) - 1), check=True))])


def welfare(prices: sg.Tensor, owned: sg.Tensor) -> sg.Tensor:
    """The utility of what each household buys, as the share of all goods that would be as good to it."""
    power = (1 - 1 / SUBSTITUTION)[:, None]
    weights = TASTES ** (1 / SUBSTITUTION[:, None])

    def utility(goods: Any) -> sg.Tensor:
        return sg.sum(weights * goods**power, axis=1) ** (1 / power[:, 0])

    return utility(purchases(prices, owned)) / utility(sg.broadcast_to(sg.sum(owned, axis=0), OWNED.shape))


def after_harvest(harvest: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
    """Prices and welfare where all own this share of their grain."""
    owned = OWNED * sg.concat([np.ones(1), harvest[None], np.ones(2)])
    prices = clearing_prices(owned)
    return prices, welfare(prices, owned)


def economy(count: int) -> sg.Executable:
    """From shares of the harvest (count,) to prices (count, goods), welfare (count, households), and the derivatives of
    both by the share."""
    with sg.Graph() as graph:
        shares = sg.placeholder((count,), sg.float64, name="shares")

        def derived(share: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor, sg.Tensor, sg.Tensor]:
            found = after_harvest(share)
            prices_by_share, welfare_by_share = sg.linearize(found, share)(np.ones(()))
            return *found, prices_by_share, welfare_by_share

        fetches = sg.vmap(derived)(shares)
    return sg.Session(graph).compile(fetches, [shares])


def main() -> None:
    shares = np.linspace(0.5, 1.0, 26)
    prices, utilities, prices_by_share, utilities_by_share = economy(len(shares))(shares)
    print("prices in money, by the harvest, and by how many percent each rises if one percent of it is lost")
    for number in range(0, len(shares), 5):
        losses = -prices_by_share[number] * shares[number] / prices[number]
        goods = zip(GOODS[1:], prices[number, 1:], losses[1:], strict=True)
        each = ", ".join(f"{name} {price:.3f} ({loss:+.2f})" for name, price, loss in goods)
        print(f"harvest {shares[number]:4.0%}: {each}")
    for name, now, slope in zip(("farmer", "herder", "weaver"), utilities[-1], utilities_by_share[-1], strict=True):
        print(f"the {name}'s share of what there is: {now:.4f}, {-slope / 100:+.4f} with one percent less grain")


if __name__ == "__main__":
    main()
