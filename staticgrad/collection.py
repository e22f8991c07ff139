"""Python's search for garbage in cycles, held back while large graphs are made.

The nodes of a graph and their tensors refer to each other, and none of them is garbage while a compilation runs. Each
search looks at all of them again, which makes every phase slower the larger the graph is.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_held() -> Iterator[None]:
    """No search for cycles inside, unless another thread turns it on again. Decorates functions too."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
