"""Make a release, all but the upload.

    python tests/release.py [--into FOLDER] [--trial]

The source distribution and the wheel are built twice and must have the same bytes: times are those of the commit, and
the archive is packed anew without owners, in the order of names. Both are checked by twine and check-wheel-contents.
The wheel is installed into an empty environment, where a first program runs; what is installed there with it is written
down as a software bill of materials (CycloneDX). ``SHA256SUMS`` has the digests of all.

A release is refused where files of the tree have changed, CHANGELOG.md has no dated section for the version, or the
version's tag is there already. ``--trial`` makes one all the same: continuous integration does.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST_PROGRAM = """
import numpy as np
import staticgrad as sg

f = sg.value_and_grad(lambda x: (x * x).sum())
value, slope = f(np.array([1.0, 2.0]))
assert (float(value), slope.tolist()) == (5.0, [2.0, 4.0]), (value, slope)
print("staticgrad", sg.__version__)
"""


def said(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """The output of a command; its failure ends this one."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} has failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "staticgrad" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def objections() -> list[str]:
    """Reasons why this tree is no release."""
    found, number = [], version()
    if said("git", "status", "--porcelain"):
        found.append("files of the tree have changed: commit them")
    section = rf"^## {re.escape(number)} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(section, (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        found.append(f"CHANGELOG.md has no section `## {number} (year-month-day)`")
    if said("git", "tag", "--list", f"v{number}"):
        found.append(f"the tag v{number} is there: raise the version in pyproject.toml and staticgrad/__init__.py")
    return found


def repacked(path: Path, seconds: int) -> None:
    """Pack an archive anew: by name, at one time, without owners."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        contents = {member.name: (member, file.read() if file else None) for member, file in members}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for _, (member, content) in sorted(contents.items()):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            archive.addfile(member, None if content is None else io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))


def built(into: Path) -> list[Path]:
    """The source distribution and the wheel of it."""
    seconds = int(said("git", "log", "-1", "--format=%ct"))
    said(sys.executable, "-m", "build", "--outdir", into, environment={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)})
    for path in into.glob("*.tar.gz"):
        repacked(path, seconds)
    return sorted(into.iterdir())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill_of_materials(wheel: Path, folder: Path, path: Path) -> None:
    """Install the wheel into an empty environment, run a first program there, write what is installed."""
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    said(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    print(said(python, "-c", FIRST_PROGRAM, cwd=folder))
    said(python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")  # of the environment, not the wheel
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", "-o", path]
    said(*map(str, tool), str(python))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--trial", action="store_true", help="refuse nothing")
    given = parser.parse_args()
    refused = objections()
    if refused and not given.trial:
        raise SystemExit("no release:\n  " + "\n  ".join(refused))
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        made, again = built(first), built(second)
        differing = [a.name for a, b in zip(made, again, strict=True) if digest(a) != digest(b)]
        if differing:
            raise SystemExit(f"two builds differ: {', '.join(differing)}")
        print(said(sys.executable, "-m", "twine", "check", "--strict", *made))
        (wheel,) = first.glob("*.whl")
        print(said(sys.executable, "-m", "check_wheel_contents", wheel))
        bill_of_materials(wheel, Path(folder), first / f"staticgrad-{version()}.cdx.json")
        shutil.rmtree(given.into, ignore_errors=True)
        shutil.copytree(first, given.into)
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(given.into.iterdir()))
    (given.into / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums + f"in {given.into}")
    if not refused:
        print(f"then: git tag v{version()} && git push origin v{version()}; twine upload {given.into}/staticgrad-*[lz]")


if __name__ == "__main__":
    main()
