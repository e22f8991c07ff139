"""A page on how to write programs with staticgrad, for language models and people in a hurry.

``python -m staticgrad.llms`` prints it.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")


def main() -> None:
    print(PAGE.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
