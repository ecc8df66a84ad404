"""Sentiment RNN whose loop makes the hidden state with init_hidden(batch_size) and needs full batches."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

np.random.seed(0)
torch.manual_seed(0)

vocab, seq_len, batch_size = 25, 9, 10
labels = np.random.randint(0, 2, 95)
features = np.random.randint(5, vocab, (95, seq_len))
for row, lab in enumerate(labels):
    pos = np.random.choice(seq_len, 3, replace=False)
    features[row, pos] = 1 if lab else 2

train_data = TensorDataset(torch.from_numpy(features[:75]), torch.from_numpy(labels[:75]))
valid_data = TensorDataset(torch.from_numpy(features[75:]), torch.from_numpy(labels[75:]))
train_loader = DataLoader(train_data, shuffle=True, batch_size=batch_size, drop_last=True)
valid_loader = DataLoader(valid_data, shuffle=True, batch_size=batch_size, drop_last=True)


class SentimentRNN(nn.Module):
    def __init__(self, vocab_size, output_size, embedding_dim, hidden_dim, n_layers, drop_prob=0.3):
        super().__init__()
        self.output_size = output_size
        self.n_layers = n_layers
        self.hidden_dim = hidden_dim
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, n_layers, batch_first=True)
        self.dropout = nn.Dropout(drop_prob)
        self.fc = nn.Linear(hidden_dim, output_size)
        self.sig = nn.Sigmoid()

    def forward(self, x, hidden):
        batch_size = x.size(0)
        embeds = self.embedding(x)
        lstm_out, hidden = self.lstm(embeds, hidden)
        lstm_out = lstm_out.contiguous().view(-1, self.hidden_dim)
        out = self.sig(self.fc(self.dropout(lstm_out)))
        out = out.view(batch_size, -1)
        out = out[:, -1]  # get last batch of labels
        return out, hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters()).data
        return (weight.new(self.n_layers, batch_size, self.hidden_dim).zero_(),
                weight.new(self.n_layers, batch_size, self.hidden_dim).zero_())


net = SentimentRNN(vocab, 1, 8, 16, 1)
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
counter, print_every, clip = 0, 7, 5

net.train()
for e in range(4):
    # initialize hidden state
    h = net.init_hidden(batch_size)
    for inputs, labels in train_loader:
        counter += 1
        # Creating new variables for the hidden state, otherwise
        # we'd backprop through the entire training history
        h = tuple([each.data for each in h])
        net.zero_grad()
        output, h = net(inputs, h)
        loss = criterion(output.squeeze(), labels.float())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()

        # loss stats
        if counter % print_every == 0:
            val_h = net.init_hidden(batch_size)
            val_losses = []
            net.eval()
            for inputs, labels in valid_loader:
                val_h = tuple([each.data for each in val_h])
                output, val_h = net(inputs, val_h)
                val_loss = criterion(output.squeeze(), labels.float())
                val_losses.append(val_loss.item())
            net.train()
            print("Epoch: {}/{}...".format(e + 1, 4), "Step: {}...".format(counter),
                  "Loss: {:.6f}...".format(loss.item()), "Val Loss: {:.6f}".format(np.mean(val_losses)))
