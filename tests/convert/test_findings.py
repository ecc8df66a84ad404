"""What is reported: kinds, names and places."""

from __future__ import annotations

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter()
model = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(torch.randn(8, 4), batch_size=4)
losses = []
for epoch in range(3):
    total, correct = 0.0, 0
    for x in loader:
        out = model(x)
        loss = out.sum()
        loss.backward()
        opt.step()
        total += loss.item() * len(x)
        correct += (out.argmax(1) == 0).sum().item()
        losses.append(loss.item())
    print(total)
    writer.add_scalar("loss", total, epoch)
with open("log.txt", "w") as file:
    file.write("done")
torch.save(model.state_dict(), "model.pt")
"""


def test_everything_of_note_is_found_where_it_is(convert_text) -> None:
    program = convert_text(SCRIPT).program
    found = {(f.kind, f.name, f.place.line, f.place.column) for f in program.findings}
    assert {
        ("model", "model", 5, 9),
        ("optimizer", "opt", 6, 7),
        ("loader", "loader", 7, 10),
        ("loop", "range(3)", 9, 1),
        ("loop", "loader", 11, 5),
        ("reduction", "total", 16, 9),
        ("reduction", "correct", 17, 9),
        ("reduction", "losses", 18, 9),
        ("side-effect", "print", 19, 5),
        ("side-effect", "writer.add_scalar", 20, 5),
        ("side-effect", "open", 21, 6),
        ("side-effect", "torch.save", 23, 1),
    } <= found
    rewritten = {f.kind for f in program.findings if f.rewritten}
    assert rewritten == {"model", "optimizer", "loader"}
    effects = [f for f in program.findings if f.kind == "side-effect"]
    assert all("once, by worker 0" in f.detail for f in effects)


def test_findings_of_the_script_come_first_and_in_order(convert_text) -> None:
    lines = [f.place.line for f in convert_text(SCRIPT).program.findings]
    assert lines == sorted(lines)
