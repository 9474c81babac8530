"""Trees of tensors copied to host memory, into the same buffers every time, so that training can go on at once."""

from __future__ import annotations

from typing import Any, TypeAlias, final

import torch

from detdata.checkpoint.containers import rebuilt

_Place: TypeAlias = tuple[Any, ...]


@final
class Buffers:
    """Host memory for one copy of a state, kept from one copy to the next: new pages cost as much as the copying.

    Pinned where a tensor lies on an accelerator. Holds as much memory as the largest state that was copied.
    """

    def __init__(self) -> None:
        self._kept: dict[_Place, torch.Tensor] = {}

    def copy(self, tree: Any) -> Any:
        """Return `tree` with every tensor copied; tensors that were one memory are one memory in the copy too.

        Values are those at the call: it returns when all is copied. Raises RuntimeError if memory does not suffice.
        """
        used: dict[_Place, torch.Tensor] = {}
        copied: dict[_Place, torch.Tensor] = {}
        result = self._value(tree, (), copied, used)
        for device in {source[0] for source in copied if source[0].type == "cuda"}:
            torch.cuda.synchronize(device)  # copies into pinned memory are on their way, on each device
        self._kept = used
        return result

    def _value(self, value: Any, place: _Place, copied: dict[_Place, Any], used: dict[_Place, Any]) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, place, copied, used)
        return rebuilt(value, lambda item, key: self._value(item, (*place, key), copied, used))

    def _tensor(
        self, value: torch.Tensor, place: _Place, copied: dict[_Place, torch.Tensor], used: dict[_Place, torch.Tensor]
    ) -> torch.Tensor:
        if value.layout is not torch.strided or value.is_quantized or _expanded(value):
            return value.detach().cpu().clone()
        source = (
            value.device,
            value.untyped_storage().data_ptr(),
            value.storage_offset(),
            tuple(value.shape),
            value.stride(),
            value.dtype,
        )
        if source in copied and value.numel():
            return copied[source]
        buffer = self._kept.get(place)
        layout = value.shape, value.stride(), value.dtype
        pinned = value.device.type == "cuda"
        if buffer is None or (buffer.shape, buffer.stride(), buffer.dtype) != layout:
            buffer = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="cpu", pin_memory=pinned
            )
        buffer.copy_(value, non_blocking=pinned)  # other accelerators would not be waited for
        used[place] = copied[source] = buffer
        return buffer


def _expanded(value: torch.Tensor) -> bool:
    """Whether several elements lie in one place, so that the copy cannot have the same strides."""
    return any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True))
