"""What watches and reconciles while it leads: the store's ledger of Pods is held against the cluster's."""

from webhook.controller.controller import Controller
from webhook.controller.counter_resets import Resets
from webhook.controller.override_enforcer import Hands
from webhook.controller.reports import ControllerPace, ControllerReports
from webhook.controller.service_status_writer import BoardPace, BoardReports, Boards

__all__ = [
    "BoardPace",
    "BoardReports",
    "Boards",
    "Controller",
    "ControllerPace",
    "ControllerReports",
    "Hands",
    "Resets",
]
