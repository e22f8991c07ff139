"""``frozen`` and ``record`` make what ``dataclass`` makes with ``slots=True``, frozen or equal to itself alone."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest
from source_tree import modules

from staticgrad.base.frozen import OFTEN, frozen, record


@frozen
class Point:
    """A place."""

    x: int
    y: float = 2.0
    names: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)


@frozen(eq=False)
class Itself:
    """Equal to itself alone."""

    x: int


@frozen
class Nothing:
    """Has no fields."""


Make = Callable[[type], type]
STANDARD: Make = dataclass(frozen=True, slots=True)
STANDARD_RECORD: Make = dataclass(eq=False, slots=True)


def classes(make: Make) -> dict[str, type]:
    @make
    class Plain:
        x: int
        y: int = 3

        def total(self) -> int:
            return self.x + self.y

    @make
    class Factory:
        x: list[int] = field(default_factory=lambda: [1])
        y: int = field(default=4, kw_only=True)
        z: int = field(default=5, init=False)

    @make
    class Checked:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return f"<{self.x}>"

    return {"Plain": Plain, "Factory": Factory, "Checked": Checked}


CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("Plain", (1,), {}),
    ("Plain", (1, 2), {}),
    ("Plain", (), {"y": 1, "x": 2}),
    ("Plain", (), {}),
    ("Plain", (1, 2, 3), {}),
    ("Plain", (1,), {"w": 2}),
    ("Factory", (), {}),
    ("Factory", ([2],), {"y": 9}),
    ("Factory", ([2], 9), {}),
    ("Factory", (), {"z": 1}),
    ("Checked", (1,), {}),
    ("Checked", (-1,), {}),
)


@pytest.mark.parametrize("calls", [0, OFTEN])
@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_it_makes_the_objects_that_a_dataclass_makes(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], calls: int
) -> None:
    """``calls``: of the initializer before this one."""

    def outcome(make: Make) -> object:
        made = classes(make)[name]
        for _ in range(calls):
            made(*([0] if name != "Factory" else []))
        try:
            made_now = made(*args, **kwargs)
            return {f.name: getattr(made_now, f.name) for f in fields(made_now)}
        except (TypeError, ValueError) as error:
            return type(error)

    assert outcome(frozen) == outcome(STANDARD) == outcome(record) == outcome(STANDARD_RECORD)


def test_a_record_can_be_assigned_to_and_equals_itself_alone() -> None:
    for calls in (0, OFTEN):
        made = classes(record)["Plain"]
        for _ in range(calls):
            made(0)
        first: Any = made(1)
        first.x = 5
        assert (first.x, first.y, first.total()) == (5, 3, 8)
        assert first != made(5)
        assert replace(first, y=1).total() == 6
        with pytest.raises(AttributeError):
            first.other = 2


def test_the_package_makes_its_dataclasses_so() -> None:
    """Those of the standard library take longer to make than the rest of their module."""
    made = [name for name, path in modules().items() if re.search(r"^@dataclass\b", path.read_text(), re.MULTILINE)]
    assert made == []


def test_methods_stay() -> None:
    assert classes(frozen)["Plain"](1).total() == 4


def test_values_compare_by_the_fields_that_count() -> None:
    assert Point(1, note="a") == Point(1, 2.0, [], note="b")
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2.0, [])
    assert hash(Nothing()) == hash(Nothing())
    assert Nothing() == Nothing()
    assert Itself(1) != Itself(1)
    assert len({Itself(1), Itself(1)}) == 2
    plain = classes(frozen)["Plain"]
    assert hash(plain(1, 2)) == hash(plain(1, 2))
    assert len({plain(1, 2), plain(1, 2), plain(2, 1)}) == 2


def test_nothing_can_be_assigned() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises((FrozenInstanceError, AttributeError)):
        point.other = 2
    assert not hasattr(point, "__dict__")


def test_it_is_a_dataclass_to_everybody_else() -> None:
    point = Point(1, names=["a"])
    assert is_dataclass(point)
    assert [f.name for f in fields(point)] == ["x", "y", "names", "note"]
    assert replace(point, x=5) == Point(5, 2.0, ["a"])
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2.0)
        case _:
            pytest.fail("no match")
    assert repr(point) == "Point(x=1, y=2.0, names=['a'])"
    for _ in range(OFTEN):
        Point(1)
    assert "names" in str(inspect.signature(Point.__init__))


@pytest.mark.parametrize("name", ["Plain", "Factory", "Checked"])
def test_its_signature_is_that_of_a_dataclass(name: str) -> None:
    ours, standard, mutable = (inspect.signature(classes(make)[name]) for make in (frozen, STANDARD, record))
    assert str(ours) == str(standard) == str(mutable)


@frozen
class Named(Point):
    """A place with a name, and with other words for it."""

    name: str = "origin"
    note: str = "none"


@dataclass(frozen=True, slots=True)
class StandardNamed:
    """What the standard library makes of the same fields."""

    x: int
    y: float = 2.0
    names: list[str] = field(default_factory=list)
    note: str = "none"
    name: str = "origin"


def test_fields_are_inherited() -> None:
    def known(cls: type) -> list[tuple[Any, ...]]:
        return [(f.name, f.type, f.default, f.repr, f.compare) for f in fields(cls)]

    assert known(Named) == known(StandardNamed)
    assert [f.name for f in fields(Point)] == ["x", "y", "names", "note"]
    assert Named.__match_args__ == StandardNamed.__match_args__  # type: ignore[attr-defined]
    assert Named(1, name="a") == Named(1, 2.0, [], "none", "a")
    assert Named(1, note="a") != Named(1)
    assert repr(Named(1)) == repr(StandardNamed(1)).removeprefix("Standard")
    assert not hasattr(Named(1), "__dict__")


def test_a_default_that_changes_is_refused() -> None:
    for make in (frozen, STANDARD):
        with pytest.raises(ValueError, match="default"):
            make(type("Shared", (), {"__annotations__": {"names": "list[str]"}, "names": []}))


def test_copies() -> None:
    point = Point(1, names=["a"], note="n")
    for again in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert again == point
        assert again.note == "n"


def test_the_product_has_no_frozen_classes_of_the_standard_library() -> None:
    """Half a millisecond each, whenever a process imports one."""
    for name, path in modules().items():
        assert not re.search(r"^@dataclass\(.*frozen=True", path.read_text(encoding="utf-8"), re.MULTILINE), name
