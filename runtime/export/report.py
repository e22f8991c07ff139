"""The report of an export: the files that it has written, and the memory that their functions need."""

from __future__ import annotations

import json
from pathlib import Path

from staticgrad.base.frozen import frozen
from staticgrad.base.tables import byte_text
from staticgrad.runtime.export.interface import ExportInterface, to_plain


@frozen
class ExportReport:
    """The files that an export has written, and what they need.

    Attributes:
        files: the file that was asked for, then those beside it: the header, the state as it begins.
        interface: entries, their arrays, the state's layout.
        code_bytes: machine code; ``constant_bytes`` constants, such as the state as it begins. Both lie in flash.
        digest: SHA-256 of the first file.
    """

    files: tuple[Path, ...]
    interface: ExportInterface
    code_bytes: int
    constant_bytes: int
    digest: str

    @property
    def flash_bytes(self) -> int:
        """Bytes that are only read, code and constants."""
        return self.code_bytes + self.constant_bytes

    @property
    def ram_bytes(self) -> int:
        """Bytes that are written, the state and the largest workspace, as one is enough where entries run one after
        the other. Feeds and results are the caller's, as is the stack."""
        return self.interface.state.nbytes + max(entry.workspace_bytes for entry in self.interface.entries)

    @property
    def stack_bytes(self) -> int:
        """Bytes of the stack that a call of any entry takes at most; beyond is in the workspace."""
        return max(entry.stack_bytes for entry in self.interface.entries)

    def json(self) -> str:
        """The interface as JSON, for programs that call the functions by it: name, target, entries (feeds, results,
        bytes of workspace and of the stack, checks), state (bytes, arrays at their offsets)."""
        return json.dumps(to_plain(self.interface), indent=1)

    def __str__(self) -> str:
        def line(what: str, nbytes: int) -> str:
            return f"{what:<24}{nbytes:>12}  {byte_text(nbytes)}"

        spaces = [(f"  workspace {e.name}", e.workspace_bytes) for e in self.interface.entries]
        return "\n".join([
            f"{', '.join(map(str, self.files))} for {self.interface.target}", line("flash", self.flash_bytes),
            line("  code", self.code_bytes), line("  constants", self.constant_bytes), line("RAM", self.ram_bytes),
            line("  state", self.interface.state.nbytes), *(line(*space) for space in spaces),
            line("stack, at most", self.stack_bytes),
        ])  # fmt: skip
