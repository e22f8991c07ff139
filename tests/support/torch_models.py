"""Small networks of PyTorch's, of the kinds that people have, and inputs for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def drawn(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64)


def tokens(*shape: int, most: int = 11) -> Any:
    return torch.randint(0, most, shape)


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 5, padding=2), nn.Conv2d(3, 4, 5)
        self.fc1, self.fc2 = nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.short(x)
        return self.relu(y)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        Residual(4, 4, 1), Residual(4, 6, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


class Inverted(nn.Module):
    """A block of MobileNet: wide, over each channel, with squeeze and excitation, narrow."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = channels * 2
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6())
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 2, 1), nn.SiLU(), nn.Conv2d(2, wide, 1), nn.Sigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        y = self.depth(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.GroupNorm(3, 3), nn.LeakyReLU(0.1))
        self.down2 = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.InstanceNorm2d(4, affine=True), nn.ReLU()
        )
        self.up = nn.ConvTranspose2d(4, 3, 2, 2)
        self.join = nn.Conv2d(9, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        smooth = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)[:, :3]
        return self.join(torch.cat([a, self.up(b), smooth], dim=1))


class Encoder(nn.Module):
    """Tokens with positions through ``nn.TransformerEncoder``, padding masked, the first of them classified."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8, padding_idx=0), nn.Embedding(6, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler = nn.Linear(8, 3)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=ids == 0)
        return self.pooler(torch.tanh(x[:, 0]))


class Causal(nn.Module):
    """A block of GPT-2: attention by masks and one product for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8, dtype=torch.bool)), persistent=False)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 8), nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Causal(8, 2), Causal(8, 2)])
        self.ln_f, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), ids[:, 1:].reshape(-1))


