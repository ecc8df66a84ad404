"""Combination: gradient accumulation, clipping by norm, warm-up by LambdaLR, and a CNN with BatchNorm."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return float(current_step + 1) / float(max(1, num_warmup_steps))
        return max(0.0, float(num_training_steps - current_step) / float(max(1, num_training_steps - num_warmup_steps)))
    return LambdaLR(optimizer, lr_lambda)


class Args:
    seed = 1
    train_batch_size = 9
    gradient_accumulation_steps = 2
    num_train_epochs = 3
    learning_rate = 2e-2
    warmup_steps = 4
    max_grad_norm = 1.0
    logging_steps = 5


args = Args()
torch.manual_seed(args.seed)

labels = torch.randint(0, 3, (149,))
signals = torch.randn(149, 2, 12)
for i, c in enumerate(labels.tolist()):
    signals[i, 0, c * 4:c * 4 + 4] += 1.5

train_dataloader = DataLoader(TensorDataset(signals, labels), batch_size=args.train_batch_size, shuffle=True)
model = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
t_total = len(train_dataloader) // args.gradient_accumulation_steps * args.num_train_epochs
scheduler = get_linear_schedule_with_warmup(optimizer, args.warmup_steps, t_total)

global_step = 0
tr_loss, logging_loss = 0.0, 0.0
model.zero_grad()
for epoch in range(args.num_train_epochs):
    for step, batch in enumerate(train_dataloader):
        model.train()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        if args.gradient_accumulation_steps > 1:
            loss = loss / args.gradient_accumulation_steps
        loss.backward()
        tr_loss += loss.item()
        if (step + 1) % args.gradient_accumulation_steps == 0:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
            global_step += 1
            if global_step % args.logging_steps == 0:
                print(f"step {global_step} lr {scheduler.get_last_lr()[0]:.5f} grad norm {norm:.4f} "
                      f"loss {(tr_loss - logging_loss) / args.logging_steps:.4f}")
                logging_loss = tr_loss
