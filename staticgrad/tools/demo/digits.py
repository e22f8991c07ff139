"""Handwritten digits: 1,797 images of 8×8 pixels (E. Alpaydin, C. Kaynak, UCI Machine Learning Repository 1998)."""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array

WHITE = 16.0  # pixels are whole numbers from 0 to 16


@frozen
class Digits:
    """Images (n, 1, 8, 8) float32 in [0, 1] and their labels (n,) int64: to train on, and held back for the test."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


def load() -> Digits:
    """The images that scikit-learn ships; the same fifth of them is always held back. Nothing is downloaded."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / WHITE).astype(np.float32).reshape(-1, 1, 8, 8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels.astype(np.int64), test_size=0.2, random_state=0
    )
    return Digits(train, train_labels, test, test_labels)
