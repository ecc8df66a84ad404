"""Bigram MLP language model with the output layer tied to the embedding."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2147483647)

words = ["anna", "emma", "mia", "nina", "lena", "elena", "maria", "marina", "irene", "marie",
         "ian", "liam", "adrian", "damian", "neil", "daniel", "emil", "marlen", "amelia", "mila"] * 2
chars = sorted(set("".join(words)))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
vocab_size = len(stoi)
block_size = 3

# build the dataset
X, Y = [], []
for w in words:
    context = [0] * block_size
    for ch in w + ".":
        ix = stoi[ch]
        X.append(context)
        Y.append(ix)
        context = context[1:] + [ix]
X, Y = torch.tensor(X), torch.tensor(Y)
print(X.shape, Y.shape)


class TiedLM(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, dim)
        self.fc = nn.Linear(block_size * dim, dim)
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight     # weight tying

    def forward(self, idx):
        h = torch.tanh(self.fc(self.wte(idx).flatten(1)))
        return self.lm_head(h)


model = TiedLM()
print(sum(p.numel() for p in model.parameters()), "parameters")
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

for i in range(60):
    # minibatch construct
    ix = torch.randint(0, X.shape[0], (30,))
    logits = model(X[ix])
    loss = F.cross_entropy(logits, Y[ix])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 10 == 9:
        print(f"{i + 1:4d}/60: {loss.item():.4f}")

assert model.lm_head.weight is model.wte.weight
with torch.no_grad():
    print("full loss", F.cross_entropy(model(X), Y).item())
