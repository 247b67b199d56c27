"""One thread's way to the GPU: two pinned buffers that take turns, a stream, and events that end each copy."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from dataclasses import dataclass

from muster_agent.reload.gpu.device import CudaDevice

SLOTS = 2
"""While one buffer is copied to the device the next block is read into the other."""


class LaneClosed(OSError):
    """The session ended while this thread was inside a read; its bytes go nowhere."""


@dataclass(slots=True)
class _Slot:
    """A host buffer, the block of device memory that goes with it, and the events around its copy."""

    buffer: memoryview
    address: int
    block: int
    began: int = 0
    ended: int = 0
    copying: bool = False


class Lane:
    """Used by one thread; `close` may come from another. `copy_seconds` by the device's clock, `wait_seconds` by ours:
    how long this thread waited for a buffer that was still being copied."""

    def __init__(self, device: CudaDevice, buffers: list[memoryview], blocks: list[int]) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._closed = False
        self._turn = 0
        self.copy_seconds = self.wait_seconds = 0.0
        self.copied_bytes = 0
        self._slots = [_Slot(buffer, address_of(buffer), block) for buffer, block in zip(buffers, blocks, strict=True)]
        with contextlib.ExitStack() as undo:
            self._stream = device.create_stream()
            undo.callback(device.destroy_stream, self._stream)
            for slot in self._slots:
                slot.began, slot.ended = self._event(undo), self._event(undo)
            self._taken = undo.pop_all()

    def _event(self, undo: contextlib.ExitStack) -> int:
        event = self._device.create_event()
        undo.callback(self._device.destroy_event, event)
        return event

    def next_buffer(self) -> memoryview:
        """The other buffer, once its last copy is done."""
        self._turn = (self._turn + 1) % len(self._slots)
        began = time.monotonic()
        with self._lock:
            self._require_open()
            self._settle(self._slots[self._turn])
        self.wait_seconds += time.monotonic() - began
        return self._slots[self._turn].buffer

    @property
    def buffer(self) -> memoryview:
        """The one that `next_buffer` gave last."""
        return self._slots[self._turn].buffer

    def start_copy(self, length_bytes: int, target: int | None) -> None:
        """Copy the buffer to a device address, or over this slot's last block, without waiting for it."""
        slot = self._slots[self._turn]
        with self._lock:
            self._require_open()
            self._device.record(slot.began, self._stream)
            place = slot.block if target is None else target
            self._device.copy_to_device_async(place, slot.address, length_bytes, self._stream)
            self._device.record(slot.ended, self._stream)
            slot.copying = True
        self.copied_bytes += length_bytes

    def finish(self) -> None:
        """Wait until everything that was started has arrived."""
        with self._lock:
            if not self._closed:
                for slot in self._slots:
                    self._settle(slot)

    def _settle(self, slot: _Slot) -> None:
        if slot.copying:
            self._device.wait_for(slot.ended)
            self.copy_seconds += self._device.seconds_between(slot.began, slot.ended)
            slot.copying = False

    def _require_open(self) -> None:
        if self._closed:
            raise LaneClosed("the reload ended while this block was being read")

    def close(self) -> None:
        """Wait for what is under way, then give stream and events back."""
        self.finish()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._taken.close()


def address_of(buffer: memoryview) -> int:
    """Where a writable buffer lies in this process's memory."""
    anchor = ctypes.c_char.from_buffer(buffer)
    return ctypes.addressof(anchor)
