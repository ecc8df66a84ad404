"""BiLSTM part-of-speech tagger on padded sentences with ignore_index."""
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

random.seed(1)
torch.manual_seed(1)

det, noun, verb = ["the", "a", "every"], ["dog", "cat", "apple", "book", "man"], ["ate", "read", "saw", "likes"]
adj = ["big", "red", "old"]
tag_to_ix = {"DET": 0, "NN": 1, "V": 2, "ADJ": 3}
PAD_TAG = -100


def noun_phrase():
    words = [(random.choice(det), "DET")]
    for _ in range(random.randint(0, 2)):
        words.append((random.choice(adj), "ADJ"))
    return words + [(random.choice(noun), "NN")]


def sentence():
    words = noun_phrase() + [(random.choice(verb), "V")]
    if random.random() < 0.6:
        words += noun_phrase()
    return words


training_data = [sentence() for _ in range(85)]
word_to_ix = {"<pad>": 0}
for sent in training_data:
    for word, _ in sent:
        if word not in word_to_ix:
            word_to_ix[word] = len(word_to_ix)


def collate(batch):
    xs = [torch.tensor([word_to_ix[w] for w, _ in s]) for s in batch]
    ys = [torch.tensor([tag_to_ix[t] for _, t in s]) for s in batch]
    return (pad_sequence(xs, batch_first=True),
            pad_sequence(ys, batch_first=True, padding_value=PAD_TAG))


class LSTMTagger(nn.Module):
    def __init__(self, embedding_dim, hidden_dim, vocab_size, tagset_size):
        super(LSTMTagger, self).__init__()
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.hidden2tag = nn.Linear(2 * hidden_dim, tagset_size)

    def forward(self, sentence):
        embeds = self.word_embeddings(sentence)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out)


model = LSTMTagger(6, 8, len(word_to_ix), len(tag_to_ix))
loss_function = nn.CrossEntropyLoss(ignore_index=PAD_TAG)
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
loader = DataLoader(training_data, batch_size=14, shuffle=True, collate_fn=collate)

for epoch in range(5):
    running, correct, tokens = 0.0, 0, 0
    for sents, tags in loader:
        model.zero_grad()
        tag_scores = model(sents)
        loss = loss_function(tag_scores.view(-1, len(tag_to_ix)), tags.view(-1))
        loss.backward()
        optimizer.step()

        valid = tags != PAD_TAG
        running += loss.item() * valid.sum().item()
        correct += (tag_scores.argmax(-1) == tags)[valid].sum().item()
        tokens += valid.sum().item()
    print("epoch %d  loss/token %.4f  accuracy %.3f" % (epoch, running / tokens, correct / tokens))
