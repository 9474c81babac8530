"""How well a shuffle by blocks mixes, by the size of its window; the table of docs/howto/choose_a_window.md.

python tools/window_quality.py     a corpus of 1,000,000 rows in 1,000 blocks, sorted by label: the worst that there is

Two figures for each window, over batches of 256 rows:
- together: how many of a row's neighbours in its batch come from its own block, beyond what a full shuffle gives
- imbalance: the standard deviation of a label's share in a batch (10 labels, the corpus sorted by them), as a multiple
  of the full shuffle's. 1 is as good as a full shuffle; the gradient of a batch is as noisy as this says.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detdata import BlockShuffle, Order, Shuffle

BLOCKS, ROWS, BATCH, LABELS, EPOCHS = 1000, 1000, 256, 10, 2
WINDOWS = (1, 4, 16, 64, 256, 1000)


def batches(order: Order, epoch: int) -> npt.NDArray[np.int64]:
    """Ids of every batch of an epoch: int64[batches, BATCH]."""
    count = order.size // BATCH
    parts = [order.take(np.arange(i * BATCH, (i + 8) * BATCH), epoch) for i in range(0, count - 8, 8)]
    return np.concatenate(parts).reshape(-1, BATCH)


def figures(order: Order) -> tuple[float, float]:
    """(share of pairs in a batch that are of one block, standard deviation of a label's share in a batch)."""
    together, spread = [], []
    for epoch in range(EPOCHS):
        ids = batches(order, epoch)
        blocks = np.sort(ids // ROWS, axis=1)
        edges = np.diff(blocks, axis=1, prepend=-1) != 0
        for row in edges:
            sizes = np.diff(np.flatnonzero(np.append(row, True)))
            together.append((sizes * (sizes - 1)).sum() / (BATCH * (BATCH - 1)))
        labels = ids * LABELS // (BLOCKS * ROWS)
        shares = np.stack([(labels == label).mean(axis=1) for label in range(LABELS)])
        spread.append(shares.std(axis=1).mean())
    return float(np.mean(together)), float(np.mean(spread))


def main() -> None:
    """Print the table."""
    sizes = [ROWS] * BLOCKS
    base_together, base_spread = figures(Shuffle(BLOCKS * ROWS, seed=1))
    print("| window | rows in it | of a row's batch from its own block | imbalance of labels |")
    print("| --- | --- | --- | --- |")
    for window in WINDOWS:
        together, spread = figures(BlockShuffle(sizes, seed=1, window=window))
        print(f"| {window:,} | {window * ROWS:,} | {together:.1%} | {spread / base_spread:.2f} |")
    print(f"| full shuffle | {BLOCKS * ROWS:,} | {base_together:.1%} | 1.00 |")


if __name__ == "__main__":
    main()
