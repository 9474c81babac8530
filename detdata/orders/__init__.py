"""Orders: position -> sample id, per epoch, invertible. One file for each idea; `base` says what an order is."""

from detdata.orders.base import Order
from detdata.orders.blocks import BlockShuffle
from detdata.orders.compose import Concat, Subset
from detdata.orders.groups import GroupShuffle
from detdata.orders.mixture import Mixture
from detdata.orders.shuffle import Sequential, Shuffle
from detdata.orders.split import split, split_of
from detdata.orders.torch_shuffle import TorchShuffle
from detdata.orders.weighted import Weighted, class_balanced

__all__ = [
    "BlockShuffle",
    "Concat",
    "GroupShuffle",
    "Mixture",
    "Order",
    "Sequential",
    "Shuffle",
    "Subset",
    "TorchShuffle",
    "Weighted",
    "class_balanced",
    "split",
    "split_of",
]
