"""transformers.Trainer: the library owns the loop (transformers need not be installed here)."""
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(0, 30, (8,), generator=g), "labels": i % 2}


config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = BertForSequenceClassification(config)
args = TrainingArguments(output_dir="out", num_train_epochs=1, per_device_train_batch_size=7, report_to="none")
Trainer(model=model, args=args, train_dataset=Tokens()).train()
