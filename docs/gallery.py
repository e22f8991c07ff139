"""The gallery of examples: what each is called, what is drawn of it, and the files that Sphinx-Gallery makes pages of.

Sphinx-Gallery runs copies of the programs in ``examples/``, which ``write_scripts`` writes into ``docs/_made/scripts/``
with a title in front; pages with sources, outputs and pictures come out in ``docs/examples/``. A picture is drawn from
what the program's ``main`` has computed, its local variables, and from what its module defines, so that the programs
themselves draw nothing.

What needs packages that the build lacks is shown as it ran elsewhere: ``python docs/gallery.py NAME ...`` writes the
output and the picture into ``docs/recorded/``, with the versions of the packages and a digest of the source.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pages

import staticgrad as sg

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
SCRIPTS, PAGES, RECORDED = HERE / "_made" / "scripts", HERE / "examples", HERE / "recorded"

TITLES = {
    "Networks": {
        "regression": "Tabular regression",
        "digits_cnn": "Convolutions, a checkpoint",
        "data_parallel_digits": "Several processes",
        "language_model": "A transformer by hand",
        "gpt": "GPT with a KV cache",
        "ragged": "Sequences of many lengths",
        "vae": "Variational autoencoder",
        "gan": "Generative adversarial net",
    },
    "Science and control": {
        "n_body": "Weighing planets",
        "swing_up": "Swinging up a pendulum",
        "nmpc": "Model predictive control",
        "optimal_control": "Goddard's rocket",
        "neural_ode": "Neural differential equation",
        "quad_c_pointer": "Integrals by SciPy",
    },
    "Statistics and finance": {
        "newton": "Newton's method",
        "equilibrium": "Prices that clear markets",
        "bayesian_regression": "Bayesian regression",
        "hmc": "Hamiltonian Monte Carlo",
        "gaussian_process": "Gaussian process",
        "kalman": "Kalman filter",
        "heston": "Stochastic volatility",
        "libor": "A book of swaptions",
        "heston_calibration": "Calibration to quotes",
        "numpy_monte_carlo": "Greeks of a NumPy pricer",
    },
    "Gradients and memory": {
        "clipped_examples": "Gradients by example",
        "several_losses": "Conflicting gradients",
        "influence": "Influence of examples",
        "micro_batches": "Accumulated gradients",
        "two_heads": "Two losses, one trunk",
    },
    "With other systems": {
        "flax_model": "A Flax model",
        "torch_module": "A PyTorch module",
        "jax_hot_function": "A JAX program",
        "onnx_file": "An ONNX file",
        "stan_schools": "A Stan program",
        "pymc_nutpie": "A PyMC model",
    },
}
TITLE = {name: title for titles in TITLES.values() for name, title in titles.items()}

# -- pictures -------------------------------------------------------------------------------------------------------

Run = Mapping[str, Any]  # the names of a program's module and, in front of them, the variables of its `main`
PICTURES: dict[str, Callable[[Run, Any], None]] = {}

BLUE, ORANGE, GREEN, GREY = "#2a6fbb", "#d9701a", "#2e8b57", "#888888"


def picture(draw: Callable[[Run, Any], None]) -> Callable[[Run, Any], None]:
    """Enter a function of a run and an empty figure as the picture of the example with its name."""
    PICTURES[draw.__name__] = draw
    return draw


def losses(axes: Any, values: Any, label: str = "loss", scale: str = "log") -> None:
    axes.plot(values, color=BLUE, linewidth=0.8)
    axes.set(xlabel="step", ylabel=label, yscale=scale)


def tiles(figure: Any, pictures: Any, rows: int, columns: int, titles: Any = ()) -> None:
    """Pictures (n, height, width) side by side, in rows, with a title above each."""
    for number, axes in enumerate(figure.subplots(rows, columns).flat):
        axes.imshow(pictures[number], cmap="gray_r")
        axes.set_axis_off()
        if number < len(titles):
            axes.set_title(titles[number], fontsize=8)


@picture
def regression(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"], "validation loss")
    left.set_xlabel("epoch")
    right.plot(run["y"], run["many"], ".", color=BLUE, markersize=2)
    right.axline((float(np.mean(run["y"])),) * 2, slope=1, color=GREY, linewidth=0.8)
    right.set(xlabel="true", ylabel="predicted")


@picture
def digits_cnn(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"])
    left.axvline(len(run["losses"]) / 2, color=GREY, linestyle=":", linewidth=1)
    left.text(len(run["losses"]) / 2, max(run["losses"]) / 2, " checkpoint", fontsize=8)
    losses(right, run["rates"], "learning rate", "linear")


@picture
def data_parallel_digits(run: Run, figure: Any) -> None:
    session = run["session"]
    first = next(value for value in session.graph.variables.values() if value.shape == (96, 64))
    tiles(figure, session.get(first).reshape(-1, 8, 8), 4, 8)
    figure.suptitle("what the first units look for", fontsize=9)


@picture
def language_model(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    losses(axes, run["losses"])
    axes.set_title(f"“{run['text'][:48]}…”", fontsize=8)


@picture
def gpt(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    losses(axes, run["losses"])
    axes.set_title("written: " + "   ".join(run["sums"][:5]), fontsize=9)


@picture
def ragged(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"])
    lengths = range(1, run["LONGEST"] + 1, 3)
    right.plot(lengths, [run["model"].accuracy((n, n)) for n in lengths], "o-", color=BLUE, markersize=3)
    right.axvspan(run["TRAINED"], run["LONGEST"], color=ORANGE, alpha=0.15)
    right.set(xlabel="length (shaded: longer than trained on)", ylabel="right", ylim=(0.8, 1.01))


@picture
def vae(run: Run, figure: Any) -> None:
    side = run["SIDE"]
    tiles(figure, run["pictures"].reshape(-1, side, side), 4, 8)


@picture
def gan(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    for points, color, label in (
        (run["data"](np.random.default_rng(1)), GREY, "data"), (run["before"][:500], ORANGE, "drawn before"),
        (run["after"][:500], BLUE, "drawn after"),
    ):  # fmt: skip
        axes.plot(*points.T, ".", markersize=2.5, color=color, label=label)
    axes.legend(fontsize=8, markerscale=3)
    axes.set_aspect("equal", "datalim")


@picture
def n_body(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    seen = run["observations"](run["places"])
    for body, color in zip(range(seen.shape[1]), (ORANGE, BLUE, GREEN), strict=True):
        axes.plot(*run["places"][:, body].T, color=color, linewidth=0.8)
        axes.plot(*seen[:, body].T, ".", color=color, markersize=3)
    axes.set_aspect("equal", "datalim")
    axes.set_title("true orbits, and where the bodies were seen", fontsize=9)


@picture
def swing_up(run: Run, figure: Any) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    seconds = np.arange(run["STEPS"]) * run["DT"]
    above.plot(seconds, np.cos(run["path"][:, 0]), color=BLUE)
    above.set_ylabel("height")
    below.step(seconds, run["torques"], color=ORANGE)
    below.axhline(0, color=GREY, linewidth=0.5)
    below.set(xlabel="seconds", ylabel="torque")


@picture
def nmpc(run: Run, figure: Any) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    seconds = np.arange(len(run["path"])) * run["DT"]
    above.plot(seconds, np.cos(run["path"][:, 1]), color=BLUE, label="height of the pole")
    above.plot(seconds, run["path"][:, 0], color=GREY, label="place of the cart")
    above.legend(fontsize=8)
    below.step(seconds[:-1], run["forces"], color=ORANGE, where="post")
    below.set(xlabel="seconds", ylabel="force")


@picture
def optimal_control(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    instants = np.linspace(0, run["final"], run["STEPS"] + 1)
    left.plot(instants, run["height"], color=BLUE)
    left.set(xlabel="time", ylabel="height")
    right.step(instants, run["thrust"], color=ORANGE)
    right.set(xlabel="time", ylabel="thrust")


@picture
def neural_ode(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"])
    starts, states = run["measured"](run["PATHS"])
    for number in range(run["PATHS"]):
        right.plot(*np.concatenate([starts[None], states])[:, number].T, linewidth=0.8)
    right.set(xlabel="position", ylabel="velocity", title="what is learned from")


@picture
def quad_c_pointer(run: Run, figure: Any) -> None:
    axes, r = figure.subplots(), np.linspace(0, 30, 300)
    for charge, color in ((1.0, BLUE), (2.0, ORANGE)):
        density = sg.Session().run(run["density"](sg.constant(r), sg.constant(charge, dtype=sg.float64)))
        axes.fill_between(r, density, color=color, alpha=0.3)
        axes.plot(r, density, color=color, label=f"charge {charge:g}")
        axes.axvline(12.5 / charge, color=color, linestyle=":", linewidth=1)
    axes.set(xlabel="Bohr radii (dotted: the mean)", ylabel="density")
    axes.legend(fontsize=8)


@picture
def newton(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    axes.semilogy(run["norms"], "o-", color=BLUE)
    axes.set(xlabel="step", ylabel="length of the gradient")


@picture
def equilibrium(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    shares, prices, slopes = run["shares"], run["prices"], run["prices_by_share"]
    left.plot(shares, prices[:, 1], color=BLUE)
    for number in (0, 10, 25):
        near = shares[number] + np.array([-0.06, 0.06])
        left.plot(near, prices[number, 1] + slopes[number, 1] * (near - shares[number]), color=ORANGE)
    left.set(xlabel="share of the harvest", ylabel="price of grain, with its derivative")
    for household, color, name in zip(run["utilities"].T, (BLUE, ORANGE, GREEN), ("farmer", "herder", "weaver")):
        right.plot(shares, household, color=color, label=name)
    right.set(xlabel="share of the harvest", ylabel="share of what there is")
    right.legend(fontsize=8)
    figure.tight_layout()


@picture
def bayesian_regression(run: Run, figure: Any) -> None:
    axes, places = figure.subplots(), np.arange(run["COLUMNS"])
    for shift, color, middle, deviation, label in (
        (-0.1, BLUE, run["mean"], run["deviation"], "drawn"),
        (0.1, ORANGE, run["found"].mode, run["laplace_deviation"], "Laplace"),
    ):
        axes.errorbar(places + shift, middle, 2 * deviation, fmt="o", color=color, markersize=3, label=label)
    axes.plot(places, run["truth"], "x", color="black", label="true")
    axes.set(xlabel="weight", ylabel="mean ± 2 deviations")
    axes.legend(fontsize=8)


@picture
def hmc(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    left.plot(run["mean"][::5], run["width"][::5], ".", color=BLUE, markersize=2)
    left.set(xlabel="mean", ylabel="width", yscale="log")
    right.hist(run["mean"], 40, color=BLUE)
    right.axvline(run["integrals"]()[0], color=ORANGE)
    right.set(xlabel="mean (line: by integrals)", yticks=[])


@picture
def gaussian_process(run: Run, figure: Any) -> None:
    axes, rng = figure.subplots(), np.random.default_rng(0)
    points, at = rng.uniform(-4, 4, run["POINTS"]), np.linspace(-5, 6, 150)
    values = np.sin(points) + 0.1 * rng.normal(size=len(points))  # those of the run
    fit = run["regression"](points, values, at)
    axes.fill_between(at, fit.mean - 2 * fit.deviation, fit.mean + 2 * fit.deviation, color=BLUE, alpha=0.2)
    axes.plot(at, fit.mean, color=BLUE, label="mean ± 2 deviations")
    axes.plot(points, values, ".", color="black", markersize=3, label="data")
    axes.plot(at, np.sin(at), color=ORANGE, linewidth=0.8, label="truth")
    axes.legend(fontsize=8)


@picture
def kalman(run: Run, figure: Any) -> None:
    seen, (mean, covariance), line = run["observations"](400), (np.zeros(2), 10 * np.eye(2)), []
    move, look = run["MOVE"], run["LOOK"]
    for value in seen:
        mean, covariance = move @ mean, move @ covariance @ move.T + run["process"] * run["PUSH"]
        gain = covariance @ look.T / (look @ covariance @ look.T + run["observation"])
        mean, covariance = mean + gain @ (value - look @ mean), covariance - gain @ look @ covariance
        line.append((mean[1], 2 * covariance[1, 1] ** 0.5))
    axes, (middle, spread) = figure.subplots(), np.transpose(line)
    axes.plot(np.arange(1, len(seen)), np.diff(seen[:, 0]), ".", color=GREY, markersize=3, label="seen: differences")
    axes.plot(middle, color=BLUE, label="filtered ± 2 deviations, with the levels found")
    axes.fill_between(np.arange(len(seen)), middle - spread, middle + spread, color=BLUE, alpha=0.3)
    axes.set(xlabel="step", ylabel="velocity")
    axes.legend(fontsize=8)


@picture
def heston(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    pricer, spots, found = run["pricer"](), np.linspace(70, 130, 25), []
    for spot in spots:
        value, slopes = pricer(np.concatenate([[spot], run["VALUES"][1:]]))
        found.append((value, slopes[0]))
    for axes, values, label in zip((left, right), np.transpose(found), ("price", "by the spot"), strict=True):
        axes.plot(spots, values, color=BLUE)
        axes.set(xlabel="spot", ylabel=label)


@picture
def libor(run: Run, figure: Any) -> None:
    for axes, name, color in zip(figure.subplots(1, 2), ("forwards", "volatilities"), (BLUE, ORANGE), strict=True):
        axes.bar(np.arange(run["RATES"]) + 1, run["found"][name], color=color)
        axes.set(xlabel="quarter", title=f"by {name}")


@picture
def heston_calibration(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    errors = 100 * (run["surface"] - run["quotes"]) / run["vegas"]()
    for years, color in zip(run["YEARS"], (BLUE, ORANGE, GREEN, GREY), strict=True):
        chosen = run["MATURITIES"] == years
        left.plot(run["STRIKES"][chosen], run["surface"][chosen], color=color, label=f"{years:g} years")
        left.plot(run["STRIKES"][chosen], run["quotes"][chosen], "o", color=color, markersize=3)
        right.plot(run["STRIKES"][chosen], errors[chosen], "o", color=color, markersize=3)
    left.set(xlabel="strike", ylabel="price (dots: quotes)")
    left.legend()
    right.set(xlabel="strike", ylabel="model less quote, volatility points", yscale="symlog")


@picture
def numpy_monte_carlo(run: Run, figure: Any) -> None:
    for axes, name, color in zip(figure.subplots(1, 2), ("deltas", "vegas"), (BLUE, ORANGE), strict=True):
        axes.bar(np.arange(run["ASSETS"]) + 1, run[name], color=color)
        axes.set(xlabel="asset", title=name)


@picture
def clipped_examples(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    axes.hist(run["lengths"], 30, color=BLUE)
    axes.axvline(run["LONGEST"], color=ORANGE)
    axes.set(xlabel="length of an example's gradient in the last batch (line: what it is clipped to)", yticks=[])


@picture
def several_losses(run: Run, figure: Any) -> None:
    model, tasks = run["model"], run["TASKS"]
    feeds = dict(zip(model.feeds, run["data"](run["BATCH"], seed=5), strict=True))
    with sg.Session(model.graph, seed=0) as session:
        cosines = session.run(model.cosines, feeds)
    axes = figure.subplots()
    figure.colorbar(axes.imshow(cosines, cmap="RdBu", vmin=-1, vmax=1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(len(tasks)), tasks)
    axes.set_title("cosines between the gradients, before training", fontsize=9)


@picture
def influence(run: Run, figure: Any) -> None:
    axes, order = figure.subplots(), np.argsort(run["influence"])
    wrong = order < run["FLIPPED"]
    axes.bar(np.arange(len(order)), run["influence"][order], 1.0, color=np.where(wrong, ORANGE, BLUE))
    axes.set(xlabel="examples (orange: with a wrong label)", ylabel="influence on the loss")


@picture
def micro_batches(run: Run, figure: Any) -> None:
    counts, kibibytes = (1, 2, 4, 8, 16), []
    for count in counts:
        with sg.Graph() as graph:
            x, t = (sg.placeholder((run["BATCH"] // count, width)) for width in (16, 1))
            net = sg.nn.Sequential(sg.nn.Linear(16, 64), sg.nn.Tanh(), sg.nn.Linear(64, 1))  # that of the example
            loss = sg.nn.mse_loss(net(x), t)
        with sg.Session(graph) as session:
            tape = session.forward(loss, {each: np.zeros(each.shape, np.float32) for each in (x, t)})
            tape.backward(loss)
            kibibytes.append(tape.memory.peak_bytes / 1024)
    axes = figure.subplots()
    axes.bar(range(len(counts)), kibibytes, color=BLUE)
    axes.set_xticks(range(len(counts)), counts)
    axes.set(xlabel="pieces of the batch", ylabel="KiB in use at once, at most")


@picture
def two_heads(run: Run, figure: Any) -> None:
    axes, places = figure.subplots(), np.arange(len(run["rows"]))
    for shift, field, color in ((-0.25, "saved", BLUE), (0, "after_first", ORANGE), (0.25, "peak", GREEN)):
        values = [getattr(row, field) / 2**20 for row in run["rows"]]
        axes.bar(places + shift, values, 0.22, color=color, label=field.replace("_", " "))
    axes.set_xticks(places, [row.way for row in run["rows"]], fontsize=8)
    axes.set_ylabel("MiB")
    axes.legend(fontsize=8)


@picture
def flax_model(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"])
    right.imshow(np.hstack(run["held"][0][:3, :, :, 0]), cmap="gray_r")
    right.set_title("three of the pictures", fontsize=9)
    right.set_axis_off()


@picture
def torch_module(run: Run, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    losses(left, run["losses"])
    right.imshow(np.hstack(run["images"][:2, 0]), cmap="gray_r")
    right.set_title("two of the pictures", fontsize=9)
    right.set_axis_off()


@picture
def jax_hot_function(run: Run, figure: Any) -> None:
    axes = figure.subplots()
    for course, color in zip(run["losses"], (BLUE, ORANGE), strict=True):
        axes.plot(course, color=color)
    axes.set(xlabel="step of gradient descent, from two starts", ylabel="loss")


@picture
def onnx_file(run: Run, figure: Any) -> None:
    found = run["predict"](run["tests"])["scores"].argmax(1)
    tiles(figure, run["tests"][:18, 0], 3, 6, [("lies", "stands", "leans")[kind] for kind in found])


@picture
def stan_schools(run: Run, figure: Any) -> None:
    axes, places = figure.subplots(), np.arange(len(run["EFFECTS"])) + 1
    theta = run["theta"].reshape(-1, len(places))
    axes.errorbar(places - 0.1, run["EFFECTS"], run["ERRORS"], fmt="x", color=GREY, label="measured")
    axes.errorbar(places + 0.1, theta.mean(0), theta.std(0), fmt="o", color=BLUE, label="posterior")
    axes.set(xlabel="school", ylabel="effect ± deviation")
    axes.legend(fontsize=8)


@picture
def pymc_nutpie(run: Run, figure: Any) -> None:
    axes, levels = figure.subplots(), np.asarray(run["posterior"]["level"]).reshape(-1, run["BEDS"])
    counts = np.bincount(run["bed"], minlength=run["BEDS"])
    axes.errorbar(range(1, run["BEDS"] + 1), levels.mean(0), 2 * levels.std(0), fmt="o", color=BLUE)
    for bed, count in enumerate(counts):
        axes.annotate(str(count), (bed + 1, levels[:, bed].mean()), (4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel="bed, with the number of its plants", ylabel="level ± 2 deviations")


def draw(name: str, run: Run, path: Path) -> None:
    """Draw the picture of an example into an SVG file, the same bytes for the same run."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        PICTURES[name](run, figure)
        figure.savefig(path, metadata={"Date": None})


