"""docs/limits.md states the bounds in force."""

from dataclasses import fields
from pathlib import Path

from webhook import interceptor
from webhook.authentication import jwt
from webhook.core import findings
from webhook.core.groups import membership
from webhook.core.kubernetes import pod_identity, pod_size
from webhook.core.placement import required
from webhook.core.policy_fields import quota, shares
from webhook.core.reporting import record_codec
from webhook.decisions import ring, writer
from webhook.outcomes import endpoint
from webhook.policy_in_force import active_policy
from webhook.server import connection_table, handshake_throttle, header_limits, http1, listener, request_body, server
from webhook.settings import Settings, name_flag
from webhook.tls import server_context

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()
BOUNDS = ("max_", "timeout", "keep_alive", "leeway")
OF_OTHER_PAGES = {"--record-max-bytes", "--jwks-max-stale"}


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_setting_that_bounds_a_caller_is_documented_with_its_default() -> None:
    documented = {flag.strip("`"): default for flag, default, *_ in rows("Settings")}
    declared = {name_flag(item.name): item.metadata["default"] for item in fields(Settings)}
    bounding = {name_flag(item.name) for item in fields(Settings) if any(word in item.name for word in BOUNDS)}
    assert set(documented) == bounding - OF_OTHER_PAGES
    assert documented == {flag: declared[flag] for flag in documented}


def test_every_bound_of_a_pod_is_documented() -> None:
    assert {bound: int(value.split()[0].rstrip(",")) for bound, value, *_ in rows("Pods")} == {
        "containers": pod_size.CONTAINERS_MAX,
        "entries": pod_size.ENTRIES_MAX,
        "terms of required node affinity": required.TERMS_MAX,
        "members of a [group](policy.md#groups)": quota.GROUP_SIZE_MAX,
        "name and index of a group": 253,
        "variants of [shares](shares.md)": shares.VARIANTS_MAX,
    }
    assert membership._NAME.fullmatch("n" * 253)
    assert not membership._NAME.fullmatch("n" * 254)
    assert f"above {pod_size.LARGE_BYTES >> 10} KiB with more than {pod_size.PARTS_MAX:,} commas" in PAGE
    assert f"above {interceptor._INLINE_BYTES_MAX >> 10} KiB" in PAGE
    in_thread = f"more than {pod_size.LARGE_CONTAINERS} containers or {pod_size.LARGE_ENTRIES:,} entries"
    assert in_thread in " ".join(PAGE.split())
    assert f"{active_policy.SERVICES_PER_TURN_MAX} services at a time" in PAGE


def test_every_bound_of_a_text_is_documented() -> None:
    assert [int(value) for _, value, *_ in rows("Texts")] == [
        pod_identity.NAME_MAX,
        pod_identity.UID_MAX,
        pod_identity.KIND_MAX,
        pod_identity._API_VERSION_MAX,
        findings._VALUE_CHARACTERS_MAX,
        findings._TEXT_CHARACTERS_MAX,
    ]
    page = " ".join(PAGE.split())
    assert f"a Pod above {record_codec.POD_BYTES_MAX >> 10} KiB" in page
    assert f"dropped above {writer.RECORD_BYTES_MAX >> 10} KiB" in page
    assert f"keeps {ring.RECORDS_BYTES_MAX >> 20} MiB of records" in page
    assert f"within {writer.WAITING_BYTES_MAX >> 20} MiB" in page


def test_every_fixed_bound_is_documented() -> None:
    documented = {bound: int(value.split()[0]) for bound, value, *_ in rows("Fixed limits")}
    assert documented == {
        "one line of a header": http1._HEADER_LINE_BYTES_MAX,
        "lines of a header": http1._HEADERS_MAX,
        "a header as a whole, and the trailer of a body": header_limits._HEADER_BYTES_MAX,
        "a token": jwt._TOKEN_BYTES_MAX,
        "a token's header": jwt._HEADER_BYTES_MAX,
        "bodies that still arrive, all together": request_body._HELD_BYTES_MAX,
        "reports that wait for processing, all together": endpoint._WAITING_BYTES_MAX,
        "responses left unread": connection_table.ConnectionLimits().unread_timeout_seconds,
        "bytes that a connection has sent and that are not read yet": listener._UNREAD_BYTES,
        "concurrent handshakes of new connections": handshake_throttle._BURST_MAX,
        "handshakes of new connections per second, beyond those": handshake_throttle._PER_SECOND_MAX,
        "untrusted connections that wait for their handshakes": handshake_throttle._UNTRUSTED_MAX,
        "failed handshakes that wait for their TLS alert to be sent": server_context.SPARES_MAX,
        "addresses with precedence": handshake_throttle._ADDRESSES_MAX,
        "connections of the health port": server._PLAIN_LIMITS.connections_max,
    }
