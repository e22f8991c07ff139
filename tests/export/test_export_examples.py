"""The examples of exported programs: built as their Makefiles say, run on the machine that they are for, or on an
emulator of it, they print the losses of the session in Python."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT

import staticgrad as sg
from staticgrad.compiler.machine.isa import AVX512_ISA
from staticgrad.compiler.machine.target import current_target

Array = np.ndarray[Any, np.dtype[Any]]
EXAMPLES, SUPPORT = ROOT / "examples", ROOT / "tests" / "support"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
EPOCHS = 3  # of tests, where the example has more
PACKAGES = {  # Debian's, by what they bring
    "gcc": "gcc", "g++": "g++", "clang": "clang", "clang++": "clang", "make": "make", "valgrind": "valgrind",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", "qemu-aarch64": "qemu-user",
    "riscv64-linux-gnu-gcc": "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross", "qemu-riscv64": "qemu-user",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi", "qemu-system-arm": "qemu-system-arm",
    "node": "nodejs", "wasm-ld": "lld", "chromium": "chromium",
}  # fmt: skip


@functools.cache
def is_missing(command: str) -> bool:
    """True if there is no such command, or if it is a compiler for another machine without a C library for it."""
    if shutil.which(command) is None or not command.endswith("-gcc"):
        return shutil.which(command) is None
    found = subprocess.run([command, "-print-file-name=libc.a"], capture_output=True, text=True, check=True).stdout
    return "/" not in found


def needs(*commands: str) -> Any:
    """Skip a test where a command is missing; the reason is one line that says how it is installed."""
    lacking = [name for name in commands if is_missing(name)]
    packages = " ".join(dict.fromkeys(PACKAGES[name] for name in lacking))
    return pytest.mark.skipif(bool(lacking), reason=f"no {' and no '.join(lacking)}: apt-get install {packages}")


def example(path: str) -> Any:
    """A module of the examples."""
    place = EXAMPLES / path
    spec = importlib.util.spec_from_file_location(f"exported_{place.stem}", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(command: Sequence[str | Path], **options: Any) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}"
    return done.stdout


def made(folder: str, out: Path, *settings: str) -> str:
    """What ``make`` prints in the folder of an example, after an export into ``out``."""
    return ran(["make", "-s", "-C", EXAMPLES / folder, f"OUT={out}", f"PYTHON={sys.executable}", *settings])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The export of the digits net for a target: a folder of its own."""

    @functools.cache
    def exported(target: str) -> Path:
        folder = tmp_path_factory.mktemp(target)
        example("c/export.py").main([str(folder), "--target", target])
        return folder

    def copied(target: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{target}-copy")
        shutil.copytree(exported(target), folder, dirs_exist_ok=True)
        return folder

    return copied


@functools.cache
def expected(epochs: int) -> tuple[list[float], int]:
    """The losses of the epochs in Python, and how many images of the test are predicted then."""
    module = example("c/export.py")
    step, predict = module.Net().executables().values()
    data, batch = module.data(), module.BATCH
    labels = data["labels"].ravel()
    losses = []
    for _ in range(epochs):
        starts = range(0, len(labels) - batch + 1, batch)
        found = [step(data["pixels"][i : i + batch], labels[i : i + batch])["loss"] for i in starts]
        losses.append(float(np.mean(found, dtype=np.float64)))
    found = [predict(image[None])["digit"][0] for image in data["test_pixels"]]
    return losses, int(np.sum(np.array(found) == data["test_labels"].ravel()))


def check(printed: str, rtol: float, epochs: int = EPOCHS) -> None:
    losses, right = expected(epochs)
    found = [float(x) for x in re.findall(r"^epoch \d+: loss (\S+)$", printed, re.MULTILINE)]
    assert len(found) == epochs, printed
    np.testing.assert_allclose(found, losses, rtol=rtol)
    counted = re.search(r"^(\d+) of 360 test images right$", printed, re.MULTILINE)
    assert counted is not None, printed
    assert abs(int(counted[1]) - right) <= (0 if rtol <= 1e-6 else 2)


def build(folder: Path, compiler: str, *flags: str, sources: Sequence[Path] = ()) -> Path:
    """The C program of the example, in the folder of an export."""
    program = folder / "train"
    language = ["-x", "c++", "-std=c++11"] if compiler.endswith("++") else ["-std=c11"]
    command = [compiler, *language, "-O1", "-g", *STRICT, f"-DEPOCHS={EPOCHS}", *flags, f"-I{folder}", f"-I{SUPPORT}"]
    ran([*command, EXAMPLES / "c" / "train.c", *sources, "-x", "none", folder / "net.o", "-o", program])
    return program


HOST = current_target().name


# -- C on this machine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", [pytest.param(x, marks=needs(x)) for x in ("gcc", "clang", "g++", "clang++")])
def test_c_and_cpp_train_to_the_losses_of_the_session(compiler: str, digits: Callable[..., Path]) -> None:
    check(ran([build(digits(HOST), compiler)]), rtol=1e-6)


@needs("make", "gcc")
def test_the_makefile_trains_well(digits: Callable[..., Path]) -> None:
    printed = made("c", digits(HOST))
    check(printed, rtol=1e-6, epochs=10)
    assert expected(10)[1] > 0.94 * 360


@needs("gcc", "valgrind")
def test_valgrind_finds_nothing(digits: Callable[..., Path]) -> None:
    target = "avx2" if current_target().isa == AVX512_ISA else HOST  # which valgrind knows
    program = build(digits(target), "gcc")
    check(ran(["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", program]), rtol=1e-5)


@needs("gcc")
def test_sanitizers_find_nothing(digits: Callable[..., Path]) -> None:
    program = build(digits(HOST), "gcc", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    check(ran([program]), rtol=1e-6)


@needs("gcc")
def test_nothing_is_allocated(digits: Callable[..., Path], tmp_path: Path) -> None:
    heap = SUPPORT / "no_heap.c"
    check(ran([build(digits(HOST), "gcc", sources=[heap])]), rtol=1e-6)
    (tmp_path / "main.c").write_text('#include <stdio.h>\nint main(void) { return puts("buffered") < 0; }\n')
    ran(["gcc", tmp_path / "main.c", heap, "-o", tmp_path / "main"])
    assert subprocess.run([tmp_path / "main"], stdout=subprocess.DEVNULL, check=False).returncode < 0


def guarded(folder: Path, lacking: int = 0) -> Path:
    """The program with memory between pages that nobody may touch; labels are ``lacking`` bytes short."""
    lines = []
    interface = json.loads((folder / "net.json").read_text(encoding="utf-8"))
    for entry in interface["entries"]:
        feeds, results = ([bytes_of(x) for x in entry[key]] for key in ("feeds", "results"))
        feeds[-1] -= lacking
        given = ", ".join(f"SIZES({', '.join(map(str, sizes))})" for sizes in (feeds, results))
        lines.append(f"ENTRY({entry['name']}, {given}, {entry['workspace']})\n")
    (folder / "entries.h").write_text("".join(lines), encoding="utf-8")
    names = ",".join(f"--wrap={entry['name']}" for entry in interface["entries"])
    sources = [SUPPORT / "guarded_calls.c", SUPPORT / "no_heap.c"]
    return build(folder, "gcc", f"-Wl,{names}", sources=sources)


def bytes_of(array: dict[str, Any]) -> int:
    size: int = np.dtype(array["dtype"]).itemsize * int(np.prod(array["shape"]))
    return size


@needs("gcc")
def test_nothing_beside_the_caller_s_memory_is_touched(digits: Callable[..., Path]) -> None:
    folder = digits(HOST)
    check(ran([guarded(folder)]), rtol=1e-6)
    short = guarded(folder, lacking=1)
    assert subprocess.run([short], stdout=subprocess.DEVNULL, check=False).returncode < 0


# -- C on other processors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "compiler", "emulator"),
    [
        pytest.param(*names, marks=needs(*names[1:]))
        for names in (
            ("neon", "aarch64-linux-gnu-gcc", "qemu-aarch64"),
            ("riscv64", "riscv64-linux-gnu-gcc", "qemu-riscv64"),
        )
    ],
)
def test_the_same_program_trains_on_other_processors(
    target: str, compiler: str, emulator: str, digits: Callable[..., Path]
) -> None:
    folder = digits(target)
    check(ran([emulator, build(folder, compiler, "-static")]), rtol=1e-5)


# -- Cortex-M ---------------------------------------------------------------------------------------------------------


def ring_losses() -> list[float]:
    """Each twentieth loss in Python."""
    module = example("cortex-m/rings.py")
    step = module.Net().executables()["train_step"]
    return [float(step(*module.data())["loss"]) for _ in range(200)][19::20]


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("cortex-m4", []),
        pytest.param("cortex-m4-soft", ["FLOATS=-mfloat-abi=soft"], marks=pytest.mark.slow),
        pytest.param(
            "cortex-m7",
            ["CPU=cortex-m7", "FLOATS=-mfloat-abi=hard -mfpu=fpv5-sp-d16", "BOARD=mps2-an500"],
            marks=pytest.mark.slow,
        ),
    ],
)
@needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
def test_a_microcontroller_trains_to_the_losses_of_the_session(
    target: str, settings: list[str], tmp_path: Path
) -> None:
    example("cortex-m/rings.py").main([str(tmp_path), "--target", target])
    printed = made("cortex-m", tmp_path, "CC=arm-none-eabi-gcc -Werror", *settings)
    found = [float(x) for x in re.findall(r"^step \d+: loss (\S+)$", printed, re.MULTILINE)]
    np.testing.assert_allclose(found, ring_losses(), rtol=1e-3, atol=2e-6)
    assert "32 of 32 points right" in printed
    used = re.search(r"^stack: (\d+) bytes$", printed, re.MULTILINE)
    assert used is not None
    assert 100 < int(used[1]) < 1024


@needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
def test_the_report_says_what_the_linker_finds(tmp_path: Path) -> None:
    module = example("cortex-m/rings.py")
    module.main([str(tmp_path)])
    report = sg.export(tmp_path / "rings.o", module.Net().executables(), target="cortex-m4", optimize="size")
    made("cortex-m", tmp_path)
    linked = linker_map((tmp_path / "rings.map").read_text(encoding="utf-8"))
    assert sum(n for _, name, n in linked if name == "rings.o") == report.flash_bytes
    assert sum(n for section, _, n in linked if section.startswith(".bss")) == report.ram_bytes


def linker_map(text: str) -> list[tuple[str, str, int]]:
    """Each input section that is linked: its name, its file's, its bytes."""
    text = text[text.index("Linker script and memory map") :]
    text = text[: text.index("/DISCARD/")] if "/DISCARD/" in text else text
    rows = re.findall(r"^ (\.[\w.]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S+)$", text, re.MULTILINE)
    kept = [(section, Path(name).name, int(n, 16)) for section, n, name in rows]
    return [row for row in kept if row[0].startswith((".text", ".rodata", ".bss", ".data"))]


def test_a_training_step_for_a_microcontroller_is_small(tmp_path: Path) -> None:
    """64-32-32-10 with momentum: a few KB of code and constants, apart from the parameters."""
    step = example("c/export.py").Net().executables()["train_step"]
    report = step.export(tmp_path / "step.o", target="cortex-m4", optimize="size")
    small = report.flash_bytes - report.interface.state.nbytes
    assert report.code_bytes <= small < 4 << 10


