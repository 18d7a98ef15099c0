"""Train a PyTorch module of your own on four hospitals: `python examples/own_model.py`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

import hubbub

STUDY = """
study.name = "my own model"
parties = { names = ["cleveland", "hungary", "switzerland", "va-long-beach"], colluders = 1 }
data = { source = "hubbub.datasets:heart", records = 735 }
model = { kind = "python:own_model:network", inputs = [26] }
training = { steps = 20, sample_rate = 0.2 }
privacy = { epsilon = 2.0, delta = 1e-5 }
"""


class Network(nn.Module):
    """One hidden layer; one number for each record, above 0 for the second class."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, 16),
            nn.LayerNorm(16),  # not BatchNorm: it would mix the records of a batch
            nn.GELU(),
            nn.Linear(16, outputs),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (n, features) to (n,)."""
        return self.layers(inputs).squeeze(-1)


def network(inputs: Sequence[int], outputs: int) -> Network:
    """The factory that the study names: given a record's shape, the number of logits."""
    return Network(*inputs, outputs)


if __name__ == "__main__":
    result = hubbub.run(hubbub.Study.parse(STUDY))
    print(f"AUC {result.final['auc']:.2f} at epsilon {result.epsilon:.2f}")
