"""Families of ops are imported when one of their functions is asked for; nothing may lean on others being there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest
from source_tree import modules

from staticgrad.graph.optable import FUNCTIONS, OPS
from staticgrad.ops import DEFINED

# In a process that has only imported the facade, others begin: one for each family, which does with its ops what users
# do with them, and with no family around that nobody asked for.
ALONE = """
import importlib, json, os, sys, warnings
import numpy as np
import staticgrad as sg
from staticgrad.graph import optable
from staticgrad.graph.optable import FUNCTIONS, OPS

os.environ["STATICGRAD_BACKEND"] = sys.argv[1]
warnings.simplefilter("ignore")
np.seterr(all="ignore")

def begin(function, *args):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            function(*args)
        except BaseException as error:
            print(*args, f"{type(error).__name__}: {error}".replace(chr(10), " "))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)

def ask(name):
    assert callable(getattr(FUNCTIONS, name))

def families(answer):
    found, honest = {}, optable.register
    def register(op):
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if op.cases and not op.effect:
            found.setdefault(frame.f_globals["__name__"], []).append(op.name)
        return honest(op)
    optable.register = register
    FUNCTIONS.complete()
    os.write(answer, json.dumps(found).encode())

def use(family, names):
    importlib.import_module(family)
    for name in names:
        try:
            use_op(dict.__getitem__(OPS, name))
        except Exception as error:
            raise RuntimeError(f"{name}: {error!r}") from error

def use_op(op):
    case = op.cases[0]
    rng = np.random.default_rng(0)
    float32 = np.dtype("float32")
    dtype = op.dtypes[0] if op.dtypes and float32 not in op.dtypes else float32
    dtypes = [d or dtype for d in case.dtypes or [None] * len(case.shapes)]
    with sg.Graph() as graph:
        xs = [sg.placeholder(shape, d) for shape, d in zip(case.shapes, dtypes)]
        ys = graph.add(op, xs, case.attrs).outputs
        chosen = xs if case.differentiable is None else [xs[i] for i in case.differentiable]
        fetches, floats = list(ys), [x for x in chosen if x.dtype.kind == "f"]
        if op.differentiable and floats and ys[0].dtype.kind == "f":
            once = [d for d in sg.gradients(ys[0], floats) if d is not None]
            twice = [d for d in sg.gradients(once[0], floats) if d is not None] if once else []
            fetches += once + twice
    def drawn(x):
        value = rng.uniform(0.2, 0.8, x.shape) if x.dtype.kind == "f" else rng.integers(0, 2, x.shape)
        return (case.prepared(value) if case.prepared and x is xs[0] else value).astype(x.dtype)
    sg.Session(graph).run(fetches, {x: drawn(x) for x in xs})

if sys.argv[2:]:
    for name in sys.argv[2:]:
        begin(ask, name)
else:
    answer, end = os.pipe()
    begin(families, end)
    for family, names in json.loads(os.read(answer, 1 << 16)).items():
        begin(use, family, names)
"""
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="begins processes")


def alone(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", ALONE, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_each_function_is_defined_where_the_index_says() -> None:
    for module, names in DEFINED.items():
        values = vars(importlib.import_module(f"staticgrad.ops.{module}")).values()
        functions = [value for value in values if callable(value)]
        strange = [name for name in names.split() if not any(f is getattr(FUNCTIONS, name) for f in functions)]
        assert not strange, f"{module} does not define {strange}"


def test_the_index_is_whole() -> None:
    registered, entered = set(FUNCTIONS._functions), set(OPS)
    missing = registered - {name for names in DEFINED.values() for name in names.split()}
    assert not missing, f"name them in staticgrad/ops/__init__.py: {sorted(missing)}"
    for module in sorted(name for name in modules() if name.startswith("staticgrad.ops.")):
        importlib.import_module(module)
    assert set(FUNCTIONS._functions) == registered
    assert set(OPS) == entered, "name the module in staticgrad/ops/__init__.py"


@forks
def test_a_function_is_found_before_its_family_is_imported() -> None:
    names = [name for names in DEFINED.values() for name in names.split()]
    assert alone("reference", *names) == ""


def test_a_program_brings_few_families() -> None:
    program = "import staticgrad as sg, sys; x = sg.placeholder((2,)); sg.nn.relu(x) + x; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    others = {f"staticgrad.{name}" for name in ("ops.linalg.singular", "ops.losses.classes", "nn.layers.affine")}
    assert "staticgrad.ops.elementwise.activations" in loaded
    assert not others & loaded


@forks
def test_ops_need_no_family_that_nobody_asked_for() -> None:
    assert alone("reference") == ""


@forks
@pytest.mark.slow
def test_compiled_ops_need_no_family_that_nobody_asked_for() -> None:
    assert alone("compiled") == ""
