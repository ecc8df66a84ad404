"""Name classification, one random name a step and a hand-written SGD update, after the char-RNN tutorial."""
import random
import string

import torch
import torch.nn as nn

random.seed(8)
torch.manual_seed(8)

all_letters = string.ascii_lowercase
n_letters = len(all_letters)
# three made-up languages that differ in the letters they like
alphabets = {"Vocalic": "aeiouaeiouln", "Harsh": "krtgzkrtgzao", "Soft": "mnlvmnlvyei"}
category_lines = {
    lang: ["".join(random.choice(letters) for _ in range(random.randint(3, 7))) for _ in range(30)]
    for lang, letters in alphabets.items()
}
all_categories = list(category_lines)
n_categories = len(all_categories)


def letterToIndex(letter):
    return all_letters.find(letter)


def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letterToIndex(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = torch.tanh(self.i2h(input) + self.h2h(hidden))
        output = self.softmax(self.h2o(hidden))
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


rnn = RNN(n_letters, 32, n_categories)
criterion = nn.NLLLoss()
learning_rate = 0.05


def randomTrainingExample():
    category = random.choice(all_categories)
    line = random.choice(category_lines[category])
    category_tensor = torch.tensor([all_categories.index(category)], dtype=torch.long)
    return category, line, category_tensor, lineToTensor(line)


def train(category_tensor, line_tensor):
    hidden = rnn.initHidden()
    rnn.zero_grad()
    for i in range(line_tensor.size()[0]):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    # Add parameters' gradients to their values, multiplied by learning rate
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item()


n_iters = 300
print_every = 60
current_loss = 0
all_losses = []
for iter in range(1, n_iters + 1):
    category, line, category_tensor, line_tensor = randomTrainingExample()
    output, loss = train(category_tensor, line_tensor)
    current_loss += loss
    if iter % print_every == 0:
        guess = all_categories[output.argmax().item()]
        correct = '✓' if guess == category else '✗ (%s)' % category
        print('%d %.4f %s / %s %s' % (iter, current_loss / print_every, line, guess, correct))
        all_losses.append(current_loss / print_every)
        current_loss = 0