# -- programs -------------------------------------------------------------------------------------------------------


class Watch:
    """The frame of a program's ``main``, whose variables are still there when it has returned."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.main: FrameType | None = None
        self.begun = time.perf_counter()
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "main" and frame.f_code.co_filename == self.script:
            sys.setprofile(None)  # what main does is not slowed
            self.main = frame

    def end(self) -> tuple[float, Run]:
        """The seconds since the beginning, and the variables of ``main`` in front of those of its module."""
        sys.setprofile(None)
        seconds = time.perf_counter() - self.begun
        assert self.main is not None, f"{self.script} has not called its main"
        frame, self.main = self.main, None
        return seconds, {**frame.f_globals, **frame.f_locals}


watches: dict[str, Watch] = {}


def begin(conf: Mapping[str, Any], file: str) -> None:
    """Called by Sphinx-Gallery before a program runs."""
    sg.reset_default_graph()
    watches.clear()
    watches[Path(file).stem] = Watch(str(SCRIPTS / Path(file).name))


def shown(block: Any, run: Mapping[str, Any], conf: Mapping[str, Any]) -> str:
    """The picture of a program that has run and the time that it took, as Sphinx-Gallery asks for them."""
    from sphinx_gallery.scrapers import figure_rst

    name = Path(run["src_file"]).stem
    if name not in watches:
        return ""
    seconds, found = watches.pop(name).end()
    path = Path(next(run["image_path_iterator"])).with_suffix(".svg")
    draw(name, found, path)
    figure: str = figure_rst([str(path)], conf["src_dir"], PICTURES_SHOW.format(TITLE[name]))
    return f"It ran for {seconds:.1f} s, with all that is compiled, and printed the text below.\n\n{figure}"


PICTURES_SHOW = "A picture of what the example “{}” has computed"


def source(name: str) -> str:
    """The text of an example."""
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def sentence(name: str) -> str:
    """The first sentence that an example says of itself."""
    doc = ast.get_docstring(ast.parse(source(name))) or ""
    return " ".join(doc.split("\n\n")[0].split())


def runs(name: str) -> bool:
    """True if the packages that an example needs are installed."""
    return all(importlib.util.find_spec(package) for package in pages.needs(EXAMPLES / f"{name}.py"))


def digest(name: str) -> str:
    """The digest of an example's source, which says whether a record is of it."""
    return hashlib.sha256(source(name).encode()).hexdigest()[:16]


