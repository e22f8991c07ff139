"""Random programs that make views of an array, write through them and read them, as functions for NumPy."""

import numpy as np


def drawn_key(rng, shape):
    """A key of integers, slices, new axes and an ellipsis."""
    key = []
    for size in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(4)
        if kind == 0 and size:
            key.append(int(rng.integers(-size, size)))
        elif kind == 1:
            key.append(slice(None))
        else:
            ends = sorted(rng.integers(-size - 1, size + 2, 2).tolist())
            key.append(slice(*ends) if kind == 2 else slice(ends[1], ends[0], -int(rng.integers(1, 3))))
    if rng.integers(5) == 0:
        key.insert(int(rng.integers(len(key) + 1)), None)
    if rng.integers(6) == 0:
        key.append(Ellipsis)
    return tuple(key)


def viewed(rng, a):
    """A view of an array, or a copy where NumPy makes one."""
    kind = rng.integers(8)
    if kind == 0:
        return a.T
    if kind == 1:
        return a.reshape(-1)
    if kind == 2 and a.ndim > 1:
        return a.swapaxes(0, 1)
    if kind == 3:
        return a[::-1]
    if kind == 4 and a.ndim > 1:
        return np.ravel(a)
    return a[drawn_key(rng, a.shape)]


def program(seed):
    """A function of a matrix and a vector that writes in place; it draws the same steps at each call."""

    def run(x, v):
        rng = RandomSteps(seed)
        base = np.zeros((4, 3)) if rng.integers(2) else x.copy()
        arrays = [base]
        for step in range(12):
            a = arrays[int(rng.integers(len(arrays)))]
            kind = rng.integers(6)
            new = v[int(rng.integers(len(v)))] * (step + 1)
            if kind <= 1:
                b = viewed(rng, a)
                if isinstance(b, np.ndarray) and b.ndim and b.size:
                    arrays.append(b)
            elif kind == 2:
                a[drawn_key(rng, a.shape)] = new
            elif kind == 3:
                a[drawn_key(rng, a.shape)] += new
            elif kind == 4:
                a *= 1.5
            else:
                other = arrays[int(rng.integers(len(arrays)))]
                a[..., -1] = np.sum(other) * 0.1 + a[..., 0]
        return tuple(np.array(a) for a in arrays)

    return run


class RandomSteps:
    """Numbers by a congruence, so that drawing them is arithmetic and no draw of NumPy's."""

    def __init__(self, seed):
        self.state = seed * 7919 + 12345

    def integers(self, low, high=None, count=None):
        low, high = (0, low) if high is None else (low, high)
        if count is not None:
            return np.array([int(self.integers(low, high)) for _ in range(count)])
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return low + (self.state >> 33) % (high - low)
