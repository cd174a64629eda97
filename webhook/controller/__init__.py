"""What watches and reconciles while it leads: the store's ledger of Pods is held against the cluster's."""

from webhook.controller.controller import Controller
from webhook.controller.reports import ControllerPace, ControllerReports
from webhook.controller.resets import Resets

__all__ = ["Controller", "ControllerPace", "ControllerReports", "Resets"]