def recorded(name: str) -> dict[str, Any]:
    """The record of an example: digest of the source, seconds, versions of packages, lines printed."""
    entry: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return entry


def script(name: str) -> str:
    """The source of an example with a title in its docstring, and with its recorded output if it does not run here."""
    doc, rest = source(name).removeprefix('"""').split('"""', 1)
    doc = re.sub(r"(``.*?``)|\*", lambda match: match[1] or r"\*", doc, flags=re.DOTALL)
    doc = re.sub(r"\n\n((?:    .+\n)+)", r"\n\n.. code-block:: sh\n\n\1", doc)
    text = f'r"""\n{TITLE[name]}\n{"=" * len(TITLE[name])}\n\n{doc}"""{rest}'
    if runs(name):
        return text
    found = recorded(name)
    versions = " and ".join(f"{package} {version}" for package, version in found["versions"].items())
    after = (
        f"It did not run where this page was built, for want of packages. With {versions} it ran for "
        f"{found['seconds']} s, with all that is compiled, and printed the text below.\n\n"
        f".. image:: /recorded/{name}.svg\n    :alt: {PICTURES_SHOW.format(TITLE[name])}\n"
        "    :class: sphx-glr-single-img\n\n.. rst-class:: sphx-glr-script-out\n\n .. code-block:: none\n\n"
        + "".join(f"    {line}\n" for line in found["printed"])
    )
    comment = "".join(f"# {line}".rstrip() + "\n" for line in after.splitlines())
    return f'{text}\n# %%\n{comment}\n# sphinx_gallery_thumbnail_path = "recorded/{name}.svg"\n'


