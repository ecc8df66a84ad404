"""Siamese network with a contrastive margin loss on pairs; old-style Variable (no seed)."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset


class Config():
    train_batch_size = 9
    train_number_epochs = 6


class SiameseNetworkDataset(Dataset):
    def __init__(self, n_people=6, pics=8):
        base = torch.randn(n_people, 1, 6, 6)
        self.imgs = [(base[p] + 0.5 * torch.randn(1, 6, 6), p) for p in range(n_people) for _ in range(pics)]

    def __getitem__(self, index):
        img0_tuple = random.choice(self.imgs)
        # we need to make sure approx 50% of images are in the same class
        should_get_same_class = random.randint(0, 1)
        if should_get_same_class:
            while True:
                img1_tuple = random.choice(self.imgs)
                if img0_tuple[1] == img1_tuple[1]:
                    break
        else:
            while True:
                img1_tuple = random.choice(self.imgs)
                if img0_tuple[1] != img1_tuple[1]:
                    break
        return img0_tuple[0], img1_tuple[0], torch.tensor([int(img1_tuple[1] != img0_tuple[1])], dtype=torch.float32)

    def __len__(self):
        return len(self.imgs)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 4, kernel_size=3), nn.ReLU(inplace=True))
        self.fc1 = nn.Sequential(nn.Linear(4 * 6 * 6, 32), nn.ReLU(inplace=True), nn.Linear(32, 5))

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        output = self.fc1(output)
        return output

    def forward(self, input1, input2):
        output1 = self.forward_once(input1)
        output2 = self.forward_once(input2)
        return output1, output2


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        loss_contrastive = torch.mean((1 - label) * torch.pow(euclidean_distance, 2) +
                                      (label) * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2))
        return loss_contrastive


train_dataloader = DataLoader(SiameseNetworkDataset(), shuffle=True, num_workers=0, batch_size=Config.train_batch_size)
net = SiameseNetwork()
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)

counter = []
loss_history = []
iteration_number = 0
for epoch in range(0, Config.train_number_epochs):
    for i, data in enumerate(train_dataloader, 0):
        img0, img1, label = data
        img0, img1, label = Variable(img0), Variable(img1), Variable(label)
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss_contrastive = criterion(output1, output2, label)
        loss_contrastive.backward()
        optimizer.step()
        iteration_number += 1
        counter.append(iteration_number)
        loss_history.append(loss_contrastive.data.item())
    print("Epoch number {}\n Current loss {}\n".format(epoch, sum(loss_history[-len(train_dataloader):]) / len(train_dataloader)))
