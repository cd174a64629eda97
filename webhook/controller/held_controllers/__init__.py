"""Held controllers: found by their creation failures, and woken when their Pods have room."""

from webhook.controller.held_controllers.controller_waker import ControllerWaker
from webhook.controller.held_controllers.reports import WakeReports, WakeTiming

__all__ = ["ControllerWaker", "WakeReports", "WakeTiming"]
