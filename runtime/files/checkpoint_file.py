"""A checkpoint as a file: arrays by name and the random state, with a digest, in the safetensors format.

    notes ::= format, digest, and unless variables were chosen seed and number of runs that have drawn

Sessions and loaded programs write and read the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from staticgrad.base.errors import FormatError
from staticgrad.graph.optable import Array
from staticgrad.runtime.files import tensorfile
from staticgrad.runtime.files.tensorfile import check_digest, digest_of

FORMAT = "staticgrad.checkpoint.2"
WITHOUT_DIGEST = "staticgrad.checkpoint.1"  # of earlier versions, which are read as they are


def notes_of(random: tuple[int, int] | None, notes: Mapping[str, str]) -> dict[str, str]:
    """The notes of a file but for its digest: of seed and number of runs that have drawn, and further ones."""
    known = {} if random is None else {"seed": str(random[0]), "runs_drawn": str(random[1])}
    return {"format": FORMAT, **known, **notes}


def to_bytes(values: Mapping[str, Array], random: tuple[int, int] | None, notes: Mapping[str, str]) -> bytes:
    """A file of these arrays, of seed and number of runs that have drawn, and of further notes."""
    known = notes_of(random, notes)
    return tensorfile.to_bytes(values, known | {"digest": digest_of(values, known)})


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the notes of a file.

    Raises:
        FormatError: a damaged or foreign file.
        OSError: the file can't be read.
    """
    values, notes = tensorfile.read(path)
    _check_whole(path, values, notes)
    return values, notes


def _check_whole(path: str | os.PathLike[str], values: Mapping[str, Array], notes: Mapping[str, str]) -> None:
    if notes.get("format") not in (FORMAT, WITHOUT_DIGEST):
        raise FormatError(
            f"{path}: not written by Session.save\n  expected format {FORMAT}\n  actual   {notes.get('format')}"
            "\n  The arrays of another program's file are taken by name: module.load_state_dict(sess, load_file(path)),"
            " with load_file from safetensors.numpy"
        )
    if "digest" not in notes and notes["format"] == WITHOUT_DIGEST:
        return
    check_digest(path, values, notes)


def random_state(path: str | os.PathLike[str], notes: Mapping[str, str]) -> tuple[int, int] | None:
    """Seed and number of runs that have drawn; None in a file of chosen variables.

    Raises:
        FormatError: they are damaged.
    """
    if notes["format"] == FORMAT and notes.keys().isdisjoint(("seed", "runs_drawn")):
        return None
    try:
        seed, runs = int(notes["seed"]), int(notes["runs_drawn"])
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path}: the random state is damaged: {error}") from error
    if not (-(2**63) <= seed < 2**64 and 0 <= runs < 2**63):
        raise FormatError(f"{path}: the random state is damaged: seed {seed}, {runs} runs")
    return seed, runs
