"""Where training stands: four integers, and of a mixture how many samples came from each source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, UnknownFormat

_FIELDS = ("global_step", "epoch", "consumed_samples", "micro_step")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands.

    global_step: optimizer steps done. epoch: the epoch of the next batch. consumed_samples: samples that all ranks
    consumed in the global steps that are done. micro_step: micro-batches of the step under way that the loop has had.
    per_source: of a mixture, the consumed samples of each source by name; None for any other plan.
    Raises ValueError, TypeError for anything but integers from 0 on.

    >>> Progress(global_step=3, epoch=0, consumed_samples=96)
    Progress(global_step=3, epoch=0, consumed_samples=96, micro_step=0)
    """

    global_step: int = 0
    epoch: int = 0
    consumed_samples: int = 0
    micro_step: int = 0
    per_source: dict[str, int] | None = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        for name in _FIELDS:
            object.__setattr__(self, name, as_int(getattr(self, name), name))
        if self.per_source is not None:
            if not isinstance(self.per_source, Mapping):
                raise ArgumentTypeError(f"per_source must be a dict or None, got {type(self.per_source).__name__}")
            counts = {str(name): as_int(count, f"per_source[{name!r}]") for name, count in self.per_source.items()}
            object.__setattr__(self, "per_source", counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the integers as plain JSON; `per_source` only where there is one.

        >>> Progress(1, 0, 8).to_dict()
        {'global_step': 1, 'epoch': 0, 'consumed_samples': 8, 'micro_step': 0}
        """
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Progress:
        """Rebuild what `to_dict` returned. Raises UnknownFormat for missing or unknown keys.

        >>> Progress.from_dict(Progress(1, 0, 8).to_dict()) == Progress(1, 0, 8)
        True
        """
        if not isinstance(record, Mapping):
            raise ArgumentTypeError(f"progress must be a dict, got {type(record).__name__}")
        if set(record) - {"per_source"} != set(_FIELDS):
            raise UnknownFormat(f"progress has the keys {sorted(_FIELDS)}, got {sorted(map(str, record))}")
        return cls(**record)
