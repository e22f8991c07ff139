"""What pages show of the history: the README's section and claims, and the tables of the site's page of figures.

    python benchmarks/figures.py [--history FOLDER] [--readme FILE]

writes what stands between the marks of the README anew, from the newest records.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from history import FOLDER, HERE, ISAS, Record, Table, load, newest
from peers import PEERS

OURS = "staticgrad"
README = HERE.parent / "README.md"
CALLS, RATIO = "µs of a call", "over the best"  # the table of run.py, and its last column
MEDIANS = "medians of ratios"  # a table of from_jax.py
GRADIENTS, BYTES = "ns of a gradient", "bytes of an object"  # of exported.py
TIE = 1.15  # ratios nearer to one than this say nothing
WIDTH = 120  # columns of a line
SECTION = "figures: written by make bench", "figures: end"
CLAIM = "claim of {}.py", "end of claim"
BLOCK = re.compile(r"^```\{measured\}\n```$", re.MULTILINE)
SHOWN = {  # on the site's page: a title, and what was measured
    "from_jax": ("Functions of JAX", "Values and gradients; ratios are those of the processor time of `jax.jit`."),
    "exported": ("Exported programs", "Gradients called from C, beside the C that CasADi generates, by gcc."),
    "sparse": (
        "Sparse second derivatives",
        "Hessians of Lagrangians and Jacobians of sixty problems, beside CasADi's scalar expressions and asdex.",
    ),
    "stan_models": ("Stan programs", "Beside stanli, which interprets them, where the values of both agree."),
    "startup": (
        "First answers",
        "From the start of the import: with nothing kept (cold), compiled by an earlier process (warm), and of an "
        "exported program, without the compiler (loaded).",
    ),
    "samplers": ("Models of PyMC", "Compiled as nutpie samples them."),
}


# -- numbers ----------------------------------------------------------------------------------------------------------


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def number(x: float) -> str:
    if math.isnan(x):
        return "–"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def table(header: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 1) -> str:
    """In Markdown; the first ``texts`` columns are words, the others numbers."""
    rule = [*["---"] * texts, *["---:"] * (len(header) - texts)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def summary(ratios: dict[str, float]) -> str:
    """A sentence about staticgrad's times over those of the best peers, by workload."""
    if not ratios:
        return "No workload has both staticgrad and a peer."
    faster = sum(ratio < 1 / TIE for ratio in ratios.values())
    slower = sorted(name for name, ratio in ratios.items() if ratio > TIE)
    return (
        f"Against the best peer of each workload staticgrad takes {geometric_mean(list(ratios.values())):.2f} of its "
        f"time in the geometric mean of {len(ratios)}: faster on {faster}, level within {TIE - 1:.0%} on "
        f"{len(ratios) - faster - len(slower)}, slower on {len(slower)}{': ' + ', '.join(slower) if slower else ''}."
    )


def column(record: Record, title: str, name: str) -> dict[str, float]:
    """A column of a table, by row."""
    return {row: cells[name] for row, cells in record.figures.get(title, {}).items() if name in cells}


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# -- the newest records -----------------------------------------------------------------------------------------------


def runs(records: Sequence[Record]) -> list[Record]:
    """The newest record of ``run.py`` on one thread for each instruction set, the widest first."""
    return [found for isa in ISAS if (found := newest(records, "run", isa, 1)) is not None]


def source(record: Record) -> str:
    """Where a record comes from, in a sentence."""
    changed = " with changes" if record.clean is False else ""
    peers = ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
    taken = f", taken over from {record.imported}" if record.imported else ""
    said = f"**{record.series}**, commit {record.commit[:8]}{changed}, {record.date[:10]}{taken}"
    return f"{said} ({peers})." if peers else f"{said}."


def tables(record: Record) -> str:
    """The tables of a record in Markdown."""
    return "\n\n".join(_markdown(title, rows) for title, rows in record.figures.items())


def _markdown(title: str, rows: Table) -> str:
    columns = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    if title == CALLS:  # not every peer is in the first row
        columns = [name for name in (*PEERS, RATIO) if name in columns]

    def cell(cells: dict[str, float], name: str) -> str:
        value = cells.get(name, math.nan)
        return f"{value:.2f}" if (title, name) == (CALLS, RATIO) and not math.isnan(value) else number(value)

    lines = [[row, *(cell(cells, name) for name in columns)] for row, cells in rows.items()]
    shown = [PEERS[name].title if name in PEERS else name for name in columns]
    return table(["workload" if title == CALLS else title, *shown], lines)


# -- the README -------------------------------------------------------------------------------------------------------


