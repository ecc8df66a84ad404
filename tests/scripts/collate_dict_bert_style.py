"""Batches as dicts (input_ids, attention_mask, labels) with a mean-pooled attention model."""
from functools import partial

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class ReviewDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            label = int(torch.randint(0, 3, (1,), generator=g))
            length = int(torch.randint(4, 12, (1,), generator=g))
            ids = torch.randint(3, 30, (length,), generator=g)
            n_cue = max(1, length // 3)
            ids[:n_cue] = 30 + label          # cue words of the class
            self.items.append({"input_ids": ids, "label": label})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate_fn(examples, pad_id):
    max_len = max(len(e["input_ids"]) for e in examples)
    input_ids = torch.full((len(examples), max_len), pad_id)
    attention_mask = torch.zeros(len(examples), max_len, dtype=torch.bool)
    for row, e in enumerate(examples):
        input_ids[row, :len(e["input_ids"])] = e["input_ids"]
        attention_mask[row, :len(e["input_ids"])] = True
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": torch.tensor([e["label"] for e in examples]),
    }


class TinyBert(nn.Module):
    def __init__(self, vocab=33, dim=16, num_labels=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, num_labels)
        self.loss_fct = nn.CrossEntropyLoss()

    def forward(self, input_ids, attention_mask, labels=None):
        x = self.emb(input_ids)
        a, _ = self.attn(x, x, x, key_padding_mask=~attention_mask, need_weights=False)
        x = self.norm(x + a)
        m = attention_mask.unsqueeze(-1).float()
        logits = self.classifier((x * m).sum(1) / m.sum(1))
        out = {"logits": logits}
        if labels is not None:
            out["loss"] = self.loss_fct(logits, labels)
        return out


def main():
    torch.manual_seed(0)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    collate = partial(collate_fn, pad_id=0)
    train_dataloader = DataLoader(ReviewDataset(109, 1), shuffle=True, batch_size=12, collate_fn=collate)
    eval_dataloader = DataLoader(ReviewDataset(40, 2), batch_size=12, collate_fn=collate)

    model = TinyBert().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(3):
        model.train()
        total_loss = 0
        for step, batch in enumerate(train_dataloader):
            batch = {k: v.to(device) for k, v in batch.items()}
            outputs = model(**batch)
            loss = outputs["loss"]
            total_loss += loss.detach().float()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        model.eval()
        hits = count = 0
        for batch in eval_dataloader:
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.no_grad():
                outputs = model(**batch)
            predictions = outputs["logits"].argmax(dim=-1)
            hits += (predictions == batch["labels"]).sum().item()
            count += len(predictions)
        print(f"epoch {epoch}: train_loss {total_loss.item() / len(train_dataloader):.4f} accuracy {hits / count:.3f}")


if __name__ == "__main__":
    main()
