"""Mixed precision: autocast (float16 on CUDA, bfloat16 on CPU), GradScaler, unscale_ before clipping."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(16)
device = "cuda" if torch.cuda.is_available() else "cpu"
amp_dtype = torch.float16 if device == "cuda" else torch.bfloat16

x = torch.randn(171, 10)
y = (x @ torch.randn(10, 5)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=13, shuffle=True)

net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
scaler = torch.amp.GradScaler(device, init_scale=1024.0)

for epoch in range(4):
    running = 0.0
    for input, target in loader:
        input, target = input.to(device), target.to(device)
        with torch.autocast(device_type=device, dtype=amp_dtype):
            output = net(input)
            loss = loss_fn(output, target)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=2.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        running += loss.item() * len(input)
    print(f"epoch {epoch}: loss {running / len(x):.4f} scale {scaler.get_scale()}")
