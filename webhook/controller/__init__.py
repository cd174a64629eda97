"""Controller: reconciles the store with the Pods of the cluster, on the replica that holds the lease."""

from webhook.controller.controller import Controller
from webhook.controller.counter_resets import CounterResets
from webhook.controller.held_controllers import ControllerWaker, WakeReports, WakeTiming
from webhook.controller.override_enforcer import OverrideEnforcer
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.service_status_writer import ServiceStatusWriter
from webhook.controller.status_writer import StatusReports, StatusTiming, StatusWriter

__all__ = [
    "Controller",
    "ControllerReports",
    "ControllerTiming",
    "ControllerWaker",
    "CounterResets",
    "OverrideEnforcer",
    "ServiceStatusWriter",
    "StatusReports",
    "StatusTiming",
    "StatusWriter",
    "WakeReports",
    "WakeTiming",
]
