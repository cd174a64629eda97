"""Times and numbers in the documents are those of the code."""

from dataclasses import fields

import pytest

from certs import LEAF_LIFETIME
from tests.cli.documented_commands import ROOT
from webhook.adapters.kubernetes import LeaseTiming
from webhook.app import server
from webhook.controller import outcome_sender, pending_sightings, pod_index, start_tracker
from webhook.controller.held_controllers.reports import WakeTiming
from webhook.controller.release import failures, loop, removal
from webhook.controller.reports import ControllerTiming
from webhook.controller.status_writer import StatusTiming
from webhook.policy_in_force.webhook_configurations import WebhookConfigurationTiming
from webhook.settings import ControllerSettings

LEASE, WAKE, HOOKS = LeaseTiming(), WakeTiming(), WebhookConfigurationTiming()
CONTROLLER, MANIFESTS = "docs/controller.md", "manifests/README.md"
RATE = next(field.metadata["default"] for field in fields(ControllerSettings) if field.name == "release_rate")
FIRST, LAST = LEASE.duration_seconds - LEASE.renew_seconds, LEASE.duration_seconds + 2 * LEASE.retry_seconds
"""A Lease was renewed up to `renew_seconds` before the kill; its renewal and its end are seen one look late."""


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (CONTROLLER, f"another leads after {FIRST:.0f} to {LAST:.0f} s: the Lease lasts {LEASE.duration_seconds} s"),
        (CONTROLLER, f"is renewed every {LEASE.renew_seconds:.0f} s, and looked at every second"),
        (CONTROLLER, f"of more than {pending_sightings.SIGHTINGS_MAX:,} the oldest count as unproven"),
        (CONTROLLER, f"has not shown after {ControllerTiming().overdue_seconds:.0f} s is looked up"),
        (CONTROLLER, f"they are older than an hour{'' if pod_index.DELETED_POD_KEPT_US == 3_600_000_000 else '?'}"),
        (CONTROLLER, f"nothing is released for {loop._LOSS_US // 1_000_000} s"),
        (CONTROLLER, f"tried again after {failures.PAUSE_US // 1_000_000} s"),
        (CONTROLLER, f"after {removal._RESERVED_US // 1_000_000} s the charge is refunded"),
        (CONTROLLER, f"At most `--release-rate` ({RATE}) gates"),
        (CONTROLLER, f"{outcome_sender.OUTCOMES_MAX:,} outcomes wait"),
        (CONTROLLER, f"At most {start_tracker.STARTS_MAX:,} Pods"),
        (CONTROLLER, f"at most {WAKE.wakes_per_second} a second"),
        (CONTROLLER, f"up to every {WAKE.pause_seconds_max:.0f} s. {WAKE.held_max:,} are remembered"),
        (CONTROLLER, f"corrected within {'five' if StatusTiming().read_seconds == 300 else '?'} minutes"),
        (CONTROLLER, f"when the policy changes, and every {HOOKS.check_seconds:.0f} s"),
        (CONTROLLER, f"after a change by somebody else within {HOOKS.check_seconds:.0f} s"),
        (CONTROLLER, f"within {'a second' if HOOKS.poll_seconds < 1 else '?'} of its being in force"),
        (CONTROLLER, f"undoes {'five' if HOOKS.writes_max == 5 else '?'} writes within an hour"),
        (MANIFESTS, f"exits with code 2 after {server._LEASE_PATIENCE_SECONDS:.0f} s"),
        (MANIFESTS, f"The Lease of a killed server expires after {LEASE.duration_seconds} s"),
        (MANIFESTS, f"certificates expire after {LEAF_LIFETIME.days} days"),
    ],
)
def test_page_has_the_figure_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / page).read_text().split())
