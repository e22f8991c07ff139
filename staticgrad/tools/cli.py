"""The command line: arguments in, text and an exit status out.

    staticgrad demo      train a small classifier of handwritten digits
    staticgrad ops       the op table
    staticgrad info      versions, the machine, the switches; or what a file is and holds
    staticgrad compile   export the program of a saved graph: object file, library, C header
    staticgrad plan      place the buffers of a saved graph or a problem
    staticgrad view      show a saved graph's program in a browser
    staticgrad cache     what is kept of compiled programs
    staticgrad inspect   what a checkpoint holds
    staticgrad bench     measure beside other systems, in a checkout

Status 0: done. 2: bad arguments or input, said in one line on standard error. 130: interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from staticgrad.base import config
from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import DTYPES, FLOATS, INTEGERS
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS, OPS, Op
from staticgrad.runtime.export.options import FORMATS, OPTIMIZE

if TYPE_CHECKING:
    from staticgrad.compiler.placement.problems import Interval
    from staticgrad.compiler.program.program import Program

BAD_INPUT = 2
WHOLE = "run"  # the entry of a graph that has none
DEMO_NEEDS = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "tqdm": "tqdm"}  # packages by module
INTERRUPTED = 130  # 128 + SIGINT, as shells say it


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; ``arguments`` are those of the process by default. Gives the exit status."""
    parser = commands()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.run is not _bench:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    chosen.rest = rest
    try:
        _check_switches()
    except ValueError as error:
        return _fail(parser, str(error), BAD_INPUT)
    try:
        chosen.run(chosen)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail(parser, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has enough: what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except StaticGradError as error:
        return _fail(parser, str(error), BAD_INPUT)
    except OSError as error:
        return _fail(parser, f"{error.filename}: {error.strerror}" if error.filename else str(error), BAD_INPUT)
    return 0


def _check_switches() -> None:
    config.refuse_unknown()
    for name in config.SWITCHES:
        config.get(name)


def _version(package: str) -> str:
    """The installed version of a package; importing it would cost more."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _fail(parser: argparse.ArgumentParser, message: str, status: int) -> int:
    line = "; ".join(part.strip() for part in message.splitlines() if part.strip())
    print(f"{parser.prog}: error: {line}", file=sys.stderr)
    return status


# -- arguments ------------------------------------------------------------------------------------------------------


def commands() -> argparse.ArgumentParser:
    parser = _Parser(prog="staticgrad", description="A static-graph compiler with an ahead-of-time backward pass.")
    parser.add_argument("--version", action="version", version=f"staticgrad {_version('staticgrad')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], None], doc: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=doc, description=doc.capitalize() + ".", allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    _demo_arguments(command("demo", _demo, "train a small classifier of handwritten digits"))
    command("ops", _ops, "print the op table: name, kind, dtypes, what it does")
    info = command("info", _info, "print versions, the machine and the switches, or what a file is and holds")
    info.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="a graph, checkpoint, exported program, object or problem"
    )
    _compile_arguments(command("compile", _compile, "export what a saved graph computes, for this or another machine"))
    plan = command("plan", _plan, "place the buffers of a graph or problem in an arena")
    plan.add_argument(
        "file", metavar="FILE", type=Path, help="a saved graph, or CSV of id,lower,upper,size; upper exclusive"
    )
    plan.add_argument("--seconds", type=_seconds, default=0.0, metavar="N", help="search for a better plan so long")
    plan.add_argument("--alignment", type=_alignment, default=1, metavar="N", help="of offsets, default 1")
    plan.add_argument("--json", action="store_true", help="print arena_bytes, lower_bound_bytes and offsets by id")
    view = command("view", _view, "write one HTML file that shows the program of a graph: kernels, memory, lines")
    view.add_argument("file", metavar="FILE", type=Path, help="a saved graph")
    view.add_argument("-o", "--out", metavar="OUT", type=Path, help="the HTML file; default: FILE with .html")
    cache = command("cache", _cache, "say what is kept of compiled programs, and where")
    cache.add_argument("--clear", action="store_true", help="drop it all")
    inspect = command("inspect", _inspect, "print the names, shapes, dtypes and bytes in a checkpoint")
    inspect.add_argument("file", metavar="FILE", type=Path, help="a safetensors file, as Session.save writes it")
    doc = "measure staticgrad beside other systems, in a checkout; its own options follow"
    commands.add_parser("bench", help=doc, add_help=False, allow_abbrev=False).set_defaults(run=_bench)
    return parser


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=("conv", "mlp"), default="conv", help="the net; default conv")
    parser.add_argument("--epochs", type=_count, metavar="N", help="how many in all; default as the net needs")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default demo-out")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR, bit for bit")
    parser.add_argument("--seed", type=_seed, metavar="N", help="of weights, dropout and batches; default 0")


def _compile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a graph, as sg.save_graph writes it")
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="the file to write")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=f"of OUT; default {FORMATS[0]}")
    parser.add_argument(
        "--target", metavar="T", action="append",
        help="the processor to compile for, default this one; may be repeated for a program",
    )  # fmt: skip
    parser.add_argument("--optimize", choices=OPTIMIZE, default=OPTIMIZE[0], help=f"default {OPTIMIZE[0]}")
    parser.add_argument("--name", metavar="N", help="what the names in C begin with; default: that of OUT")
    parser.add_argument(
        "--entry", metavar="NAME", action="append", default=[],
        help="an entry of the graph to export, may be repeated; default: all, or in a graph without any one function"
        f" {WHOLE!r} that computes every result",
    )  # fmt: skip
    parser.add_argument(
        "--size", metavar="NAME=N", type=_named_size, action="append", default=[], help="an open size, may be repeated"
    )
    parser.add_argument(
        "--state", metavar="FILE", type=Path,
        help="a checkpoint with the first values of variables; default: the state saved with the graph, or else seed 0",
    )  # fmt: skip


def _named_size(text: str) -> tuple[str, int]:
    name, mark, number = text.rpartition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=N, actual {text!r}")
    return name, _whole(number, 0, 2**31 - 1, "a size")


def _whole(text: str, least: int, most: int, what: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected {what}, actual {text!r}")
    return value


def _count(text: str) -> int:
    return _whole(text, 1, 10**6, "a whole number of at least 1")


def _seed(text: str) -> int:
    return _whole(text, 0, 2**63 - 1, "a whole number of at least 0 and less than 2**63")


def _alignment(text: str) -> int:
    value = _whole(text, 1, 2**30, "a power of two")
    if value & (value - 1):
        raise argparse.ArgumentTypeError(f"expected a power of two, actual {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds of at least 0, actual {text!r}")
    return value


# -- commands -------------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    missing = [package for module, package in DEMO_NEEDS.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise StaticGradError(f'the demo needs {", ".join(missing)}: pip install ".[demo]" in a checkout')
    from staticgrad.tools.demo import Settings, run

    names = ("model", "epochs", "seed", "out", "resume")
    run(Settings(**{name: getattr(arguments, name) for name in names}))


def _ops(_: argparse.Namespace) -> None:
    from staticgrad.base.tables import table

    FUNCTIONS.complete()
    rows = [(op.name, kind(op), dtypes(op.dtypes), op.doc) for _, op in sorted(OPS.items())]
    print(table(("op", "kind", "dtypes", "what it does"), rows, right=()))


def dtypes(dtypes: tuple[np.dtype, ...]) -> str:
    """The dtypes that an op takes, many by one name; ops whose dtypes follow from their attributes list none."""
    from staticgrad.ops.declare import INTEGRAL, NUMERIC

    named = {DTYPES: "any", NUMERIC: "numeric", INTEGRAL: "bool, integers", INTEGERS: "integers", FLOATS: "floats"}
    return named.get(dtypes) or " ".join(dtype.name for dtype in dtypes) or "-"


def kind(op: Op) -> str:
    """The way in which an op is computed: element by element, as a view, by a kernel of its own, for its effect, or
    from other ops."""
    return "effect" if op.effect else op.role


def _cache(arguments: argparse.Namespace) -> None:
    from staticgrad.compiler.native import cache

    place = cache.directory()
    if place is None:
        print("compiled programs are not kept (STATICGRAD_CACHE=0)")
        return
    try:
        kept = cache.entries(place)
    except OSError as refusal:
        print(f"compiled programs are not kept: {refusal}")
        return
    print(f"{place}: {len(kept)} entries, {sum(size for _, size, _ in kept)} of at most {cache.LIMIT} bytes")
    if arguments.clear:
        print(f"dropped {cache.clear()}")


def _info(arguments: argparse.Namespace) -> None:
    if arguments.file is not None:
        from staticgrad.saving.filekinds import report

        print(report(arguments.file))
        return
    from staticgrad.base.tables import table
    from staticgrad.compiler.machine.target import current_target

    target = current_target()
    packages = ("staticgrad", "numpy", "llvmlite", "networkx", "ml_dtypes")
    rows = [
        *((name, _version(name)) for name in packages),
        ("python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("target", f"{target.name}: vectors of {target.isa.vector_bytes} bytes, {target.isa.registers} registers"),
        ("cores", f"{config.available_cores()} of {os.cpu_count()}"),
    ]
    print("\n".join(f"{name:<12}{value}" for name, value in rows))
    switches = []
    for switch in config.SWITCHES.values():
        value = config.get(switch.name)
        mark = "" if value == switch.default else "set"
        switches.append((config.PREFIX + switch.name, value or "-", mark, switch.doc))
    print("\n" + table(("switch", "value", "", "meaning"), switches, right=()))


def _plan(arguments: argparse.Namespace) -> None:
    from staticgrad.base.tables import byte_text, table
    from staticgrad.compiler.memory.checker import check
    from staticgrad.compiler.placement.placement import place

    intervals = _intervals(arguments.file)
    plan = place(intervals, alignment=arguments.alignment, seconds=arguments.seconds)
    check(intervals, plan.offsets, plan.arena_bytes, alignment=arguments.alignment)
    placed = list(zip(intervals, plan.offsets, strict=True))
    if arguments.json:
        offsets = {interval.name: offset for interval, offset in placed}
        sizes = {"arena_bytes": plan.arena_bytes, "lower_bound_bytes": plan.lower_bound_bytes}
        print(json.dumps({**sizes, "offsets": offsets}))
        return
    rows = [(i.name, str(i.nbytes), str(offset), str(i.first), str(i.last)) for i, offset in placed]
    print(table(("id", "size", "offset", "lower", "upper"), rows, right=(1, 2, 3, 4)))
    above = plan.arena_bytes / plan.lower_bound_bytes - 1 if plan.lower_bound_bytes else 0.0
    print(
        f"\narena {plan.arena_bytes} bytes ({byte_text(plan.arena_bytes)}), {above:.1%} above the lower bound"
        f" of {plan.lower_bound_bytes}; {len(placed)} buffers"
    )


def _intervals(path: Path) -> Sequence[Interval]:
    """The buffers of a CSV problem, or of the program of a saved graph's text."""
    from staticgrad.base.files import opened
    from staticgrad.compiler.placement.problems import Interval, read_csv
    from staticgrad.runtime.files.graphfile import is_graph
    from staticgrad.saving.filekinds import HEAD, is_graph_text

    with opened(path) as file:
        is_text = is_graph_text(file.read(HEAD), 0)
    if not is_text and not is_graph(path):
        return read_csv(path)
    program, _, _ = _program(path)
    return [Interval(f"{b.name}#{n}", b.first, b.last, b.nbytes) for n, b in enumerate(program.buffers)]


def _program(path: Path) -> tuple[Program, list[str], list[str]]:
    """The program that computes every result of a saved graph, and the names of what is fed and fetched."""
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.compiler.pipeline import compile_region
    from staticgrad.compiler.regions.cut import cut
    from staticgrad.saving.graphs import load_graph, whole

    graph = load_graph(path)
    fetches, shapes = whole(graph)
    feeds = {x: x.type for x in shapes}
    for x in feeds:
        if not x.type.static:
            raise StaticGradError(f"{path}: {x.name!r} has a size that feeds bind ({x.type}): no plan without it")
    program = compile_region(cut(graph, fetches, feeds), CompileOptions.from_environment())
    return program, [x.name for x in feeds], [y.name for y in fetches if isinstance(y, Tensor)]


def _compile(arguments: argparse.Namespace) -> None:
    from staticgrad.runtime.export.export import export
    from staticgrad.runtime.files.graphfile import read
    from staticgrad.runtime.session.session import Session
    from staticgrad.saving.graphs import bound, graph_of, whole

    file = read(arguments.file)
    graph = graph_of(arguments.file, file)
    entries = graph.entries or {WHOLE: whole(graph)}
    for name in arguments.entry:
        if name not in entries:
            there = ", ".join(map(repr, entries))
            raise StaticGradError(f"{arguments.file}: there is no entry {name!r}, expected one of {there}")
    chosen = bound({name: entries[name] for name in arguments.entry or entries}, dict(arguments.size))
    session = Session(graph)
    if arguments.state is not None or file.state is not None:
        session.restore(arguments.state or arguments.file)
    programs = {name: session.compile(fetches, feeds) for name, (fetches, feeds) in chosen.items()}
    targets = arguments.target or [None]
    how = {name: getattr(arguments, name) for name in ("format", "name", "optimize")}
    print(export(arguments.out, programs, target=targets if len(targets) > 1 else targets[0], **how))


def _view(arguments: argparse.Namespace) -> None:
    from staticgrad.base.files import path_of
    from staticgrad.runtime.measured.view import page

    program, feeds, fetches = _program(arguments.file)
    out = Path(path_of(arguments.out or arguments.file.with_suffix(".html")))
    out.write_text(page(program, feeds, fetches, title=arguments.file.name), encoding="utf-8")
    print(f"{out}: {len(program.costs)} kernels, arena {program.arena_bytes} bytes")


def _bench(arguments: argparse.Namespace) -> None:
    """Runs the benchmarks with the arguments that follow; their exit status is ours."""
    import subprocess

    status = subprocess.run([sys.executable, str(_benchmarks()), *arguments.rest], check=False).returncode
    if status:
        raise SystemExit(status)


def _benchmarks() -> Path:
    """The benchmarks of the checkout that this package is imported from, or else of the one we are in."""
    places = [Path(__file__).resolve().parent.parent.parent, Path.cwd()]
    for place in places:
        found = place / "benchmarks" / "run.py"
        if found.is_file() and (place / "staticgrad" / "tools" / "cli.py").is_file():
            return found
    raise StaticGradError(
        f"bench: no benchmarks/ beside the package in {places[0]} or in {places[1]}: they come with the source tree,"
        " not with the installed package; go to a checkout, or install from it with pip install --editable"
    )


def _inspect(arguments: argparse.Namespace) -> None:
    from staticgrad.saving.filekinds import tensors_text

    print(tensors_text(arguments.file))
