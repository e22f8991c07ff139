"""What users see when they look around: ``dir``, ``help`` and ``import *``."""

from __future__ import annotations

import abc
import builtins
import inspect
import pkgutil
import pydoc
import re
from types import ModuleType
from typing import Any

import api
import numpy as np
import pytest

import staticgrad as sg

HOMES = (
    sg,
    sg.nn,
    sg.nn.functional,
    sg.optim,
    sg.optim.schedules,
    sg.init,
    sg.random,
    sg.linalg,
    sg.array_api,
    sg.callbacks,
    sg.nest,
    sg.distributed,
)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.__name__)
def test_dir_of_a_module_has_its_public_names_alone(home: ModuleType) -> None:
    names = dir(home)
    for name in names:
        assert hasattr(home, name), name
        value = getattr(home, name)
        public = {place.__name__ for place in HOMES}
        assert not isinstance(value, ModuleType) or value.__name__ in public, name
    assert [name for name in names if name[0] == "_"] == (["__version__"] if home is sg else [])
    assert set(home.__all__) <= set(names)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.__name__)
def test_no_import_of_a_module_takes_the_place_of_a_function(home: ModuleType) -> None:
    """Python makes a module an attribute of its package, also where a function has its name."""
    if not hasattr(home, "__path__"):
        return
    modules = {module.name for module in pkgutil.iter_modules(home.__path__)}
    assert not [name for name in modules & set(dir(home)) if not inspect.ismodule(getattr(home, name))]


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.__name__)
def test_a_star_import_leaves_python_s_names_alone(home: ModuleType) -> None:
    names: dict[str, Any] = {}
    exec(f"from {home.__name__} import *", names)
    changed = {name for name in names if name in vars(builtins) and names[name] is not getattr(builtins, name)}
    assert not changed
    assert names.keys() - {"__builtins__"} == {name for name in dir(home) if name[0] != "_"} - vars(builtins).keys()


def test_names_of_python_s_functions_are_public_here_too() -> None:
    shadowing = {name for name in dir(sg) if name in vars(builtins)}
    assert shadowing == {"abs", "all", "any", "bool", "map", "max", "min", "pow", "print", "round", "sum"}


def test_help_of_the_package_describes_public_names_alone() -> None:
    text = pydoc.render_doc(sg, renderer=pydoc.plaintext)
    functions = text[text.index("\nFUNCTIONS\n") : text.index("\nDATA\n")]
    described = set(re.findall(r"^    (\w+)\(", functions, re.MULTILINE))
    assert len(described) > 100
    assert described <= set(dir(sg))
    data = text[text.index("\nDATA\n") : text.index("\nVERSION\n")]
    assert set(re.findall(r"^    (\w+) = ", data, re.MULTILINE)) <= {*dir(sg), "__all__"}


def classes() -> dict[str, type]:
    """The public classes of the package by their documented names."""
    values = {name.full: name.value for name in api.public()}
    return {full: cls for full, cls in values.items() if isinstance(cls, type) and cls.__module__.startswith("static")}


@pytest.mark.parametrize("cls", classes().values(), ids=classes())
def test_dir_and_help_of_a_class_have_documented_names_alone(cls: type) -> None:
    own = [full for full, base in classes().items() if base in cls.__mro__]
    documented = {name for full in own for name in api.documented_of(full)}
    if cls.__module__ == "staticgrad.nn.initializers":  # initializers, which need not derive from their protocol
        documented |= set(api.documented_of("staticgrad.init.Initializer"))
    if cls is sg.Tensor:
        documented |= set(api.functions_of_tensors())
    if not issubclass(cls, Warning):  # whose signatures are Python's
        documented |= set(inspect.signature(cls).parameters)  # what is given is kept under the same name
    ours = {name for base in cls.__mro__ if base.__module__.startswith("static") for name in vars(base)}
    told = {name for name in dir(cls) if name[0] != "_"} & ours
    assert told <= documented
    lines = pydoc.render_doc(cls, renderer=pydoc.plaintext).splitlines()
    members = {found[1] for line in lines if (found := re.match(r" \|  (\w+)(?:$|\(| = )", line))}
    assert {name for name in members if name[0] != "_"} & ours <= documented | {cls.__name__}


@pytest.mark.parametrize("cls", classes().values(), ids=classes())
def test_help_says_how_a_class_is_called(cls: type) -> None:
    if cls.__init__ is object.__init__ or issubclass(cls, Warning) or cls is sg.init.Initializer:
        return  # nothing of ours
    assert inspect.getdoc(cls.__init__) != inspect.getdoc(object.__init__)
    parameters = inspect.signature(cls).parameters
    assert not {"_", "__"} & set(parameters)
    any_number = sg.nn.Identity, sg.nn.Sequential, sg.optim.Optimizer, sg.callbacks.TrainingLoop, sg.callbacks.StopOnNaN
    if cls not in any_number:
        assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters.values())


def test_layers_without_arguments_refuse_them() -> None:
    with pytest.raises(TypeError, match="takes no arguments, actual 3"):
        sg.nn.Sigmoid(3)  # type: ignore[call-arg]
    assert sg.nn.Identity(54, unused=True).training


def test_help_says_what_attributes_are() -> None:
    for cls in (sg.Tensor, sg.Node, sg.Executable):
        names = api.documented_of(f"staticgrad.{cls.__name__}")
        assert not [name for name in names if not inspect.getdoc(inspect.getattr_static(cls, name))]


def test_users_derive_abstract_optimizers() -> None:
    class Rule(sg.optim.Optimizer, abc.ABC):
        @abc.abstractmethod
        def step_size(self) -> float: ...

    with pytest.raises(TypeError, match="step_size"):
        Rule(lr=0.1)


def test_dir_of_objects_has_what_users_may_use() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((2, 2), name="x")
        w = sg.Variable(np.ones(2, np.float32))
        y = sg.sum(w * x)
    sess = sg.Session(g)
    exe, tape = sess.compile(y, [x]), sess.forward(y, {x: np.ones((2, 2), np.float32)})
    allowed = {
        x.op: "attrs graph inputs name op outputs",
        g: "entries finalize finalized nodes text to_networkx variables",
        sess: "check_numerics close compile compile_count forward get grad graph matmul_precision num_threads restore"
        " run save seed set set_all set_grad sizes zero_grad",
        exe: "cfunc cost export feeds fetches map memory profile ready session setup text view wait",
        tape: "backward close memory",
    }
    for there, names in allowed.items():
        assert {name for name in dir(there) if name[0] != "_"} == set(names.split())
    internal = {"accumulation_hooks", "hooks", "index", "original", "source", "type"}
    assert not internal & set(dir(x))
    assert {"shape", "dtype", "T", "sum", "op", "retains_grad"} <= set(dir(x))
    for there in (x, *allowed):
        assert not [name for name in dir(there) if not hasattr(there, name)]
