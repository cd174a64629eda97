"""Recorder of reviews and outcomes as events for `podgate replay`, in its own thread: no review waits for a disk."""

from webhook.adapters.recorder.recorder import WAITING_MAX, Recorder, _select_services

__all__ = ["WAITING_MAX", "Recorder", "_select_services"]
