"""Suites that prove your own orders and formats: subclass one in a pytest module, and its laws become your tests.

>>> from detdata import Shuffle
>>> class TestMine(OrderSuite):
...     orders = [Shuffle(10, seed=1), Shuffle(10**12, seed=2)]
>>> TestMine().test_find_undoes_take()
"""

from __future__ import annotations

from detdata.testing.corpora import CorpusSuite
from detdata.testing.orders import OrderSuite

__all__ = ["CorpusSuite", "OrderSuite"]
