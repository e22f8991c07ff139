"""Python's cyclic garbage collection, held back while large graphs are made and modules are imported.

The nodes of a graph and their tensors refer to each other, and none of them is garbage while a compilation runs. Each
full collection visits all of them again, which makes every phase slower the larger the graph is.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

# CPython 3.12 has 375 objects frozen when it starts, others none; whoever freezes has thousands, even of Python's own.
FROZEN_AT_START = 1000


@contextlib.contextmanager
def collection_held() -> Iterator[None]:
    """Disable the cyclic garbage collection inside, unless another thread enables it again. Decorates functions too."""
    if not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import inside. What modules are made of lives as long as the process: it joins the oldest generation without
    being visited, unless the user has frozen objects."""
    before = len(sys.modules)
    with collection_held():
        yield
        if (
            len(sys.modules) > before
            and sys.implementation.name == "cpython"
            and gc.get_freeze_count() < FROZEN_AT_START
        ):
            gc.freeze()
            gc.unfreeze()
