"""Helpers of the `policy_file` tests that other tests use, too."""

from collections.abc import Sequence

from webhook.core.policy.model import LoadedPolicy


class FakeClock:
    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.us


class Recorder:
    """Observes policies; any other call fails."""

    def __init__(self) -> None:
        self.loaded: list[LoadedPolicy] = []
        self.failed: list[tuple[str, ...]] = []

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        self.loaded.append(loaded)

    def on_policy_failed(self, errors: Sequence[str]) -> None:
        self.failed.append(tuple(errors))

    def on_reviewed(self, review: object) -> None:
        raise AssertionError(review)

    transitioned = on_reviewed

    def on_refused(self, reason: str, detail: str) -> None:
        raise AssertionError(reason, detail)


def document(pods: int) -> str:
    return (
        "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- name: payment-api\n"
        f"  match: {{namespaces: [payments]}}\n  quota: {{windows: [{{window: 1m, hard: {{pods: {pods}}}}}]}}\n"
    )
