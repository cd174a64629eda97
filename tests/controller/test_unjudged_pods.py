"""New Pods of services without Podgate's label are reported: each by its service, and one a minute by name."""

from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US, compile_policy, format_moment, pod
from webhook.adapters.clocks import VirtualClock
from webhook.controller.unjudged_pods import UnjudgedPods, UnjudgedReports
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods import ownership

UNLABELLED = {"app": "web"}
DISABLED = """
- name: web
  match: {namespaces: [shop]}
  modes: {placement: Disabled, resources: Disabled, quota: Disabled, breaker: Disabled}
"""


class Watched:
    """The observer of a watch, with what it reports. The first list was complete 20 seconds ago."""

    def __init__(self, policy: CompiledPolicy | None = None) -> None:
        self.clock = VirtualClock(START_US)
        self.pods: list[str] = []
        self.services: list[tuple[str, str]] = []
        reports = UnjudgedReports(self.pods.append, lambda service, name: self.services.append((service, name)))
        self.observer = UnjudgedPods(reports, self.clock.now_us)
        self.begin(policy or compile_policy())
        self.wait(20)

    def begin(self, policy: CompiledPolicy) -> None:
        self.policy = policy
        self.observer.on_list_begun(policy)
        self.observer.on_list_complete()

    def wait(self, seconds: int) -> None:
        self.clock.set(self.clock.now_us() + seconds * SECOND_US)

    def create(self, uid: str, labels: dict[str, str] | None, **spec: object) -> Pod:
        made = pod(uid, labels=labels, **spec)
        made = replace(made, metadata=replace(made.metadata, creation_timestamp=format_moment(self.clock.now_us())))
        self.show(made)
        return made

    def show(self, shown: Pod, *, is_listed: bool = False) -> None:
        found = ownership.find_ownership(shown, self.policy, {})
        (self.observer.on_listed if is_listed else self.observer.on_changed)(shown, found)


def test_new_pod_without_the_label_is_reported_once() -> None:
    watched = Watched()
    made = watched.create("a", UNLABELLED)
    watched.show(made)
    watched.show(made, is_listed=True)
    assert (watched.pods, watched.services) == (["web"], [("web", "shop/pod-a")])


def test_reviewed_pods_and_those_of_no_service_are_not_reported() -> None:
    watched = Watched()
    watched.create("labelled", None)
    watched.create("other", {"app": "other"})
    watched.create("elsewhere", UNLABELLED, namespace="elsewhere")
    assert watched.pods == []


def test_each_pod_is_counted_and_a_service_is_named_once_a_minute() -> None:
    watched = Watched()
    for uid in ("a", "b", "c"):
        watched.create(uid, UNLABELLED)
        watched.wait(25)
    watched.create("d", UNLABELLED)
    assert watched.pods == ["web"] * 4
    assert watched.services == [("web", "shop/pod-a"), ("web", "shop/pod-d")]


def test_pods_that_may_be_older_than_the_policy_are_not_reported() -> None:
    watched = Watched()
    made = watched.create("a", {"app": "shop"})
    assert watched.pods == []
    owner = compile_policy("- name: shop\n  match: {namespaces: [shop], podSelector: {matchLabels: {app: shop}}}\n")
    watched.begin(owner)
    watched.show(made, is_listed=True)
    watched.wait(9)
    watched.create("b", {"app": "shop"})
    assert watched.pods == []
    watched.begin(owner)  # a new list of the same policy
    watched.wait(2)
    watched.create("c", {"app": "shop"})
    assert watched.pods == ["shop"]


def test_pods_of_a_disabled_service_have_no_label() -> None:
    watched = Watched(compile_policy(DISABLED))
    watched.create("a", UNLABELLED)
    assert watched.pods == []


def test_pods_that_may_be_exempt_are_not_reported() -> None:
    watched = Watched(compile_policy(head="exemptions: {usernames: [root]}"))
    watched.create("a", UNLABELLED)
    assert watched.pods == []