# -- WebAssembly ------------------------------------------------------------------------------------------------------


@needs("make", "node", "wasm-ld")
@pytest.mark.parametrize("target", ["wasm32-simd128", "wasm32"])
def test_node_trains_to_the_losses_of_the_session(target: str, digits: Callable[..., Path]) -> None:
    folder = digits(target)
    check(made("wasm", folder), rtol=1e-5, epochs=10)


@needs("make", "node", "wasm-ld")
def test_the_loader_gives_the_state_by_name_and_the_message_of_a_check(digits: Callable[..., Path]) -> None:
    folder = digits("wasm32-simd128")
    made("wasm", folder)
    found = json.loads(ran(["node", SUPPORT / "wasm_state.mjs", EXAMPLES / "wasm" / "loader.mjs", folder]))
    module = example("c/export.py")
    net = module.Net()
    session = sg.Session(net.graph, seed=0)
    data = module.data()
    session.compile([net.loss, net.train], [net.pixels, net.labels])(data["pixels"][:32], data["labels"][:32, 0])
    assert found["state"].keys() == net.graph.variables.keys()
    for name, values in found["state"].items():
        wanted = np.ravel(session.store.array(name))[:3]
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-7, err_msg=name)
    assert re.match("train_step: .*label", found["refused"])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(digits: Callable[..., Path], tmp_path: Path) -> Iterator[str]:
    """The address of the page, with all that it loads."""
    folder = digits("wasm32-simd128")
    made("wasm", folder)
    for name in ("index.html", "loader.mjs", "digits.mjs"):
        shutil.copy(EXAMPLES / "wasm" / name, tmp_path)
    shutil.copytree(folder, tmp_path / "build")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@needs("make", "node", "wasm-ld", "chromium")
def test_a_web_page_trains_to_the_losses_of_the_session(served: str, tmp_path: Path) -> None:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    page = subprocess.run(
        [*command, "--virtual-time-budget=600000", "--dump-dom", served], capture_output=True, text=True, check=True
    ).stdout
    check(page.replace('<pre id="log">', ""), rtol=1e-5, epochs=10)


# -- from nothing -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs("make", "gcc", "arm-none-eabi-gcc", "qemu-system-arm", "node", "wasm-ld")
@pytest.mark.parametrize("folder", ["c", "cortex-m", "wasm"])
def test_make_begins_with_the_export(folder: str, tmp_path: Path) -> None:
    printed = made(folder, tmp_path)
    assert "RAM" in printed
    assert re.search(r"^\d+ of \d+ (test images|points) right$", printed, re.MULTILINE)
    assert not list((EXAMPLES / folder).glob("build"))
