"""A pool limits members without a quota of their own too."""

import pytest

from webhook.core.admission.validation import find_own_mode
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_fields import Mode, Placement


@pytest.mark.parametrize(("pool", "mode"), [("prod", Mode.ENFORCE), (None, Mode.AUDIT)])
def test_label_of_a_pool_member_is_guarded_in_the_mode_of_its_pool(pool: str | None, mode: Mode) -> None:
    member = Service(
        "web", Match(any_namespace=True), pool=pool, placement=Placement(), modes=Modes(placement=Mode.AUDIT)
    )
    assert find_own_mode(member) is mode
