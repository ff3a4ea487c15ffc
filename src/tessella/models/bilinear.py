"""The one-layer masked model as written: one softmax head with a single d x d matrix Q, and values W_V = I.

A masked image M(X) has zeros where the mask hides patches. Tokens are X~ = M(X) + E, with orthonormal position
encodings e_p that are orthogonal to all features. Then

    attn_{p->q} = softmax over q of X~_p^T Q X~_q,      output_p = sum over q of attn_{p->q} M(X)_q,

and training rebuilds the masked patches: 1/2 of the mean over images of sum over masked p of |output_p - X_p|^2.
Masked tokens stay in the softmax as keys. This module is the reference; everything faster is tested against it.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def orthonormal_basis(features: int, patches: int, seed: int) -> Float[Tensor, "dim dim"]:
    """Columns: the features v, then the position encodings e_1..e_P, all orthonormal, in d = features + P."""
    size = features + patches
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator)).Q


def tokens(
    images: Float[Tensor, "samples patches dim"],
    unmasked: Bool[Tensor, "samples patches"],
    positions: Float[Tensor, "patches dim"],
) -> Float[Tensor, "samples patches dim"]:
    """X~ = M(X) + E."""
    return images * unmasked[..., None] + positions


def attention(
    Q: Float[Tensor, "dim dim"], x: Float[Tensor, "samples patches dim"]
) -> Float[Tensor, "samples patches patches"]:
    """attn_{p->q}, the softmax over q of X~_p^T Q X~_q."""
    return torch.softmax(x @ Q @ x.transpose(-1, -2), dim=-1)


def reconstruction_loss(
    Q: Float[Tensor, "dim dim"],
    images: Float[Tensor, "samples patches dim"],
    unmasked: Bool[Tensor, "samples patches"],
    positions: Float[Tensor, "patches dim"],
) -> Float[Tensor, ""]:
    """1/2 of the mean over images of sum over masked p of |output_p - X_p|^2."""
    seen = images * unmasked[..., None]
    output = attention(Q, tokens(images, unmasked, positions)) @ seen
    error = ((output - images) ** 2).sum(-1)
    return 0.5 * (error * ~unmasked).sum(-1).mean()
