"""Sequences over virtual time: each described here, and complete in its golden file.

The windows are 64 s long, so that a bucket is one second: a charge at 0 has left its window at 65.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Json, podgate
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

REPLAYS = Path(__file__).parent / "replays"
NAMES = sorted(folder.name for folder in REPLAYS.iterdir())


def play(name: str) -> list[Json]:
    folder = REPLAYS / name
    done = podgate("replay", folder / "events.jsonl", "--policy", folder / "policy.yaml")
    assert done.code == 0, done.err
    return done.lines


def list_values(lines: list[Json], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(line.get(key) for key in keys) for line in lines]


def list_codes(lines: list[Json]) -> list[int]:
    return [line["status"]["code"] for line in lines if "decision" in line]


def read_usage(line: Json) -> dict[str, Any]:
    return {use["resource"]: use["used"] for use in line["used"]}


@pytest.mark.parametrize("name", NAMES)
def test_every_line_equals_its_golden_file(name: str, *, refresh_goldens: bool) -> None:
    folder = REPLAYS / name
    done = podgate("replay", folder / "events.jsonl", "--policy", folder / "policy.yaml")
    assert done.code == 0, done.err
    expected = folder / "expected.jsonl"
    if refresh_goldens:
        expected.write_text(done.out)
    assert done.lines == [json.loads(line) for line in expected.read_text().splitlines()]
    asked = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["at"] for line in done.lines] == [event["at"] for event in asked], "one line out for each line in"


@pytest.mark.parametrize("name", NAMES)
def test_replay_in_redis_gives_the_same_lines_and_leaves_no_keys(name: str, redis_server: RedisServer) -> None:
    folder = REPLAYS / name
    policy = ("--policy", folder / "policy.yaml")
    done = podgate("replay", folder / "events.jsonl", *policy, "--store", redis_server.url)
    assert done.code == 0, done.err
    assert done.lines == [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    assert redis_server.cli("DBSIZE") == 0


def test_unreachable_redis_is_named(tmp_path: Path) -> None:
    folder = REPLAYS / NAMES[0]
    policy = ("--policy", folder / "policy.yaml")
    for url, words in (
        (f"unix://{tmp_path}/nobody.sock", "--store: "),
        ("http://localhost", "--store: 'http://localhost': write memory, or the URL of a Redis"),
    ):
        done = podgate("replay", folder / "events.jsonl", *policy, "--store", url)
        assert (done.code, done.out) == (2, "")
        assert done.error.startswith(words)


def test_pool_limit_applies_beside_the_limits_of_its_members() -> None:
    lines = play("pools")
    denied = {line["uid"]: line["status"]["message"] for line in lines if line.get("allowed") is False}
    assert set(denied) == {"w3", "t1", "t3", "t5"}
    assert denied["w3"].startswith("QuotaExceeded: service web: pods in 64s: hard 2, used 2, asked 1; could pass from")
    assert "pool prod: cpu in 64s: hard 2, used 500m, asked 2; could pass from" in denied["t1"]
    for uid in ("t3", "t5"):
        assert "pool prod: pods in 64s: hard 3, used 3, asked 1; could pass from" in denied[uid]
    [status] = [line for line in lines if line["at"] == 6]
    assert [(use["of"], use["name"], use["resource"], use["used"]) for use in status["used"]] == [
        ("service", "web", "pods", 2),
        ("pool", "prod", "pods", 3),
        ("pool", "prod", "cpu", "1500m"),
    ]
    assert list_codes(lines)[-2:] == [429, 200], "refunded at 7 and filled at 8; at 65 the charge of 0 has left"


def test_rules_apply_without_the_store_and_admissions_are_booked_afterwards() -> None:
    lines = play("store_away")
    codes_by_uid: dict[str, list[int]] = {}
    for line in lines:
        if "status" in line:
            codes_by_uid.setdefault(line["uid"], []).append(line["status"]["code"])
    assert {uid: codes_by_uid[uid] for uid in ("local-1", "local-2", "local-3", "local-4")} == {
        "local-1": [200, 200, 200],  # twice while the store is unavailable, and once after the booking
        "local-2": [200],
        "local-3": [429],  # beyond the remainder of the service and of its pool
        "local-4": [200],  # in the place of a refunded Pod
    }
    assert codes_by_uid["allow-1"] == codes_by_uid["allow-2"] == [200]
    assert codes_by_uid["deny-1"] == [503]
    assert [line["used"] for line in lines if line["at"] == 7] == [[]], "without the store there is no use to show"
    back = [line for line in lines if line["at"] == 10 and "used" in line]
    assert [(use["of"], use["used"], use["hard"]) for line in back for use in line["used"]] == [
        ("service", 2, 3),  # both admitted Pods, without the refunded one
        ("pool", 2, 4),
        ("service", 3, 1),
    ]
    refunds = [(line["uid"], line["refunded"]) for line in lines if "refunded" in line]
    assert refunds == [("local-2", True), ("before-1", False), ("allow-1", True)]
    assert codes_by_uid["after-4"] == [429], "local-1 of 2 counts until 67, though it was booked at 10"


def test_replay_does_not_use_fleet_counters_of_its_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    folder, policy = REPLAYS / "pools", tmp_path / "policy.yaml"
    text = (folder / "policy.yaml").read_text().replace("name: prod,", "name: prod, scope: Fleet,")
    policy.write_text(text.replace("quota: {", "quota: {scope: Fleet, "))
    fleets = "podgate:{prod}:v1:fleet:pool:prod"
    redis_server.cli("HSET", fleets, "untouched", "1")
    done = podgate("replay", folder / "events.jsonl", "--policy", policy, "--store", redis_server.url)
    assert done.code == 0, done.err
    assert done.lines == [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    assert redis_server.cli("KEYS", "*") == [fleets.encode()]
    assert redis_server.cli("HLEN", fleets) == 1


def test_replay_folders_have_exactly_their_files() -> None:
    for name in NAMES:
        files = {file.name for file in (REPLAYS / name).iterdir()}
        named = {
            event.get("policy") for event in map(json.loads, (REPLAYS / name / "events.jsonl").read_text().splitlines())
        }
        assert files == {"policy.yaml", "events.jsonl", "expected.jsonl"} | (named - {None}), name


def test_each_line_has_exactly_the_documented_keys() -> None:
    kinds = ("pod", "outcome", "refund", "status", "node")
    keys: dict[str, set[frozenset[str]]] = {kind: set() for kind in kinds}
    marks = {"decision": "pod", "waiting": "status", "refunded": "refund", "variant": "node", "service": "outcome"}
    of_shares: dict[str, set[str]] = {"pod": {"slot", "variant"}, "status": {"variants", "evicted"}}
    for name in NAMES:
        for line in play(name):
            found = [kind for key, kind in marks.items() if key in line]
            kind = found[0] if found else ""
            if kind:
                more = of_shares.get(kind, set())
                assert more & set(line) in (set(), more), "all of them, or none"
                keys[kind].add(frozenset(line) - more)
            for use in line.get("used", ()):
                assert set(use) - {"team"} == {"window", "resource", "used", "hard", "of", "name", "namespace"}
                assert "team" not in use or name == "teams"
                assert use["of"] in {"service", "standing", "pool"}
    assert keys == {
        "pod": {frozenset(["at", "uid", "service", "decision", "allowed", "status", "used", "breaker", "generation"])},
        "outcome": {frozenset(["at", "service", "breaker", "openRemaining", "generation"])},
        "refund": {frozenset(["at", "uid", "refunded"])},
        "status": {
            frozenset(
                ["at", "service", "breaker", "openRemaining", "used", "generation", "waiting", "released", "expired"]
            )
        },
        "node": {frozenset(["at", "uid", "service", "variant", "breaker", "openRemaining", "generation"])},
    }


def test_window_slides_at_the_stated_microsecond() -> None:
    lines = play("window_slides")
    assert list_codes(lines) == [200, 200, 200, 429, 429, 200, 200, 429, 429, 200]
    by_uid = {line["uid"]: line for line in lines if "uid" in line}
    assert "hard 3, used 3, asked 1; could pass from 1970-01-01T00:01:05.000Z" in by_uid["d"]["status"]["message"]
    assert (by_uid["e"]["at"], by_uid["e"]["allowed"]) == (64.999999, False)
    assert (by_uid["f"]["at"], by_uid["f"]["allowed"], read_usage(by_uid["f"])) == (65, True, {"pods": 2})
    assert "could pass from 1970-01-01T00:01:15.000Z" in by_uid["h"]["status"]["message"]
    assert (by_uid["i"]["at"], by_uid["i"]["allowed"]) == (74.999999, False)
    assert (by_uid["j"]["at"], by_uid["j"]["allowed"]) == (75, True)
    assert [read_usage(line) for line in lines[-2:]] == [{"pods": 1}, {"pods": 0}]


def test_pod_is_charged_to_all_resources_and_windows_or_none() -> None:
    lines = {line.get("uid", line["at"]): line for line in play("all_or_nothing")}
    first = {"pods": 1, "cpu": "600m", "memory": "256Mi"}
    assert read_usage(lines["a"]) == first
    assert (lines["b"]["allowed"], read_usage(lines["b"])) == (False, first), (
        "cpu was refused, so memory was not charged"
    )
    assert (lines["c"]["allowed"], read_usage(lines["c"])) == (False, first), (
        "memory was refused, so cpu was not charged"
    )
    assert read_usage(lines["d"]) == {"pods": 2, "cpu": "1", "memory": "512Mi"}
    assert read_usage(lines["e"]) == {"pods": 3, "cpu": "1", "memory": "512Mi"}, "a missing request counts 0"
    assert "can never pass" in lines["f"]["status"]["message"]
    message = lines["g"]["status"]["message"]
    assert "cpu in 64s" in message
    assert "memory in 640s" in message
    assert "could pass from 1970-01-01T00:10:50.000Z" in message, "the later of the two moments: 65 buckets of 10 s"
    assert read_usage(lines[65]) == {"pods": 2, "cpu": "400m", "memory": "512Mi"}
    assert read_usage(lines[650]) == {"pods": 0, "cpu": "0", "memory": "0"}


def test_repeated_uid_is_answered_as_before_and_charged_once() -> None:
    lines = play("repeated_uid")
    assert list_values(lines, "uid", "allowed") == [
        ("a", True),
        ("a", True),
        ("b", False),
        ("a", True),
        ("b", True),  # a denied Pod is judged again
        ("a", True),
        ("b", True),
    ]
    assert [read_usage(line)["pods"] for line in lines] == [1] * 7


def test_dry_run_charges_nothing_trips_nothing_and_takes_no_lease() -> None:
    lines = play("dry_run")
    assert list_codes(lines) == [200, 200, 200, 429, 429, 429, 429, 429, 503, 200, 200, 200]
    assert [read_usage(line)["pods"] for line in lines[:3]] == [0, 0, 1]
    assert [line["breaker"] for line in lines[3:8]] == ["CLOSED"] * 4 + ["OPEN"], (
        "two real denials trip, dry runs do not"
    )
    assert [line["breaker"] for line in lines[9:]] == ["HALF_OPEN", "HALF_OPEN", "CLOSED"]


def test_refund_is_done_once_while_its_bucket_counts() -> None:
    lines = play("refund")
    assert list_codes(lines) == [200, 200, 429, 200, 429, 200]
    assert [(line["uid"], line["refunded"]) for line in lines if "refunded" in line] == [
        ("a", True),
        ("a", False),
        ("b", False),  # deleted
        ("nobody", False),
        ("d", False),  # was never charged
        ("b", False),  # its bucket has left the window
    ]


def test_distinct_controllers_denied_by_quota_trip_the_breaker() -> None:
    lines = play("tripped_by_controllers")
    states = list_values(lines, "at", "breaker")
    assert states[:6] == [(at, "CLOSED") for at in (0, 1, 1.5, 2, 2.5, 61.5)]
    assert states[6] == (61.6, "OPEN"), "rs1 counts again once its first event is older than a minute"
    assert (lines[6]["status"]["code"], lines[7]["status"]["code"]) == (429, 503)
    assert "3 controllers refused within 60s" in lines[7]["status"]["message"]
    assert list_values(lines[8:10], "breaker", "openRemaining") == [("OPEN", 0.1), ("HALF_OPEN", 0)]
    assert (lines[10]["status"]["code"], lines[10]["breaker"]) == (429, "HALF_OPEN"), (
        "a probe denied by quota is neutral"
    )
    assert list_values(lines[11:], "breaker", "generation") == [("HALF_OPEN", 2), ("CLOSED", 3)]


def test_requests_of_any_caller_denied_by_quota_trip_the_breaker() -> None:
    lines = play("tripped_by_requests")
    assert list_codes(lines) == [200, 429, 429, 429, 503]
    assert list_values(lines, "breaker", "openRemaining")[-3:] == [("OPEN", None), ("OPEN", 0.5), ("HALF_OPEN", 0)]


def test_three_bad_intervals_in_a_row_trip_at_the_end_of_the_last() -> None:
    lines = play("tripped_by_errors")
    seen = [(line["at"], line["breaker"], line["openRemaining"]) for line in lines if "waiting" in line][:6]
    assert seen == [
        (5, "CLOSED", 0),  # an empty second broke the run
        (5.999999, "CLOSED", 0),
        (6, "OPEN", 10),
        (7.5, "OPEN", 8.5),
        (15.999999, "OPEN", 0.000001),
        (16, "HALF_OPEN", 0),
    ]


def test_interval_with_too_few_outcomes_ends_the_run() -> None:
    lines = play("too_few_errors")
    assert [(line["at"], line["breaker"]) for line in lines if "waiting" in line] == [
        (4, "CLOSED"),
        (5, "CLOSED"),
        (6, "OPEN"),
    ]


def test_probe_leases_expire_and_outcomes_close_or_reopen() -> None:
    lines = play("tripped_by_errors")
    pods = {(line["uid"], line["at"]): line for line in lines if "decision" in line}
    assert pods["p0", 9]["status"]["code"] == 503
    assert "is open until 1970-01-01T00:00:16.000Z" in pods["p0", 9]["status"]["message"]
    assert [pods[uid]["allowed"] for uid in (("p1", 16.5), ("p2", 16.6), ("p3", 16.7))] == [True, True, False]
    assert pods["p4", 18.5]["allowed"] is False, "one probe succeeded, one is leased, two are required"
    assert pods["p4", 21.599999]["allowed"] is False
    assert pods["p5", 21.6]["allowed"] is True, "the lease of p2 expired after 5 s and is taken over"
    outcomes = [(line["at"], line["breaker"], line["generation"]) for line in lines if "decision" not in line]
    assert [entry for entry in outcomes if 17 <= entry[0] <= 34] == [
        (17, "HALF_OPEN", 2),  # of a uid that has no lease
        (17, "HALF_OPEN", 2),  # of a generation that has passed, and no success: it would have reopened
        (18, "HALF_OPEN", 2),  # the first success
        (21.7, "HALF_OPEN", 2),  # of an expired lease: it would have closed
        (22, "OPEN", 3),  # a failed probe
        (31.999999, "OPEN", 3),
        (32, "HALF_OPEN", 4),
        (34, "HALF_OPEN", 4),
        (34, "CLOSED", 5),
    ]
    assert outcomes[-1] == (38, "CLOSED", 5), "errors of generation 4 do not count in generation 5"


def test_mean_latency_above_the_threshold_trips_and_an_equal_one_does_not() -> None:
    lines = play("tripped_by_latency")
    assert [(line["at"], line["breaker"], line["openRemaining"]) for line in lines if "waiting" in line] == [
        (2.999999, "CLOSED", 0),
        (3, "OPEN", 10),
        (12.25, "OPEN", 0.75),
        (13, "HALF_OPEN", 0),
    ]


def test_counters_and_breaker_survive_a_policy_change() -> None:
    lines = play("policy_changes")
    statuses = [line for line in lines if "waiting" in line]
    assert [(read_usage(line)["pods"], line["used"][0]["hard"], line["breaker"]) for line in statuses] == [
        (2, 1, "CLOSED"),
        (2, 5, "OPEN"),
        (3, 5, "CLOSED"),
    ]
    assert list_codes(lines) == [200, 200, 429, 200, 200]
    assert [line["refunded"] for line in lines if "refunded" in line] == [True], "charged under the policy before last"


def test_changed_namespace_labels_change_the_owner_at_once() -> None:
    lines = play("namespace_selector")
    assert list_values([line for line in lines if "uid" in line], "uid", "service", "decision") == [
        ("a", "web", "Admit"),
        ("b", None, "Unmatched"),
        ("x", None, "Unmatched"),
        ("k", None, "Exempt"),
        ("c", "web", "Admit"),
        ("d", "web", "Admit"),
    ]


def test_warn_and_audit_charge_past_the_limit_and_trip_nothing() -> None:
    lines = {line["uid"]: line for line in play("warn_and_audit")}
    for mode in ("warn", "audit"):
        assert [read_usage(lines[f"{mode}{number}"])["pods"] for number in (1, 2, 3)] == [1, 2, 3]
        assert {lines[f"{mode}{number}"]["breaker"] for number in (1, 2, 3)} == {"CLOSED"}
    assert [lines[f"enforce{number}"]["status"]["code"] for number in (1, 2, 3)] == [200, 429, 503]


def test_each_namespace_has_its_own_counters() -> None:
    lines = play("per_namespace")
    assert list_codes(lines) == [200, 429, 200, 429, 200, 200]
    assert {use["namespace"]: use["used"] for use in lines[4]["used"]} == {"team-a": 1, "team-b": 1}
    assert [use["namespace"] for use in lines[0]["used"]] == ["team-a"]


def test_resize_charges_above_the_maximum_so_far() -> None:
    lines = play("resize")
    assert [read_usage(line)["cpu"] for line in lines] == [
        "400m",
        "700m",
        "700m",  # down: no refund
        "700m",  # up to the former value: no charge
        "700m",  # a dry run
        "900m",
        "900m",  # refused
        "1",  # no record: new - old
        "1",
        "600m",  # the first charge has left, the rises have not
    ]
    assert list_codes(lines) == [200, 200, 200, 200, 200, 200, 429, 200]
    assert {read_usage(line)["pods"] for line in lines[:-1]} == {1}


def test_standard_input_gives_the_same_result() -> None:
    folder = REPLAYS / "window_slides"
    raw_events = (folder / "events.jsonl").read_bytes()
    done = podgate(
        "replay",
        "-",
        "--policy",
        folder / "policy.yaml",
        stdin=b"\xef\xbb\xbf" + raw_events.replace(b"\n", b"\r\n") + b"\n",
    )
    assert done.lines == play("window_slides")
    assert done.err == "12 events: Admit 6, Deny 4, status 2\n"


def test_pod_without_a_uid_gets_a_new_one_each_time() -> None:
    events = (REPLAYS / "window_slides/events.jsonl").read_text().splitlines()[:1] * 3
    lines = "".join(json.dumps({**json.loads(line), "uid": None}) + "\n" for line in events)
    done = podgate("replay", "-", "--policy", REPLAYS / "window_slides/policy.yaml", stdin=lines)
    assert len({line["uid"] for line in done.lines}) == 3
    assert [read_usage(line)["pods"] for line in done.lines] == [1, 2, 3]


def test_pod_is_judged_by_the_policy_of_its_hash_for_a_minute(tmp_path: Path) -> None:
    head = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
    first = head + "- {name: old, match: {namespaces: [shop]}, placement: {schedulerName: first}}\n"
    second = head + "- {name: new, match: {namespaces: [shop]}, placement: {schedulerName: second}}\n"
    (tmp_path / "first.yaml").write_text(first)
    (tmp_path / "second.yaml").write_text(second)
    carried = {"podgate.io/policy-hash": sha256(first.encode()).hexdigest()[:16]}
    managers = [{"manager": "kubectl-create", "fieldsV1": {"f:metadata": {}}}]  # without the hash, which Podgate wrote
    metadata = {"generateName": "web-", "annotations": carried, "managedFields": managers}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    events = [
        {"at": 0, "policy": "second.yaml"},
        {"at": 60, "pod": pod, "namespace": "shop"},
        {"at": 60.000001, "pod": pod, "namespace": "shop"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = podgate("replay", path, "--policy", tmp_path / "first.yaml")
    assert done.code == 0, done.err
    assert [line["service"] for line in done.lines[1:]] == ["old", "new"]
    assert [line["decision"] for line in done.lines[1:]] == ["Admit", "Admit"]


def test_namespace_is_shown_before_its_first_charge(tmp_path: Path) -> None:
    policy = (REPLAYS / "per_namespace" / "policy.yaml").read_text()
    (tmp_path / "policy.yaml").write_text(policy)
    first = (REPLAYS / "per_namespace" / "events.jsonl").read_text().splitlines()[0]
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({**json.loads(first), "dryRun": True}) + "\n")
    (line,) = podgate("replay", path, "--policy", tmp_path / "policy.yaml").lines
    assert [(use["used"], use["namespace"]) for use in line["used"]] == [(0, "team-a")]


def test_resize_uses_the_uid_of_its_pod_and_new_uids_avoid_used_ones(tmp_path: Path) -> None:
    folder = REPLAYS / "resize"
    pod = {"metadata": {"name": "web", "uid": "mine"}, "spec": {"containers": [{"name": "c"}]}}
    update = {"at": 0, "pod": pod, "namespace": "shop", "operation": "UPDATE", "subResource": "resize"}
    new = {"at": 0, "pod": pod, "namespace": "shop"}
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in (update, {**new, "uid": "fresh-1"}, new)))
    done = podgate("replay", path, "--policy", folder / "policy.yaml")
    assert [line["uid"] for line in done.lines] == ["mine", "fresh-1", "fresh-2"], done.err


def read_standing(line: Json) -> dict[str, Any]:
    return {use["resource"]: use["used"] for use in line["used"] if use["of"] == "standing"}


def test_limit_on_live_pods_opens_surge_and_frees_places_of_ended_pods() -> None:
    lines = play("standing")
    asked = {(line["at"], line["uid"]): line["status"]["code"] for line in lines if "decision" in line}
    assert [asked[1, uid] for uid in ("new1", "new2")] == [200, 429]
    assert [asked[2, uid] for uid in ("new2", "new3")] == [200, 429], "one old Pod has ended"
    assert [asked[1200.5, "late"], asked[1201, "late"]] == [429, 200], "surge is closed until there are 3 again"
    statuses = {line["at"]: read_standing(line) for line in lines if "waiting" in line}
    assert statuses[2.5] == {"pods": 4, "cpu": "400m"}
    assert statuses[1201] == {"pods": 3, "cpu": "300m"}, "a refunded Pod frees its place"
    assert statuses[1204] == {"pods": 3, "cpu": "250m"}, "Pods created and deleted during the outage are known"
    assert [asked[1206, uid] for uid in ("a1", "b1", "a2")] == [200, 200, 403]
    assert [asked[at, uid] for at, uid in ((88000, "a3"), (88001, "a4"))] == [403, 200], "it is still live a day later"
    assert [line["refunded"] for line in lines if line.get("uid") in {"late", "old1"} and "refunded" in line] == [
        False,
        True,
    ]


def test_resize_changes_the_live_amounts() -> None:
    resized = [line for line in play("standing") if line["at"] == 1202]
    assert [(line["status"]["code"], read_standing(line)["cpu"]) for line in resized] == [
        (200, "500m"),
        (429, "500m"),
        (200, "250m"),
    ]


def test_pods_of_an_unlimited_period_count_when_a_limit_is_set(tmp_path: Path) -> None:
    head = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- name: web\n  match: {namespaces: [shop]}\n"
    (tmp_path / "limited.yaml").write_text(head + "  quota: {standing: {hard: {pods: 2}, surge: 0}}\n")
    (tmp_path / "free.yaml").write_text(head)
    pod = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}
    events: list[Json] = [
        {"at": 0, "pod": pod, "namespace": "shop", "uid": "before"},
        {"at": 1, "policy": "free.yaml"},
        *({"at": 1, "pod": pod, "namespace": "shop", "uid": uid} for uid in ("a", "b", "stays")),
        {"at": 1, "pod": pod, "namespace": "shop", "dryRun": True},
        *({"at": 2, "deleted": uid} for uid in ("before", "a")),
        {"at": 3, "policy": "limited.yaml"},
        *({"at": 3, "pod": pod, "namespace": "shop", "uid": uid} for uid in ("c", "d")),
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = podgate("replay", path, "--policy", tmp_path / "limited.yaml")
    assert done.code == 0, done.err
    assert [line["status"]["code"] for line in done.lines[-2:]] == [429, 429]
    assert read_standing(done.lines[-1]) == {"pods": 2}, "b and stays, but neither the dry run nor those that ended"


def test_live_pods_of_a_pool_are_limited_and_guaranteed(tmp_path: Path) -> None:
    head = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
    pools = "pools: [{name: prod, standing: {hard: {pods: 3}}}]\n"
    web = "services:\n- {name: web, match: {namespaces: [web]}, pool: prod}\n"
    web += "- {name: pay, match: {namespaces: [pay]}, pool: prod"
    (tmp_path / "policy.yaml").write_text(f"{head}{pools}{web}, guaranteed: {{standing: {{hard: {{pods: 2}}}}}}}}\n")
    (tmp_path / "shared.yaml").write_text(f"{head}{pools}{web}}}\n")
    pod = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}

    def create(at: int, namespace: str, uid: str) -> Json:
        return {"at": at, "pod": pod, "namespace": namespace, "uid": uid}

    events: list[Json] = [
        *(create(1, "web", uid) for uid in ("w1", "w2")),
        *(create(1, "pay", uid) for uid in ("p1", "p2", "p3")),
        {"at": 2, "deleted": "p1"},
        create(2, "web", "w3"),
        {"at": 3, "policy": "shared.yaml"},
        create(3, "web", "w4"),
        {"at": 4, "policy": "policy.yaml"},
        {"at": 5, "deleted": "w4"},
        create(5, "web", "w5"),
        create(5, "pay", "p4"),
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = podgate("replay", path, "--policy", tmp_path / "policy.yaml")
    assert done.code == 0, done.err
    asked = {line["uid"]: line["status"]["code"] for line in done.lines if "decision" in line}
    assert asked == {
        "w1": 200,
        "w2": 429,
        "p1": 200,
        "p2": 200,
        "p3": 429,
        "w3": 429,
        "w4": 200,
        "w5": 429,
        "p4": 200,
    }
    [use] = done.lines[-1]["used"]
    assert (use["of"], use["name"], use["window"], use["used"]) == ("pool", "prod", "standing", 3)


def test_pods_of_an_outage_wait_and_are_released_as_the_limits_allow() -> None:
    """None is denied that may be gated, and none is admitted without the store, whether its service queues or not."""
    lines = play("gated_on_overload")
    assert [line["uid"] for line in lines if line.get("decision") == "Queue"] == ["q0", "q1", "q2", "d0"]
    assert [line["uid"] for line in lines if line.get("decision") == "Deny"] == ["denied", "on-a-node"]
    released = [(line["at"], line["released"]) for line in lines if line.get("released")]
    assert released == [(12, ["q0"]), (66, ["q1"]), (68, ["d0"]), (200, ["q2"])]


def test_limits_change_with_the_schedule_and_waiting_pods_are_released_at_its_moment() -> None:
    lines = play("schedules")
    hour = 3600
    status = next(line for line in lines if line["at"] == hour and "released" in line)
    assert (status["released"], status["used"][0]["hard"]) == (["b2"], 2)
    of_web = [line for line in lines if line.get("service") == "web" and "decision" in line]
    assert {line["used"][0]["hard"] for line in of_web if hour <= line["at"] < 8 * hour} == {3}
    assert {line["used"][0]["hard"] for line in of_web if not hour <= line["at"] < 8 * hour} == {1}, (
        "an hour is skipped"
    )


def test_namespaces_of_a_team_share_a_limit_and_charges_stay_with_it() -> None:
    lines = play("teams")
    assert [(line["uid"], line["decision"]) for line in lines if "decision" in line and line["at"] < 12] == [
        *(("s1", "Admit"), ("b1", "Admit"), ("s2", "Deny"), ("l1", "Admit")),
        *(("n1", "Admit"), ("n2", "Admit"), ("n3", "Deny"), ("b2", "Admit"), ("b3", "Deny")),
    ]
    used = [
        {use["team"]: use["used"] for use in line["used"] if use["window"] == "64s"}
        for line in lines
        if line.get("service") == "web" and "released" in line
    ]
    assert used == [
        {"(none)": 2, "blue": 1, "red": 2},
        {"(none)": 2, "blue": 2, "red": 2},
        {"(none)": 2, "blue": 2, "red": 1},
    ], "the refund is of the former team"
    assert [line["released"] for line in lines if line.get("service") == "batch" and "released" in line] == [[], ["m1"]]


def test_a_pod_takes_the_lowest_free_slot_of_its_workload_and_the_slots_variant() -> None:
    lines = play("shares")
    slots = {line["uid"]: (line["slot"], line["variant"]) for line in lines if "slot" in line}
    assert [slots[f"u{number}"] for number in range(1, 7)] == [
        (1, "on-demand"),
        (2, "on-demand"),
        (3, "spot"),
        (4, "spot"),
        (5, "on-demand"),
        (6, "spot"),
    ]
    assert slots["u7"] == (4, "spot"), "the slot of a deleted Pod"
    assert slots["dry"] == (7, "spot"), "a dry run takes none"


def test_a_variant_without_nodes_is_avoided_and_probed_until_it_is_back() -> None:
    lines = play("shares")
    slots = {line["uid"]: (line["slot"], line["variant"]) for line in lines if "slot" in line}
    statuses = [line for line in lines if "evicted" in line]
    assert [line["evicted"] for line in statuses] == [[], ["u7"], [], []]
    assert [line["variants"][0]["breaker"] for line in statuses] == ["CLOSED", "OPEN", "HALF_OPEN", "CLOSED"]
    assert slots["u8"] == (4, "on-demand"), "the slot stays, its variant is avoided"
    assert (slots["u10"], slots["u12"]) == ((8, "spot"), (10, "on-demand")), "one probe"
    assert slots["u13"] == (11, "spot")
