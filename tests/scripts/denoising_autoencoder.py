"""Convolutional denoising autoencoder; noise added in the loop, reconstructions saved as .npy (no seed)."""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

# pictures of a bright square on black
imgs = np.zeros((130, 1, 8, 8), dtype=np.float32)
for im in imgs:
    r, c = np.random.randint(0, 5, 2)
    im[0, r:r + 3, c:c + 3] = 1.0

train_loader = DataLoader(imgs, batch_size=20, shuffle=True)


class ConvDenoiser(nn.Module):
    def __init__(self):
        super(ConvDenoiser, self).__init__()
        # encoder layers #
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        # decoder layers #
        self.t_conv1 = nn.ConvTranspose2d(4, 8, 2, stride=2)
        self.conv_out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x))
        x = self.pool(F.leaky_relu(self.conv2(x)))
        x = F.leaky_relu(self.t_conv1(x))
        return torch.sigmoid(self.conv_out(x))


model = ConvDenoiser()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
noise_factor = 0.3

for epoch in range(1, 9):
    train_loss = 0.0
    for images in train_loader:
        ## add random noise to the input images
        noisy_imgs = images + noise_factor * torch.randn(*images.shape)
        noisy_imgs = np.clip(noisy_imgs, 0., 1.)
        optimizer.zero_grad()
        outputs = model(noisy_imgs)
        # the "target" is still the original, not-noisy images
        loss = criterion(outputs, images)
        loss.backward()
        optimizer.step()
        train_loss += loss.item() * images.size(0)
    train_loss = train_loss / len(train_loader.dataset)
    print('Epoch: {} \tTraining Loss: {:.6f}'.format(epoch, train_loss))

with torch.no_grad():
    rec = model(torch.from_numpy(imgs[:5]))
np.save("reconstructions.npy", rec.numpy())
