"""A folder that only its user can write to, and the files in it.

Input: the path of a folder. Output: contents of its files, if the folder and the file belong to this process's
user and neither the group nor others may write to them. Code from a file of another user would run with this user's
rights.

The folder is opened once, and files are opened through its descriptor. What is checked is what an open descriptor says,
so that no other user can exchange a file between the check and the reading, or the folder by renaming one above it.
Links are not followed inside the folder, and only regular files are read: a FIFO is never waited for.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import TypedDict

WRITABLE = stat.S_IWGRP | stat.S_IWOTH
OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends
HAS_DESCRIPTORS = os.open in os.supports_dir_fd and os.scandir in os.supports_fd  # of folders; Windows has none


class NotPrivate(OSError):
    """A folder or file that another user owns or may write to, or that is no regular file."""


class _At(TypedDict, total=False):
    dir_fd: int


class Folder:
    """An open folder; ``with`` closes it. Names are those of files directly in it.

    Raises:
        NotPrivate: another user owns it or may write to it.
        OSError: there is none, or it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if HAS_DESCRIPTORS else None
        self._at: _At = {} if self._descriptor is None else {"dir_fd": self._descriptor}
        try:
            _refuse_shared(os.stat(path) if self._descriptor is None else os.fstat(self._descriptor), path)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _name(self, name: str) -> str:
        return name if self._at else os.path.join(self.path, name)

    def read(self, name: str, most: int) -> bytes:
        """The contents of a file, whose time of change becomes now.

        Raises:
            NotPrivate: another user owns it or may write to it, it is no regular file, or longer than ``most`` bytes.
            OSError: there is none, or it cannot be read.
        """
        with open(os.open(self._name(name), os.O_RDONLY | OPEN | BINARY, **self._at), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            _refuse_shared(status, name)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise NotPrivate(f"{name}: expected a regular file of at most {most} bytes")
            with contextlib.suppress(OSError):
                os.utime(file.fileno() if self._at else self._name(name))
            return file.readall()

    def write(self, name: str, content: bytes, temporary: str) -> None:
        """Make or replace a file, all or nothing; whoever opens it meanwhile finds what was there before. It is written
        under another name that ends in ``temporary``."""
        other = f"{name}.{os.urandom(8).hex()}{temporary}"
        descriptor = os.open(self._name(other), os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN | BINARY, 0o600, **self._at)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            both = {"src_dir_fd": self._descriptor, "dst_dir_fd": self._descriptor} if self._at else {}
            os.replace(self._name(other), self._name(name), **both)
        except BaseException:  # Ctrl-C while it is written
            self.remove(other)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, if it is there and can be removed."""
        with contextlib.suppress(OSError):
            os.unlink(self._name(name), **self._at)

    def files(self, suffix: str) -> Iterator[tuple[str, os.stat_result]]:
        """The names that end in ``suffix`` of regular files, with what the system says of each."""
        with os.scandir(self.path if self._descriptor is None else self._descriptor) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    with contextlib.suppress(OSError):  # another process removed it just now
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield entry.name, status


def make(path: str) -> None:
    """Make a folder, and those above it that are missing, for this user alone; one that is there is left as it is."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        make(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _refuse_shared(status: os.stat_result, name: str) -> None:
    if not hasattr(os, "geteuid"):
        return  # Windows keeps a user's files apart by other means
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{name}: owned by user {status.st_uid}, not by user {os.geteuid()}")
    if status.st_mode & WRITABLE:
        raise NotPrivate(f"{name}: others than its owner may write to it (mode {stat.S_IMODE(status.st_mode):o})")
