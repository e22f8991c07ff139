"""The demonstration from end to end, and what it says at the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from staticgrad.base import config
from staticgrad.base.frozen import frozen
from staticgrad.base.tables import byte_text
from staticgrad.runtime.measured.reports import MemoryReport
from staticgrad.tools.demo.accuracy import gradient_difference
from staticgrad.tools.demo.digits import Digits, load
from staticgrad.tools.demo.pictures import draw_course, draw_digits
from staticgrad.tools.demo.training import Settings, Training, start, train


@frozen
class Report:
    """The figures of a training. Times are in seconds; ``step_seconds`` is the median, None where no step was made;
    ``memory`` is the plan of the training step, None where the interpreter ran it."""

    model: str
    epochs: int
    training_seconds: float
    test_accuracy: float
    mistakes: int
    test_count: int
    compile_seconds: float
    programs: int
    step_seconds: float | None
    memory: MemoryReport | None
    gradient_difference: float

    def __str__(self) -> str:
        return "\n".join(f"{name:<18}{value}" for name, value in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "net", f"{self.model}, {self.epochs} epochs, trained in {self.training_seconds:.1f} s now"
        right = self.test_count - self.mistakes
        yield "test accuracy", f"{self.test_accuracy:.2%} ({right} of {self.test_count} images)"
        yield "compile time", f"{self.compile_seconds:.2f} s for the training step; {self.programs} programs in all"
        if self.step_seconds is not None:
            yield "time a step", f"{self.step_seconds * 1e6:.0f} µs (forward, backward and Adam, called from Python)"
        if self.memory is not None:
            arena, bound = self.memory.arena_bytes, self.memory.lower_bound_bytes
            above = f"{arena / bound - 1:.1%} above" if bound else "above"
            yield "arena", f"{arena} bytes ({byte_text(arena)}), {above} the lower bound of {bound}"
        yield (
            "gradients",
            f"of all images at once: compiled and interpreted differ by {self.gradient_difference:.1e} of the largest"
            " (float64)",
        )


def run(settings: Settings, digits: Digits | None = None) -> Report:
    """Train, draw, print the report and give it; ``digits`` are those of scikit-learn by default.

    Raises:
        StaticGradError: training can't be resumed as asked.
        OSError: the folder of results can't be written.
    """
    data = load() if digits is None else digits
    training = start(settings, data)
    train(training)
    report = report_on(training)
    files = draw(training, report)
    print(report)
    print(f"{'files':<18}{', '.join(files)}")
    return report


def report_on(training: Training) -> Report:
    """The figures of a training that is done."""
    predictions, labels = training.predictions(), training.digits.test_labels
    mistakes = int((predictions != labels).sum())
    difference = gradient_difference(
        training.settings.recipe,
        training.declared.net.state_dict(training.session),
        training.digits.images,
        training.digits.labels,
    )
    steps = training.step_seconds
    return Report(
        training.settings.model,
        training.epochs_done,
        training.seconds,
        1 - mistakes / len(labels),
        mistakes,
        len(labels),
        training.compile_seconds,
        training.session.compile_count,
        statistics.median(steps) if steps else None,
        None if config.get("BACKEND") == "reference" else training.step.memory,
        difference,
    )


def draw(training: Training, report: Report) -> list[str]:
    """Draw the pictures; gives the paths of everything that is in the folder of results now."""
    settings, digits = training.settings, training.digits
    title = f"{settings.model}: {report.test_accuracy:.2%} of test digits after {report.epochs} epochs"
    draw_course(settings.path("-course.png"), title, training.history)
    draw_digits(settings.path("-digits.png"), digits.test_images, digits.test_labels, training.predictions())
    endings = [".safetensors", ".csv", "-course.png", "-digits.png"]
    if report.memory is not None:
        report.memory.plot(settings.path("-memory.png"))
        endings.append("-memory.png")
    return [str(settings.path(ending)) for ending in endings]