class Llama(nn.Module):
    """A layer of Llama: rotary positions, RMS norms, keys shared in groups, a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Embedding(11, 8), nn.RMSNorm(8), nn.RMSNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8, False), nn.Linear(8, 4, False), nn.Linear(8, 4, False)
        self.o, self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((8, 8), (8, 12), (8, 12), (12, 8))
        )
        angles = torch.outer(torch.arange(16.0), 10000 ** (-torch.arange(0, 4, 2) / 4))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin(), persistent=False)

    def turn(self, x: Any) -> Any:
        t, half = x.shape[-2], x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos[:t] + turned * self.sin[:t]

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        b, t, _ = x.shape
        y = self.norm1(x)
        q = self.turn(self.q(y).view(b, t, 2, 4).transpose(1, 2))
        k, v = (p(y).view(b, t, 1, 4).transpose(1, 2) for p in (self.k, self.v))
        k = self.turn(k)
        k, v = (z[:, :, None].expand(b, 1, 2, t, 4).reshape(b, 2, t, 4) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 8)
        x = x + self.o(y)
        y = self.norm2(x)
        return F.linear(x + self.down(F.silu(self.gate(y)) * self.up(y)), self.embed.weight)


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        y = self.norm(x)
        attended, weights = self.attention(y, y, y, need_weights=True)
        return self.head((x + attended)[:, 0]), weights


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(5, 4, **options)
        self.head = nn.Linear((self.rnn.proj_size or 4) * (2 if self.rnn.bidirectional else 1), 2)

    def forward(self, x: Any) -> Any:
        output, state = self.rnn(x)
        return self.head(output), state


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(9, 5), nn.ELU(), nn.Linear(5, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 5), nn.Mish(), nn.Linear(5, 9), nn.Sigmoid())

    def forward(self, x: Any) -> Any:
        code = self.encoder(x)
        return {"code": code, "loss": F.binary_cross_entropy(self.decoder(code), x.sigmoid())}


class Dilated(nn.Module):
    """Causal convolutions over ever longer times, gated."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(3, 6, 2, dilation=2**i) for i in range(3)])
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, dim=1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return F.adaptive_max_pool1d(self.norm(x), 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(4, 4, 7, padding=3, groups=4), nn.LayerNorm(4, eps=1e-6)
        self.wide, self.narrow = nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class Mixture(nn.Module):
    """Experts by their gates, of which the two best count."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(5, 3), nn.Parameter(torch.randn(3, 5, 4))

    def forward(self, x: Any) -> Any:
        best, places = self.gate(x).topk(2, dim=-1)
        weights = torch.zeros(x.shape[0], 3, dtype=x.dtype).scatter(1, places, best.softmax(-1))
        return torch.einsum("bi,eio,be->bo", x, self.experts, weights)


class Graph(nn.Module):
    """Messages along edges, summed at nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(8, 6), nn.GRUCell(6, 4)
        self.bilinear = nn.Bilinear(4, 4, 2)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        messages = F.softplus(self.message(torch.cat([x[source], x[target]], -1)))
        total = torch.zeros(x.shape[0], 6, dtype=x.dtype).index_add(0, target, messages)
        x = self.update(total, x)
        return self.bilinear(x, x.flip(0))


class Translator(nn.Module):
    """``nn.Transformer`` with masks."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.transformer = nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True)

    def forward(self, source: Any, target: Any) -> Any:
        mask = torch.triu(torch.full((target.shape[1],) * 2, float("-inf"), dtype=torch.float64), 1)
        return self.transformer(self.words(source), self.words(target), tgt_mask=mask, tgt_is_causal=True)


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv3d(2, 3, 3, padding=1), nn.BatchNorm3d(3)
        self.up = nn.ConvTranspose3d(3, 2, 2, 2)

    def forward(self, x: Any) -> Any:
        return self.up(F.max_pool3d(F.prelu(self.norm(self.conv(x)), torch.tensor([0.2], dtype=torch.float64)), 2))


class Generator(nn.Module):
    """A network of a generative adversarial pair, with a spectrally normalised weight."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(4, 6, 3, 1, 0, bias=False), nn.BatchNorm2d(6), nn.ReLU(True),
            nn.ConvTranspose2d(6, 2, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: Any) -> Any:
        return self.net(z[:, :, None, None])


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "MLP": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), lambda: (drawn(4, 5),)),
    "LeNet": (LeNet, lambda: (drawn(2, 1, 16, 16),)),
    "ResNet": (resnet, lambda: (drawn(2, 3, 16, 16),)),
    "MobileNet": (lambda: nn.Sequential(Inverted(3), Inverted(3)), lambda: (drawn(2, 3, 6, 6),)),
    "U-Net": (UNet, lambda: (drawn(2, 2, 8, 8),)),
    "BERT": (Encoder, lambda: (torch.cat([tokens(2, 4) % 10 + 1, torch.zeros(2, 2, dtype=torch.int64)], 1),)),
    "GPT-2": (GPT2, lambda: (tokens(2, 6),)),
    "Llama": (Llama, lambda: (tokens(2, 6),)),
    "ViT": (ViT, lambda: (drawn(2, 3, 8, 8),)),
    "Transformer": (Translator, lambda: (tokens(2, 5), tokens(2, 4))),
    "LSTM": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True), lambda: (drawn(2, 6, 5),)),
    "LSTM with projections": (lambda: Recurrent(nn.LSTM, proj_size=3), lambda: (drawn(6, 2, 5),)),
    "GRU": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), lambda: (drawn(6, 2, 5),)),
    "RNN": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False), lambda: (drawn(6, 2, 5),)),
    "autoencoder": (Autoencoder, lambda: (drawn(4, 9),)),
    "WaveNet": (Dilated, lambda: (drawn(2, 3, 9),)),
    "ConvNeXt": (ConvNeXt, lambda: (drawn(2, 4, 6, 5),)),
    "mixture of experts": (Mixture, lambda: (drawn(4, 5),)),
    "graph network": (Graph, lambda: (drawn(4, 4), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]))),
    "3D": (Volumes, lambda: (drawn(2, 2, 4, 4, 4),)),
    "DCGAN": (Generator, lambda: (drawn(3, 4),)),
}  # fmt: skip
