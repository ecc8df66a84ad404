"""WGAN-GP: gradient penalty through autograd.grad, five critic steps a generator step."""
import argparse

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=4)
parser.add_argument("--batch_size", type=int, default=22)
parser.add_argument("--lr", type=float, default=0.002)
parser.add_argument("--latent_dim", type=int, default=5)
parser.add_argument("--n_critic", type=int, default=5)
opt = parser.parse_args()

np.random.seed(0)
torch.manual_seed(0)
lambda_gp = 10


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat):
            return [nn.Linear(in_feat, out_feat), nn.LeakyReLU(0.2, inplace=True)]

        self.model = nn.Sequential(*block(opt.latent_dim, 24), *block(24, 24), nn.Linear(24, 3))

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(nn.Linear(3, 24), nn.LeakyReLU(0.2), nn.Linear(24, 24), nn.LeakyReLU(0.2),
                                   nn.Linear(24, 1))

    def forward(self, x):
        return self.model(x)


generator = Generator()
discriminator = Discriminator()

samples = torch.from_numpy(np.random.multivariate_normal(
    [2, -1, 0], [[1, .6, 0], [.6, 1, 0], [0, 0, .2]], size=225)).float()
dataloader = torch.utils.data.DataLoader(samples, batch_size=opt.batch_size, shuffle=True)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(0.5, 0.9))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(0.5, 0.9))


def compute_gradient_penalty(D, real_samples, fake_samples):
    """Calculates the gradient penalty loss for WGAN GP"""
    # Random weight term for interpolation between real and fake samples
    alpha = torch.tensor(np.random.random((real_samples.size(0), 1)), dtype=torch.float32)
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = torch.ones(real_samples.shape[0], 1)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    gradient_penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    return gradient_penalty


batches_done = 0
for epoch in range(opt.n_epochs):
    for i, real in enumerate(dataloader):
        # ---------------------
        #  Train Discriminator
        # ---------------------
        optimizer_D.zero_grad()
        z = torch.tensor(np.random.normal(0, 1, (real.shape[0], opt.latent_dim)), dtype=torch.float32)
        fake = generator(z)
        real_validity = discriminator(real)
        fake_validity = discriminator(fake)
        gradient_penalty = compute_gradient_penalty(discriminator, real.data, fake.data)
        d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + lambda_gp * gradient_penalty
        d_loss.backward()
        optimizer_D.step()

        optimizer_G.zero_grad()

        # Train the generator every n_critic steps
        if i % opt.n_critic == 0:
            fake = generator(z)
            fake_validity = discriminator(fake)
            g_loss = -torch.mean(fake_validity)
            g_loss.backward()
            optimizer_G.step()

            print("[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                  % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), g_loss.item()))
            batches_done += opt.n_critic
