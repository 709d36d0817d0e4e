"""The character model of LEAF's Shakespeare task (Caldas et al. 2018): embedding 8, two LSTMs of 256."""

from __future__ import annotations

from torch import Tensor, nn  # noqa: TID253 - a model is torch code; `models.build` imports it on demand


class CharacterLSTM(nn.Module):
    """Predicts the character that follows a sequence of characters.

    Args:
        classes: Size of the alphabet, of inputs and outputs alike.
        embedding: Numbers per character.
        hidden: Units per layer.
        layers: LSTM layers.
    """

    def __init__(self, classes: int = 80, embedding: int = 8, hidden: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next character after each sequence of ``x`` (batch, length), which holds numbers."""
        hidden, _ = self.lstm(self.embedding(x))
        logits: Tensor = self.fc(hidden[:, -1])
        return logits
