"""What watches and reconciles while it leads: the store's ledger of Pods is held against the cluster's."""

from webhook.controller.boards import BoardPace, BoardReports, Boards
from webhook.controller.controller import Controller
from webhook.controller.hands import Hands
from webhook.controller.reports import ControllerPace, ControllerReports
from webhook.controller.resets import Resets

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