def write_scripts() -> None:
    """Write the programs that Sphinx-Gallery reads; a file that would stay the same is left alone."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.py": script(name) for name in TITLE} | {"GALLERY_HEADER.rst": "Examples\n========\n"}
    for file in SCRIPTS.iterdir():
        if file.name not in texts:
            file.unlink()
    for file_name, text in texts.items():
        (SCRIPTS / file_name).write_text(text, encoding="utf-8")


BLOCK = re.compile(r"^```\{gallery\} (.+)\n```$", re.MULTILINE)


def expanded(text: str) -> str:
    """The page of examples with cards in the place of its blocks: of each example of a subject the picture, the title
    and a sentence."""

    def cards(match: re.Match[str]) -> str:
        parts, names = ["::::{container} cards\n"], TITLES[match[1]]
        for name, title in names.items():
            thumbnail = f"examples/images/thumb/sphx_glr_{name}_thumb.svg"
            parts.append(
                f":::{{container}} card\n[![{PICTURES_SHOW.format(title)}]({thumbnail})](examples/{name}.rst)\n\n"
                f"[{title}](examples/{name}.rst)\n\n{sentence(name)}\n:::\n"
            )
        entries = "\n".join(f"examples/{name}" for name in names)
        return "\n".join([*parts, f"::::\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```"])

    return BLOCK.sub(cards, text)


# -- the notebook ---------------------------------------------------------------------------------------------------


def cell_value(cell: str, name: str, namespace: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last line, if that is an expression."""
    *body, last = ast.parse(cell, name).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace) if isinstance(last, ast.Expr) else None


