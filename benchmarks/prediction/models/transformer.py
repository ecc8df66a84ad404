"""A small language model: 4 layers of width 128 on made-up text, 0.9 million parameters."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH, WIDTH = 512, 64, 128
text = torch.randint(0, VOCABULARY, (2048, LENGTH + 1))
loader = DataLoader(TensorDataset(text), batch_size=32, shuffle=True)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.layers(x, mask=self.mask))


model = LanguageModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for _ in range(100):
    for (batch,) in loader:
        batch = batch.to(device)
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
