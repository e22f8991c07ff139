"""Programs in PyTorch: values, gradients of any order, ``torch.func``, dtypes, errors, state, modules, threads."""

from __future__ import annotations

import copy
import functools
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import staticgrad as sg  # noqa: E402
from staticgrad.bridges.torch import DTYPES, TORCH, wrap  # noqa: E402


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def draw(*shape: int, seed: int = 0, requires_grad: bool = True) -> Any:
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.tensor(values, requires_grad=requires_grad)


def close(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)


def waves_of(x: Any, w: Any) -> Any:
    return torch.tanh(x * w)


def energy_of(x: Any, w: Any) -> Any:
    return (waves_of(x, w) ** 3).sum()


@functools.cache
def made() -> tuple[Any, Any]:
    """Functions of (n, 3) and (3,): to (n, 3), and to one number."""
    with sg.Graph() as graph:
        x, w = sg.placeholder((None, 3), sg.float64, name="x"), sg.placeholder((3,), sg.float64, name="w")
        y = sg.tanh(x * w)
    sess = sg.Session(graph)
    return wrap(sess.compile(y, [x, w])), wrap(sess.compile(sg.sum(y**3), [x, w]))


PAIRS = pytest.mark.parametrize("number", [0, 1], ids=["vector", "number"])


def pair(number: int) -> tuple[Any, Any]:
    return made()[number], (waves_of, energy_of)[number]


# -- derivatives ------------------------------------------------------------------------------------------------------


@PAIRS
def test_values_and_gradients(number: int) -> None:
    ours, theirs = pair(number)
    for rows in (4, 7):
        x, w = draw(rows, 3), draw(3, seed=1)
        close(ours(x, w), theirs(x, w))
        weight = draw(*ours(x, w).shape, seed=2, requires_grad=False)
        for by in ([x, w], [w]):
            close(torch.autograd.grad(ours(x, w), by, weight), torch.autograd.grad(theirs(x, w), by, weight))
    (ours(x, w) * 2).sum().backward()
    got = x.grad.clone()
    x.grad = None
    (theirs(x, w) * 2).sum().backward()
    close(got, x.grad)


@PAIRS
def test_derivatives_are_those_of_differences(number: int) -> None:
    ours, _ = pair(number)
    inputs = (draw(2, 3), draw(3, seed=1))
    assert torch.autograd.gradcheck(ours, inputs)
    assert torch.autograd.gradgradcheck(ours, inputs)


def test_a_third_derivative() -> None:
    def third(f: Any) -> Any:
        x, w = draw(2, 3), draw(3, seed=1)
        (dw,) = torch.autograd.grad(f(x, w), w, create_graph=True)
        (dx,) = torch.autograd.grad(dw.sum(), x, create_graph=True)
        return torch.autograd.grad((dx**2).sum(), [x, w])

    close(third(made()[1]), third(energy_of))


def test_a_result_that_nobody_uses_and_integers() -> None:
    x = sg.placeholder((3,), sg.float64, name="x")
    ours = wrap(sg.Session().compile({"a": x * x, "b": sg.exp(x), "most": sg.argmax(x), "op": sg.group(x), "x": x}, x))
    at = draw(3)
    found = ours(at)
    assert found["op"] is None
    assert (found["most"].dtype, found["most"].requires_grad) == (torch.int64, False)
    close(torch.autograd.grad(found["a"].sum(), at)[0], 2 * at.detach())
    found = ours(at)
    close(torch.autograd.grad((found["b"] + found["x"]).sum(), at)[0], at.detach().exp() + 1)


def test_only_what_asks_for_gradients_gets_them() -> None:
    ours, theirs = pair(0)
    x, w = draw(2, 3, requires_grad=False), draw(3, seed=1)
    assert not ours(x, w.detach()).requires_grad
    with torch.no_grad():
        assert not ours(x, w).requires_grad
    with torch.inference_mode():
        close(ours(x, w), theirs(x, w))
    ours(x, w).sum().backward()
    assert x.grad is None
    assert w.grad is not None


def test_saved_tensors_that_change_are_noticed() -> None:
    ours, _ = pair(0)
    x, w = draw(2, 3), draw(3, seed=1)
    scaled = x * 1.0
    y = ours(scaled, w)
    scaled.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@PAIRS
