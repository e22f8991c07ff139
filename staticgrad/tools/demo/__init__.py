"""The demonstration: a small classifier of handwritten digits, trained from nothing.

Input: settings. Output: a trained checkpoint, pictures, and a report in numbers.

    digits      the 1,797 images that scikit-learn ships, in two parts
    nets        what is trained, and how fast
    training    the program of one step, the loop around it, the checkpoint that it goes on from
    accuracy    compiled gradients against the interpreter's
    pictures    the course of training, test digits with predictions
    report      what is printed at the end

It needs the extra ``demo`` (scikit-learn, matplotlib, tqdm).
"""

from __future__ import annotations

from staticgrad.tools.demo.report import run
from staticgrad.tools.demo.training import Settings

__all__ = ["Settings", "run"]
