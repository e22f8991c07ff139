"""Files that a user names: replaced as a whole or not at all, and read only if they are regular ones.

``replace`` writes beside the file and renames. The new file has the mode and the owner of the old one; a symbolic link
stays, and what it names is replaced; what is no regular file is refused. The file that is being written is locked, so
that the next ``replace`` of the same path can tell the file of a process that was killed, and removes it.

A file may be one that another file names, after its content (``held``); it must not be removed between its writing and
the moment when the other one is published. So whoever writes it, or finds it there, shares a lock on it until then, and
``remove_unheld`` removes what it alone has locked. A path keeps its file meanwhile: only who has locked the file that
lies there for itself may put another one in its place or take it away. Where files cannot be locked, none is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from staticgrad.base.errors import FormatError

KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)
OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends
WRITABLE = stat.S_IWGRP | stat.S_IWOTH  # by others than the owner
RENAMES_OPEN_FILES = sys.platform != "win32"


def path_of(path: str | os.PathLike[str]) -> str:
    """A path as text.

    Raises:
        FormatError: it is empty, or no system allows it.
        TypeError: it is no path.
    """
    text = os.fsdecode(path)
    what = ""
    if "\0" in text:
        what = ", which has a NUL character"
    else:
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            what = ", which the file system cannot encode"
    if what or not text:
        raise FormatError(f"path: expected the path of a file, actual {text!r}{what}")
    return text


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """The system's status of a regular file, or of the one that a link names.

    Raises:
        FormatError: the path is none, or names something else.
        OSError: there is nothing, or it cannot be reached.
    """
    status = os.stat(path_of(path))
    _refuse_irregular(path, status)
    return status


def _refuse_irregular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        actual = next((kind for is_kind, kind in KINDS if is_kind(status.st_mode)), "something else")
        raise FormatError(f"{os.fsdecode(path)}: expected a regular file, actual {actual}")


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A regular file, open for reading. All that is read of it is of one file, whoever replaces it meanwhile.

    Raises:
        FormatError: the path is none, or names something else; nothing is waited for.
        OSError: there is nothing, or it cannot be read.
    """
    check_regular(path)  # a socket cannot be opened at all, a device may act on it
    descriptor = os.open(path, os.O_RDONLY | (OPEN & ~getattr(os, "O_NOFOLLOW", 0)) | BINARY)
    try:
        _refuse_irregular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:
        yield file


def read_regular(path: str | os.PathLike[str]) -> tuple[bytes, os.stat_result]:
    """The content of a regular file and its status, both of one open file, which cannot be exchanged in between.

    Raises:
        FormatError: as ``opened``.
        OSError: as ``opened``.
    """
    with opened(path) as file:
        return file.read(), os.fstat(file.fileno())


def replace(path: str | os.PathLike[str], data: bytes, *, owned: bool = False) -> None:
    """Make ``path`` a file of these bytes; whoever opens it meanwhile finds what was there before. One that is
    ``owned`` only its owner may write to, whatever the process's umask or the old file's mode.

    Raises:
        FormatError: the path is none, or names what is no regular file.
        OSError: the file or its folder cannot be written, or the file's owner cannot be kept.
    """
    replace_all([(path, data)], owned=owned)


def replace_all(files: Iterable[tuple[str | os.PathLike[str], bytes]], *, owned: bool = False) -> None:
    """``replace`` several files: none is, if one of them cannot be written. They are renamed one right after the other;
    where a process ends in between, or two replace the same files at once, some may be of the one and some of the
    other.

    Raises:
        FormatError: as ``replace``.
        OSError: as ``replace``.
    """
    taken = WRITABLE if owned else 0
    with contextlib.ExitStack() as stack:
        made = []
        for path, data in files:
            target, before = replaceable(path)
            made.append((stack.enter_context(_written(target, data, before, taken))[1], target))
        for temporary, target in made:
            os.replace(temporary, target)  # while it is locked
    for folder in {os.path.dirname(target) for _, target in made}:
        _sync(folder)


def replaceable(path: str | os.PathLike[str]) -> tuple[str, os.stat_result | None]:
    """The file that a path names once all links are followed, and its status if it is there.

    Raises:
        FormatError: the path is none, or names what is no regular file.
        OSError: the file cannot be written.
    """
    try:
        before = check_regular(path)
    except FileNotFoundError:
        before = None
    target = os.path.realpath(path_of(path))
    if before is not None:  # it must be writable, though it is not the file that is written
        os.close(os.open(target, os.O_WRONLY | OPEN))
    return target, before


@contextlib.contextmanager
def _written(target: str, data: bytes, before: os.stat_result | None, taken: int = 0) -> Iterator[tuple[int, str]]:
    """A file beside ``target`` with its new content: its descriptor and its path. It is locked until the end, where it
    is removed unless it was renamed. It has the mode and the owner of ``before``, without the bits that are taken."""
    folder, name = os.path.split(target)
    remove_abandoned(folder, re.escape(name))
    descriptor, temporary = _create(target, (0o666 if before is None else 0o600) & ~taken)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        if before is not None:
            _take_over(descriptor, before, target, taken)
        os.fsync(descriptor)
        if not RENAMES_OPEN_FILES:
            os.close(descriptor)
            descriptor = -1
        yield descriptor, temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if descriptor >= 0:
            _release(descriptor)


