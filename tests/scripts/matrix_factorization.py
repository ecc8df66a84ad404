"""Recommender: matrix factorization with biases over (user, item, rating) triples from a data frame."""
import numpy as np
import pandas as pd
import torch
import torch.nn as nn

np.random.seed(3)
torch.manual_seed(3)

NUM_USERS, NUM_ITEMS = 30, 25
u_true, i_true = np.random.randn(NUM_USERS, 3), np.random.randn(NUM_ITEMS, 3)
rows = []
for u in range(NUM_USERS):
    for i in np.random.choice(NUM_ITEMS, 12, replace=False):
        rows.append((u, i, 3 + u_true[u] @ i_true[i] * 0.5 + 0.1 * np.random.randn()))
df = pd.DataFrame(rows, columns=["user", "item", "rating"]).sample(frac=1, random_state=0)
train_df, test_df = df.iloc[:300], df.iloc[300:]


class MF(nn.Module):
    def __init__(self, num_factors, num_users, num_items):
        super().__init__()
        self.P = nn.Embedding(num_users, num_factors)
        self.Q = nn.Embedding(num_items, num_factors)
        self.user_bias = nn.Embedding(num_users, 1)
        self.item_bias = nn.Embedding(num_items, 1)
        self.mu = nn.Parameter(torch.tensor(3.0))
        for e in (self.P, self.Q):
            nn.init.normal_(e.weight, std=0.1)
        for e in (self.user_bias, self.item_bias):
            nn.init.zeros_(e.weight)

    def forward(self, user_id, item_id):
        p, q = self.P(user_id), self.Q(item_id)
        b_u, b_i = self.user_bias(user_id).flatten(), self.item_bias(item_id).flatten()
        return (p * q).sum(1) + b_u + b_i + self.mu


def tensors(frame):
    return (torch.tensor(frame["user"].values), torch.tensor(frame["item"].values),
            torch.tensor(frame["rating"].values, dtype=torch.float32))


model = MF(4, NUM_USERS, NUM_ITEMS)
opt = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-5)
mse = nn.MSELoss()
for epoch in range(8):
    shuffled = train_df.sample(frac=1, random_state=epoch)
    users, items, ratings = tensors(shuffled)
    total = 0
    for s in range(0, len(shuffled), 64):
        loss = mse(model(users[s:s + 64], items[s:s + 64]), ratings[s:s + 64])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(ratings[s:s + 64])
    if epoch % 2:
        with torch.no_grad():
            u, i, r = tensors(test_df)
            rmse = mse(model(u, i), r).sqrt().item()
        print(f"epoch {epoch}: train mse {total / len(train_df):.4f} test rmse {rmse:.4f}")
