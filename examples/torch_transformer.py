# SPDX-License-Identifier: MIT
"""A small transformer that learns Python's own documentation, character by character: what `torch_ddp_elastic.py`
trains.

    python examples/torch_transformer.py

trains it a little in one process.
"""

import hashlib
import pydoc_data.topics

import torch
from torch import nn

LENGTH, WIDTH, ROWS = 64, 64, 16
TEXT = torch.frombuffer(bytearray("".join(pydoc_data.topics.topics.values()), "ascii", "replace"), dtype=torch.uint8)


class Transformer(nn.Module):
    """Predicts the next character of each place from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.next = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.next(self.layers(self.characters(text) + self.places.weight, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    """On rows of the text that only this step and rank take."""
    source = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(len(TEXT) - LENGTH - 1, (ROWS, 1), generator=source)
    rows = TEXT[starts + torch.arange(LENGTH + 1)].long()
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def digest(model: nn.Module) -> str:
    """The same for the same bits."""
    return hashlib.sha256(b"".join(it.detach().numpy().tobytes() for it in model.parameters())).hexdigest()[:16]


def main() -> None:
    torch.manual_seed(0)
    network = Transformer()
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for step in range(30):
        optimizer.zero_grad()
        loss = loss_of(network, step, 0)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