def notebook_page() -> str:
    """The notebook as a page: its texts, its cells, and what each shows when it runs, from top to bottom."""
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, Any] = {}
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = cell_value(source, cell["id"], namespace)
        parts.append(f"```python\n{source}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue()}```")
        if value is not None:
            parts.append(f'`````{{raw}} html\n<div class="shown">{value._repr_html_()}</div>\n`````')
    parts.append("{download}`Download the notebook <../../examples/notebook.ipynb>`")
    return "\n\n".join(parts) + "\n"


def write_notebook() -> None:
    """Run the notebook in an empty folder and write its page."""
    import tempfile

    PAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = notebook_page()
    (PAGES / "notebook.md").write_text(text, encoding="utf-8")


# -- records --------------------------------------------------------------------------------------------------------


def record(name: str) -> None:
    """Run an example that other systems are needed for, and write what it printed and its picture."""
    path, printed = EXAMPLES / f"{name}.py", io.StringIO()
    code = compile(source(name), str(path), "exec")
    watch = Watch(str(path))
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "__main__", "__file__": str(path)})
    seconds, run = watch.end()
    RECORDED.mkdir(exist_ok=True)
    draw(name, run, RECORDED / f"{name}.svg")
    packages = dict.fromkeys(["staticgrad", *pages.needs(path)])
    entry = {
        "source": digest(name), "seconds": round(seconds, 1),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "printed": printed.getvalue().splitlines(),
    }  # fmt: skip
    (RECORDED / f"{name}.json").write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("STATICGRAD_PROGRESS", "0")
    for each in sys.argv[1:]:
        record(each)
