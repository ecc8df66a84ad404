"""A GAN on a ring of Gaussians: two models, two optimizers, noise drawn in the loop."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

manualSeed = 999
print("Random Seed: ", manualSeed)
torch.manual_seed(manualSeed)

nz = 4
batch_size = 36
num_epochs = 5
lr = 0.002
real_label, fake_label = 1., 0.
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

angles = torch.randint(0, 8, (250,)) * (2 * math.pi / 8)
ring = torch.stack([torch.cos(angles), torch.sin(angles)], 1) + 0.05 * torch.randn(250, 2)
dataloader = DataLoader(TensorDataset(ring), batch_size=batch_size, shuffle=True)

netG = nn.Sequential(nn.Linear(nz, 32), nn.ReLU(True), nn.Linear(32, 32), nn.ReLU(True), nn.Linear(32, 2)).to(device)
netD = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid()).to(device)

criterion = nn.BCELoss()
fixed_noise = torch.randn(20, nz, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=lr, betas=(0.5, 0.999))

G_losses, D_losses = [], []
print("Starting Training Loop...")
for epoch in range(num_epochs):
    for i, data in enumerate(dataloader, 0):
        ############################
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        ###########################
        netD.zero_grad()
        real_cpu = data[0].to(device)
        b_size = real_cpu.size(0)
        label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
        output = netD(real_cpu).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()

        noise = torch.randn(b_size, nz, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()

        ############################
        # (2) Update G network: maximize log(D(G(z)))
        ###########################
        netG.zero_grad()
        label.fill_(real_label)  # fake labels are real for generator cost
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().item()
        optimizerG.step()

        if i % 4 == 0:
            print('[%d/%d][%d/%d]\tLoss_D: %.4f\tLoss_G: %.4f\tD(x): %.4f\tD(G(z)): %.4f / %.4f'
                  % (epoch, num_epochs, i, len(dataloader), errD.item(), errG.item(), D_x, D_G_z1, D_G_z2))
        G_losses.append(errG.item())
        D_losses.append(errD.item())

    with torch.no_grad():
        fake = netG(fixed_noise).detach().cpu()
    print("epoch", epoch, "mean radius of fakes %.3f" % fake.norm(dim=1).mean())
