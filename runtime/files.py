"""Files that a user names: replaced as a whole or not at all, and read only if they are regular ones.

``replace`` writes beside the file and renames. The new file has the mode and the owner of the old one; a symbolic link
stays, and what it names is replaced; what is no regular file is refused. The file that is being written is locked, so
that the next ``replace`` of the same path can tell the file of a process that was killed, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys

from staticgrad.errors import FormatError

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


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """The system's status of a regular file, or of the one that a link names.

    Raises:
        FormatError: the path is empty or names something else.
        OSError: there is nothing, or it cannot be reached.
    """
    if not os.fspath(path):
        raise FormatError("expected the path of a file, actual ''")
    status = os.stat(path)
    _refuse_irregular(path, status)
    return status


def _refuse_irregular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        actual = next((kind for is_kind, kind in KINDS if is_kind(status.st_mode)), "something else")
        raise FormatError(f"{os.fspath(path)}: expected a regular file, actual {actual}")


def read_regular(path: str | os.PathLike[str]) -> tuple[bytes, os.stat_result]:
    """The content of a regular file and its status, both of one open file: nobody can exchange it in between.

    Raises:
        FormatError: the path is empty or names something else; nothing is waited for.
        OSError: there is nothing, or it cannot be read.
    """
    if not os.fspath(path):
        raise FormatError("expected the path of a file, actual ''")
    descriptor = os.open(path, os.O_RDONLY | (OPEN & ~getattr(os, "O_NOFOLLOW", 0)) | BINARY)
    try:
        status = os.fstat(descriptor)
        _refuse_irregular(path, status)
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.readall(), status
    finally:
        os.close(descriptor)


def replace(path: str | os.PathLike[str], data: bytes, *, owned: bool = False) -> None:
    """Make ``path`` a file of these bytes; whoever opens it meanwhile finds what was there before. One that is
    ``owned`` nobody but its owner may write to, whatever the process's umask or the old file's mode.

    Raises:
        FormatError: the path is empty or names what is no regular file.
        OSError: the file or its folder cannot be written, or the file's owner cannot be kept.
    """
    try:
        before = check_regular(path)
    except FileNotFoundError:
        before = None
    target = os.path.realpath(path)
    if before is not None:  # it must be writable, though it is not the file that is written
        os.close(os.open(target, os.O_WRONLY | OPEN))
    _remove_abandoned(target)
    taken = WRITABLE if owned else 0
    descriptor, temporary = _create(target, (0o666 if before is None else 0o600) & ~taken)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if before is not None:
                _take_over(file.fileno(), before, target, taken)
            file.flush()
            os.fsync(file.fileno())
            if RENAMES_OPEN_FILES:
                os.replace(temporary, target)  # while it is locked
        if not RENAMES_OPEN_FILES:
            os.replace(temporary, target)
        _sync(os.path.dirname(target))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


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


def _remove_abandoned(target: str) -> None:
    """Remove what was being written in the place of ``target`` by processes that are no more: such files are locked by
    nobody."""
    folder, name = os.path.split(target)
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}")
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


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file until it is closed, if nobody else has; false where locks are not to be had."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _sync(folder: str) -> None:
    """Write a folder to the disk, where the system can: a file's new name is part of it."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
