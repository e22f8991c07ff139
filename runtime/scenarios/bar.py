"""Progress of long runs over scenarios: how many are done of how many, after each block.

``True`` is a bar of tqdm, which it also shows in a notebook, where that is installed, else a line of a terminal
(``base.progress``); a function is called with both numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from staticgrad.base.errors import StaticGradError
from staticgrad.base.progress import display

Told = Callable[[int, int], object]


@contextmanager
def told(progress: bool | Told | None, total: int) -> Iterator[Callable[[int], object]]:
    """A function that is given the number of scenarios that are done.

    Raises:
        StaticGradError: ``progress`` is neither a bool nor a function.
    """
    if progress is None or progress is False:
        yield lambda done: None
    elif progress is not True:
        if not callable(progress):
            raise StaticGradError(f"map: progress: expected True or a function of two numbers, actual {progress!r:.80}")
        function = progress
        yield lambda done: function(done, total)
    else:
        with _bar(total) as tell:
            yield tell


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], object]]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        line = display()
        yield lambda done: None if line is None else line.show(f"scenarios: {done:,} of {total:,}")
        if line is not None:
            line.show("")
        return
    with tqdm(total=total, unit=" scenarios", unit_scale=True) as bar:
        yield lambda done: bar.update(done - bar.n)