def test_transformations_of_functions(number: int) -> None:
    ours, theirs = pair(number)
    x, w = draw(2, 3, requires_grad=False), draw(4, 3, seed=1, requires_grad=False)
    f, v = torch.func, torch.func.vmap
    close(v(ours, (None, 0))(x, w), v(theirs, (None, 0))(x, w))
    close(f.jacrev(ours, (0, 1))(x, w[0]), f.jacrev(theirs, (0, 1))(x, w[0]))
    close(v(f.jacrev(ours, 1), (None, 0))(x, w), v(f.jacrev(theirs, 1), (None, 0))(x, w))
    close(f.jacrev(f.jacrev(ours, 1), 1)(x, w[0]), f.jacrev(f.jacrev(theirs, 1), 1)(x, w[0]))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of PyTorch's own, in forward mode
@PAIRS
def test_forward_mode(number: int) -> None:
    ours, theirs = pair(number)
    x, w, along = draw(2, 3, requires_grad=False), draw(3, seed=1, requires_grad=False), draw(3, seed=2).detach()
    both = [torch.func.jvp(lambda w, f=f: f(x, w), (w,), (along,)) for f in (ours, theirs)]
    close(*both)
    close(torch.func.hessian(ours, 1)(x, w), torch.func.hessian(theirs, 1)(x, w))


# -- tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES], ids=str)
def test_every_dtype(dtype: Any) -> None:
    x = sg.placeholder((2, 3), DTYPES[dtype], name="x")
    ours = wrap(sg.Session().compile([sg.flip(x, axis=1), x], x))
    at = torch.arange(6).reshape(2, 3).to(dtype)
    flipped = torch.arange(6).reshape(2, 3).flip(1).to(dtype)
    if dtype.is_floating_point:
        at.requires_grad_()
    for got, want in zip(ours(at), (flipped, at), strict=True):
        assert got.dtype == dtype
        assert torch.equal(got, want)
    assert TORCH[DTYPES[dtype]] == dtype
    if dtype.is_floating_point:
        ours(at)[0].backward(at.detach())
        assert torch.equal(at.grad, flipped)


def test_nothing_is_copied_that_can_be_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["staticgrad.bridges.torch"]
    at = draw(2, 3, requires_grad=False)
    assert module.array_of(at).ctypes.data == at.data_ptr()
    arrays = [np.ones(3), np.ones((2, 2), np.float32)]
    assert [t.data_ptr() for t in module.tensors_of(arrays)] == [a.ctypes.data for a in arrays]


def test_layouts_numbers_and_casts() -> None:
    ours, theirs = pair(0)
    x, w = draw(3, 4).T, draw(6, seed=1)[::2]
    close(ours(x, w), theirs(x, w))
    close(ours(x.detach().numpy(), [1.0, 2.0, 3.0]), theirs(x, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)))
    fixed = x.detach().numpy().copy()
    fixed.flags.writeable = False
    close(ours(fixed, w), theirs(x, w))
    narrow = x.detach().to(torch.float32).requires_grad_()
    ours(narrow, w).sum().backward()
    assert narrow.grad.dtype == torch.float32
    (slope,) = torch.autograd.grad(ours(x, w).sum(), w)  # a cotangent without strides
    close(slope, torch.autograd.grad(theirs(x, w).sum(), w)[0])


def test_sizes_of_zero() -> None:
    ours, theirs = pair(1)
    x, w = draw(0, 3), draw(3, seed=1)
    close(torch.autograd.grad(ours(x, w), [x, w]), torch.autograd.grad(theirs(x, w), [x, w]))


# -- errors -----------------------------------------------------------------------------------------------------------


def test_wrong_tensors_are_refused() -> None:
    ours, _ = pair(0)
    x, w = draw(2, 3), draw(3, seed=1)
    with pytest.raises(sg.FeedError, match=r"expected 2 tensors \(for 'x', 'w'\), actual 1"):
        ours(x)
    with pytest.raises(sg.FeedError, match=r"feed of 'w': expected a tensor on the CPU, actual meta: use .cpu()"):
        ours(x, w.to("meta"))
    with pytest.raises(sg.FeedError, match=r"(?s)feed of 'x': wrong dtype.*float64.*torch.complex128.*torch.float64"):
        ours(x.to(torch.complex128), w)
    with pytest.raises(sg.FeedError, match=r"feed of 'x': expected a dense tensor, actual torch.sparse_coo"):
        ours(x.detach().to_sparse(), w)
    with pytest.raises(sg.FeedError, match=r"(?s)feed of 'w': wrong shape.*\(3,\).*\(4,\)"):
        ours(x, draw(4))
    with pytest.raises(sg.GraphError, match=r"expected an executable \(sess.compile\), actual <function"):
        wrap(waves_of)  # type: ignore[arg-type]


