"""Callbacks for training loops: a bar of progress, records in files, the best state, an early end.

    TrainingLoop        the loop's side: it is told of steps and epochs, and asks callbacks
    Callback        the base of what it asks

The loop stays the user's own; ``TrainingLoop`` keeps the books.
"""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.hints import missing_from_module
from staticgrad.callbacks.records import CSVLogger, ProgressBar, TensorBoard
from staticgrad.callbacks.states import EarlyStopping, ModelCheckpoint, StopOnNaN
from staticgrad.callbacks.training import Callback, TrainingLoop

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "ModelCheckpoint",
    "ProgressBar",
    "StopOnNaN",
    "TensorBoard",
    "TrainingLoop",
]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
