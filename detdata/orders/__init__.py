"""Orders: position -> sample id, per epoch, invertible. One file for each idea; `base` says what an order is."""

from detdata.orders.base import Order
from detdata.orders.blocks import BlockShuffle
from detdata.orders.compose import Concat, Subset
from detdata.orders.shuffle import Sequential, Shuffle
from detdata.orders.torch_shuffle import TorchShuffle

__all__ = ["BlockShuffle", "Concat", "Order", "Sequential", "Shuffle", "Subset", "TorchShuffle"]
