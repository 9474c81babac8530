"""Prime moduli: with them, x -> (a · x + b) mod p brings any two places to any two others, each pair equally often."""

from __future__ import annotations

_SMALL = (2, 3, 5, 7)  # as bases they tell every prime below 3,215,031,751 (Jaeschke 1993)


def prime_from(n: int) -> int:
    """Return the smallest prime that is at least n, for n up to 2**31.

    >>> [prime_from(n) for n in (0, 2, 8, 2**31)]
    [2, 2, 11, 2147483659]
    """
    candidate = max(n, 2)
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _is_prime(n: int) -> bool:
    """By Miller and Rabin's test."""
    if n in _SMALL:
        return True
    if any(n % prime == 0 for prime in _SMALL):
        return False
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    return all(_passes(pow(base, (n - 1) >> twos, n), twos, n) for base in _SMALL)


def _passes(power: int, twos: int, n: int) -> bool:
    if power == 1:
        return True
    for _ in range(twos):
        if power == n - 1:
            return True
        power = power * power % n
    return False
