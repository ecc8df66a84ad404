"""Physics-informed network for u'' = -u: derivatives by autograd.grad, collocation points drawn each step."""
import torch
import torch.nn as nn

torch.manual_seed(123)


class FCN(nn.Module):
    "Defines a standard fully-connected network"

    def __init__(self, N_INPUT, N_OUTPUT, N_HIDDEN, N_LAYERS):
        super().__init__()
        activation = nn.Tanh
        self.fcs = nn.Sequential(nn.Linear(N_INPUT, N_HIDDEN), activation())
        self.fch = nn.Sequential(*[nn.Sequential(nn.Linear(N_HIDDEN, N_HIDDEN), activation())
                                   for _ in range(N_LAYERS - 1)])
        self.fce = nn.Linear(N_HIDDEN, N_OUTPUT)

    def forward(self, x):
        return self.fce(self.fch(self.fcs(x)))


pinn = FCN(1, 1, 24, 2)
optimiser = torch.optim.Adam(pinn.parameters(), lr=1e-2)
t_boundary = torch.zeros(1, 1, requires_grad=True)
n_colloc = 37

for i in range(120):
    optimiser.zero_grad()

    # boundary: u(0) = 1, u'(0) = 0
    u = pinn(t_boundary)
    loss1 = (torch.squeeze(u) - 1) ** 2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 0) ** 2

    # physics
    t_physics = (torch.rand(n_colloc, 1) * 3).requires_grad_(True)
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + u) ** 2)

    loss = loss1 + 0.1 * loss2 + 0.1 * loss3
    loss.backward()
    optimiser.step()
    if (i + 1) % 30 == 0:
        with torch.no_grad():
            t = torch.linspace(0, 3, 50).unsqueeze(1)
            err = (pinn(t) - torch.cos(t)).abs().max()
        print(f"{i + 1} loss {loss.item():.5f} max error {err:.4f}")
