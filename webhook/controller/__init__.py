"""What watches and reconciles while it leads: the store's ledger of Pods is held against the cluster's."""

from webhook.controller.controller import Controller
from webhook.controller.counter_resets import CounterResets
from webhook.controller.override_enforcer import OverrideEnforcer
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.service_status_writer import ServiceStatusReports, ServiceStatusTiming, ServiceStatusWriter

__all__ = [
    "Controller",
    "ControllerReports",
    "ControllerTiming",
    "CounterResets",
    "OverrideEnforcer",
    "ServiceStatusReports",
    "ServiceStatusTiming",
    "ServiceStatusWriter",
]
