"""Train a small network by golow's plan in your own loop, with a checkpoint that PyTorch reads.

python examples/train_step.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import golow

EPOCHS, RATE = 6, 5e-3


def spirals(number: int) -> TensorDataset:
    """Points of three spirals around one centre, [number, 2], and which spiral each is of."""
    drawn = torch.Generator().manual_seed(0)
    label = torch.arange(number) % 3
    radius = torch.rand(number, generator=drawn)
    angle = 4 * radius + 2.1 * label + 0.1 * torch.randn(number, generator=drawn)
    points = torch.stack([angle.cos(), angle.sin()], 1) * radius[:, None]
    return TensorDataset(points, label)


def main() -> None:
    """Train, evaluate after each epoch, and go on in PyTorch for one step."""
    torch.manual_seed(0)
    loader = DataLoader(spirals(1500), batch_size=64, shuffle=True)  # 28 samples end an epoch
    points, labels = spirals(600).tensors
    model = nn.Sequential(
        nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )
    loss = nn.CrossEntropyLoss()
    step = golow.compile_step(
        model,
        loss,
        optimizer=golow.Optimizer("adamw", learning_rate=RATE, clip=1.0),
        example=next(iter(loader)),
    )
    for epoch in range(EPOCHS):
        step.learning_rate = RATE * (1 - epoch / EPOCHS)
        losses = [step(x, y) for x, y in loader]
        right = (step.evaluate(points).argmax(1) == labels).float().mean()
        print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}, {right:.1%} right")

    optimizer = torch.optim.AdamW(model.parameters())
    model.load_state_dict(step.state_dict())
    optimizer.load_state_dict(step.optimizer_state())
    loss(model(points), labels).backward()
    optimizer.step()
    print(f"PyTorch went on at a loss of {loss(model(points), labels):.3f}")


if __name__ == "__main__":
    main()