def test_a_failed_check_is_our_error() -> None:
    x, index = sg.placeholder((3,), sg.float64), sg.placeholder((), sg.int64)
    ours = wrap(sg.Session().compile(sg.take(x, index, axis=0) ** 2, [x, index]))
    for at in (draw(3), draw(3).detach()):
        with pytest.raises(sg.BoundsError, match="index 3 is out of range for size 3"):
            ours(at, torch.tensor(3))
        close(ours(at, torch.tensor(2)), at[2] ** 2)


def test_random_numbers_have_no_second_program() -> None:
    x = sg.placeholder((3,), sg.float64)
    ours = wrap(sg.Session().compile(sg.sum(x * sg.random.uniform((3,), dtype=sg.float64)), x))
    with pytest.raises(sg.GradientError, match=r"draws random numbers.*feed the numbers"):
        ours(draw(3)).backward()


def test_an_op_without_a_derivative() -> None:
    @sg.custom_gradient
    def rule(x: Any) -> Any:
        return x * x, sg.once_differentiable(lambda ct: 2 * ct * x)

    x = sg.placeholder((2,), sg.float64)
    ours = wrap(sg.Session().compile(sg.sum(rule(x)), x))
    at = draw(2)
    (slope,) = torch.autograd.grad(ours(at), at, create_graph=True)
    close(slope.detach(), 2 * at.detach())
    with pytest.raises(sg.GradientError, match="trying to differentiate twice"):
        slope.sum().backward()


def test_without_pytorch_the_extra_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None; import staticgrad.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: staticgrad.torch needs PyTorch: pip install '.[torch]'" in done.stderr


# -- state, modules, threads ------------------------------------------------------------------------------------------


def test_variables_are_the_sessions() -> None:
    x, w = sg.placeholder((2,), sg.float64), sg.Variable(np.array([1.0, 2.0]), name="w")
    sess = sg.Session()
    ours, total = wrap(sess.compile(x * w, x)), wrap(sess.compile(sg.sum(x * x * w), x))
    at = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y, z = ours(at), total(at)
    sess.set(w, [3.0, 4.0])
    assert ours(at).tolist() == [3.0, 4.0]
    with pytest.raises(sg.StateChangedError, match="variable 'w' was written after the forward began"):
        y.sum().backward()
    z.backward()  # its forward has computed the derivative
    assert at.grad.tolist() == [2.0, 4.0]
    (slope,) = torch.autograd.grad(ours(at).sum(), at)
    assert slope.tolist() == [3.0, 4.0]


@PAIRS
def test_writes_happen_once_with_and_without_gradients(number: int) -> None:
    x, count = sg.placeholder((2,), sg.float64), sg.Variable(np.zeros((), np.int64), name="count")
    y = sg.sum(x * x) if number else x * x
    sess = sg.Session()
    ours = wrap(sess.compile([y, sg.assign(count, count + 1)], x))
    at = draw(2)
    ours(at)[0].sum().backward()
    ours(at.detach())
    assert int(sess.get(count)) == 2
    close(at.grad, 2 * at.detach())


def test_a_module_holds_one() -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3, 3, dtype=torch.float64)
            self.ours = made()[0]
            self.scale = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x: Any) -> Any:
            return self.ours(self.inner(x), self.scale)

    torch.manual_seed(0)
    network = Network()
    assert set(network.state_dict()) == {"inner.weight", "inner.bias", "scale"}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    x = draw(8, 3, requires_grad=False)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((network(x) - 0.3) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    with pytest.raises(TypeError, match=r"staticgrad.torch.wrap\(exe\)"):
        copy.deepcopy(network)


def test_many_threads_at_once() -> None:
    ours, theirs = pair(1)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x, w = draw(5 + seed, 3, seed=seed), draw(3, seed=1)
        want = torch.autograd.grad(theirs(x, w), [x, w])
        for _ in range(20):
            got = torch.autograd.grad(ours(x, w), [x, w])
            if not all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(got, want, strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_result_outlives_what_made_it() -> None:
    def result() -> Any:
        with sg.Graph() as graph:
            x = sg.placeholder((3,), sg.float64)
            ours = wrap(sg.Session(graph).compile(x**3, x))
        at = draw(3)
        return at, ours(at)

    at, y = result()
    gc.collect()
    y.sum().backward()
    close(at.grad, 3 * at.detach() ** 2)
