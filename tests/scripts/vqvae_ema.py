"""VQ-VAE whose codebook is a buffer updated in forward by an EMA of the batch's assignments."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(44)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay, epsilon=1e-5):
        super(VectorQuantizerEMA, self).__init__()
        self._embedding_dim = embedding_dim
        self._num_embeddings = num_embeddings
        embedding = torch.randn(num_embeddings, embedding_dim)
        self.register_buffer('_embedding', embedding)
        self.register_buffer('_ema_cluster_size', torch.ones(num_embeddings))
        self.register_buffer('_ema_w', embedding.clone())
        self._commitment_cost = commitment_cost
        self._decay = decay
        self._epsilon = epsilon

    def forward(self, inputs):
        # Calculate distances and encode
        distances = torch.cdist(inputs, self._embedding)
        encodings = F.one_hot(distances.argmin(1), self._num_embeddings).float()
        quantized = encodings @ self._embedding

        # Use EMA to update the embedding vectors
        if self.training:
            with torch.no_grad():
                self._ema_cluster_size.mul_(self._decay).add_(encodings.sum(0), alpha=1 - self._decay)
                # Laplace smoothing of the cluster size
                n = self._ema_cluster_size.sum()
                size = ((self._ema_cluster_size + self._epsilon)
                        / (n + self._num_embeddings * self._epsilon) * n)
                dw = encodings.t() @ inputs
                self._ema_w.mul_(self._decay).add_(dw, alpha=1 - self._decay)
                self._embedding.copy_(self._ema_w / size.unsqueeze(1))

        # Loss
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        loss = self._commitment_cost * e_latent_loss

        # Straight Through Estimator
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized, perplexity


class Model(nn.Module):
    def __init__(self, dim=12, latent=4, codes=10):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, latent))
        self.vq = VectorQuantizerEMA(codes, latent, commitment_cost=0.25, decay=0.9)
        self.decoder = nn.Sequential(nn.Linear(latent, 24), nn.ReLU(), nn.Linear(24, dim))

    def forward(self, x):
        loss, quantized, perplexity = self.vq(self.encoder(x))
        return loss, self.decoder(quantized), perplexity


proto = torch.randn(6, 12)
data = proto[torch.randint(0, 6, (197,))] + 0.1 * torch.randn(197, 12)
data_variance = data.var()
training_loader = DataLoader(TensorDataset(data), batch_size=24, shuffle=True)

model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
model.train()
for epoch in range(8):
    recon_errors, perplexities = [], []
    for (x,) in training_loader:
        optimizer.zero_grad()
        vq_loss, data_recon, perplexity = model(x)
        recon_error = F.mse_loss(data_recon, x) / data_variance
        loss = recon_error + vq_loss
        loss.backward()
        optimizer.step()
        recon_errors.append(recon_error.item())
        perplexities.append(perplexity.item())
    print('%d recon_error: %.4f perplexity: %.3f' % (
        epoch, sum(recon_errors) / len(recon_errors), sum(perplexities) / len(perplexities)))

torch.save(model.state_dict(), "vqvae.pt")