def section(records: Sequence[Record]) -> str:
    """The README's figures: what was measured, and a table, for each instruction set."""
    parts = [
        "Microseconds for one call, arrays in and arrays out, the peers in turn; the last column is staticgrad's time "
        "over that of the best peer."
    ]
    for record in runs(records):
        parts += [f"{source(record)} {summary(column(record, CALLS, RATIO))}", tables(record)]
    texts = (part if part.startswith("|") else filled(part) for part in parts)
    return "\n" + "\n\n".join(texts) + "\n"


def claim_of_run(records: Sequence[Record]) -> str:
    found = runs(records)
    if not found:
        return ""
    small = column(found[0], CALLS, RATIO)["mlp_small"]
    means = [column(record, CALLS, RATIO).values() for record in found]
    peers = list(dict.fromkeys(PEERS[name].title.split(" channels")[0] for name in _peers(found[0])))
    by_isa = [f"{geometric_mean(list(mean)):.2f} with {ISAS[r.isa]}" for mean, r in zip(means, found, strict=True)]
    return (
        f"A call of a training step of a small net takes {small:.2f} of the time of the best of {listed(peers)}, and "
        f"the geometric mean over {len(means[0])} workloads, large products among them, is {listed(by_isa)}."
    )


def _peers(record: Record) -> list[str]:
    cells = record.figures[CALLS].values()
    return list(dict.fromkeys(name for row in cells for name in row if name not in (OURS, RATIO)))


def claim_of_from_jax(records: Sequence[Record]) -> str:
    record = newest(records, "from_jax")
    if record is None:
        return ""
    small, large = (record.figures[MEDIANS][size] for size in ("small", "large"))
    return (
        f"Functions of JAX, converted as they are, take {small['call']:.2g} of the processor time of a call of "
        f"`jax.jit` when they are small, and {large['call']:.2g} when they are large (medians of "
        f"{small['functions']:.0f} functions)."
    )


def claim_of_exported(records: Sequence[Record]) -> str:
    record = newest(records, "exported")
    if record is None:
        return ""
    times, sizes = [], []
    for name, cells in record.figures[GRADIENTS].items():
        mine, theirs = (min((by for by in cells if by.startswith(who)), key=cells.get) for who in (OURS, "CasADi"))
        times.append(cells[mine] / cells[theirs])
        sizes.append(record.figures[BYTES][name][mine] / record.figures[BYTES][name][theirs])
    return (
        f"A gradient in exported code takes {min(times):.2g} to {max(times):.2g} of the time of the C that CasADi "
        f"generates, and {geometric_mean(sizes):.2g} of its bytes ({len(times)} functions, each in the fastest form)."
    )


CLAIMS: dict[str, Callable[[Sequence[Record]], str]] = {
    "run": claim_of_run,
    "from_jax": claim_of_from_jax,
    "exported": claim_of_exported,
}


def rendered(text: str, records: Sequence[Record]) -> str:
    """A README with its section and its claims written from the newest records.

    Raises:
        ValueError: a mark is missing.
    """
    text = between(text, SECTION, section(records))
    for name, claim in CLAIMS.items():
        text = between(text, (CLAIM[0].format(name), CLAIM[1]), claim(records))
    return re.sub(rf"^- (?:.*\n  )*?.*<!-- {CLAIM[0].format('.*')}(?:.*\n  )*.*$", _refilled, text, flags=re.MULTILINE)


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """The text with what stands between two comments replaced."""
    first, last = (f"<!-- {mark} -->" for mark in marks)
    start = text.find(first)
    end = text.find(last, start)
    if not 0 <= start < end:
        raise ValueError(f"README: expected {first} and {last}")
    return text[: start + len(first)] + new + text[end:]


def _refilled(item: re.Match[str]) -> str:
    """An item of a list in lines of the usual width."""
    return filled(" ".join(item[0].split()), "  ")


def filled(text: str, indent: str = "") -> str:
    """A paragraph in lines of the usual width; one that began with a comment would be HTML to Markdown."""
    joined = re.sub(r" ?<!--.*?-->", lambda comment: comment[0].replace(" ", "\0"), text)
    lines = textwrap.fill(joined, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


# -- the site ---------------------------------------------------------------------------------------------------------


def expanded(text: str, records: Sequence[Record]) -> str:
    """A page of the site with the newest record of every benchmark but ``run.py`` in place of the block
    ``{measured}``."""
    parts = []
    for name, (title, what) in SHOWN.items():
        record = newest(records, name)
        if record is not None:
            parts.append(f"## {title}\n\n{what} `benchmarks/{name}.py` on {source(record)}\n\n{tables(record)}")
    return BLOCK.sub(lambda _: "\n\n".join(parts), text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, default=FOLDER)
    parser.add_argument("--readme", type=Path, default=README)
    given = parser.parse_args()
    text = given.readme.read_text(encoding="utf-8")
    given.readme.write_text(rendered(text, load(given.history)), encoding="utf-8")


if __name__ == "__main__":
    main()
