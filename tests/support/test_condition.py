"""Condition: reported once when entered, once when left."""

from webhook.support.condition import Condition


class Reports:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def entered(self, reason: str) -> None:
        self.lines.append(f"entered {reason}")

    def left(self, reason: str) -> None:
        self.lines.append(f"left {reason}")

    def changed(self, former: str, new: str) -> None:
        self.lines.append(f"changed {former} {new}")


def test_each_reason_is_reported_once_until_it_is_left() -> None:
    reports = Reports()
    failure = Condition(reports.entered, reports.left)
    failure.leave()
    for reason in ("cut", "cut", "refused"):
        failure.enter(reason)
    assert failure.reason == "refused"
    failure.leave()
    failure.leave()
    assert failure.reason is None
    failure.enter("cut")
    assert reports.lines == ["entered cut", "left cut", "entered refused", "left refused", "entered cut"]


def test_change_of_reason_can_be_reported_as_one() -> None:
    reports = Reports()
    failure = Condition(reports.entered, reports.left, on_changed=reports.changed)
    for reason in ("cut", "refused", "refused"):
        failure.enter(reason)
    failure.leave()
    assert reports.lines == ["entered cut", "changed cut refused", "left refused"]


def test_reasons_with_the_same_key_are_one_and_the_first_is_kept() -> None:
    reports = Reports()
    failure = Condition(reports.entered, reports.left, key=lambda reason: reason.partition(":")[0])
    for reason in ("timeout: 3 s", "timeout: 4 s", "refused: no"):
        failure.enter(reason)
    failure.leave()
    assert reports.lines == ["entered timeout: 3 s", "left timeout: 3 s", "entered refused: no", "left refused: no"]


def test_condition_has_changed_before_its_report() -> None:
    seen: list[str | None] = []
    failure: Condition[str] = Condition(lambda _: seen.append(failure.reason), lambda _: seen.append(failure.reason))
    failure.enter("cut")
    failure.enter("refused")
    failure.leave()
    assert seen == ["cut", "refused", "refused", None]