# -- files that others name -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(path: str, data: bytes, like: os.stat_result | None) -> Iterator[None]:
    """Make ``path``, which is named after this content, a file of these bytes, or leave it if it is one. Until the end
    of the block ``remove_unheld`` leaves it alone. A new one has the mode and the owner of ``like``.

    Raises:
        OSError: the file or its folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        descriptor, temporary = stack.enter_context(_written(path, data, like))
        if not RENAMES_OPEN_FILES:
            os.replace(temporary, path)
        else:
            _lock(descriptor, wait=True, shared=True)
            while not _has_put(temporary, path, data, stack):
                pass
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # the other name of a file that was linked
        _sync(os.path.dirname(path))
        yield


def _has_put(temporary: str, path: str, data: bytes, stack: contextlib.ExitStack) -> bool:
    """Rename a file to a path where nothing lies, or nothing that can be read as these bytes; what can is held instead,
    until the end of the stack. False where another process has put another file there meanwhile."""
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        pass
    except OSError:  # a file system without links: what lies there is not locked against who removes it just now
        os.replace(temporary, path)
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | OPEN | BINARY)
    except FileNotFoundError:
        return False
    with contextlib.ExitStack() as attempt:
        attempt.callback(_release, descriptor)
        _lock(descriptor, wait=True, shared=True)
        if not _lies_at(descriptor, path):
            return False
        with open(descriptor, "rb", closefd=False) as file:
            if file.read() == data:
                stack.push(attempt.pop_all())
                return True
        _lock(descriptor, wait=True)  # gives the shared lock back first: of two that repair a file one does
        if not _lies_at(descriptor, path):
            return False
        os.replace(temporary, path)
        return True


def remove_unheld(path: str, is_needed: Callable[[], bool]) -> None:
    """Remove a file that no process holds, unless it is needed then; who names it holds it until it is.

    Raises:
        OSError: it cannot be reached or removed.
    """
    descriptor = os.open(path, os.O_RDONLY | OPEN | BINARY)
    try:
        if _lock(descriptor, wait=False) and _lies_at(descriptor, path) and not is_needed():
            os.unlink(path)
    finally:
        _release(descriptor)


def _lies_at(descriptor: int, path: str) -> bool:
    """True if an open file is the regular one at a path."""
    status = os.fstat(descriptor)
    try:
        return stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.lstat(path))
    except FileNotFoundError:
        return False


# -- how files are written --------------------------------------------------------------------------------------------


def _take_over(descriptor: int, before: os.stat_result, path: str, taken: int) -> None:
    """Give an open file the owner and the mode that another one has, without the bits that are taken from it."""
    if sys.platform != "win32":
        now = os.fstat(descriptor)
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
            try:
                os.fchown(descriptor, before.st_uid, before.st_gid)
            except PermissionError as error:
                text = f"the file's owner {before.st_uid}:{before.st_gid} cannot be kept"
                raise PermissionError(errno.EPERM, text, path) from error
        os.fchmod(
            descriptor, stat.S_IMODE(before.st_mode) & ~taken
        )  # after the owner, whose change takes bits of the mode


def _create(target: str, mode: int) -> tuple[int, str]:
    """A new file beside ``target``, open for writing and locked, and its path."""
    folder, name = os.path.split(target)
    while True:
        path = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN | BINARY, mode)
        except OSError as error:
            error.filename = target  # which the user has named
            raise
        try:
            _lock(descriptor, wait=True)
            if os.fstat(descriptor).st_nlink:
                return descriptor, path
        except BaseException:  # Ctrl-C while waiting
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        os.close(descriptor)  # another process took it for abandoned before it was locked


def remove_abandoned(folder: str, names: str) -> None:
    """Remove what was being written in a folder by processes that are no more, in the place of files whose names match
    a pattern: such files are never locked."""
    ours = re.compile(rf"\.(?:{names})\.[0-9a-f]{{16}}")
    with contextlib.suppress(OSError):
        for other in os.listdir(folder):
            if ours.fullmatch(other):
                with contextlib.suppress(OSError):
                    _remove_unlocked(os.path.join(folder, other))


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | OPEN)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor, wait=False):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool, shared: bool = False) -> bool:
    """Lock an open file until it is released, if no other process has, or share its lock; false where locks are not to
    be had. A lock that is there already is changed, not at once: others may have it in between."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _release(descriptor: int) -> None:
    """Unlock and close an open file. Closing alone leaves it locked for as long as a process lives that was forked
    meanwhile."""
    if sys.platform != "win32":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _sync(folder: str) -> None:
    """Write a folder to the disk, where the system can: a file's new name is part of it."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
