"""Schedules on a real API server: limits change at their minute on all servers, with one Redis for all of them."""

import time

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

SPACE = "schedules"
SOON_SECONDS = 15
"""Longer than an installation takes to admit Pods."""


def policy_of(begin: float) -> str:
    """Return a policy whose schedule begins at a minute, for an hour."""
    times = [time.strftime("%H:%M", time.gmtime(at)) for at in (begin, begin + 3600)]
    return f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {{namespaces: [{SPACE}]}}
  failureMode: Closed
  quota:
    windows: [{{window: 24h, hard: {{pods: 1}}}}]
    schedules: [{{name: office, from: "{times[0]}", to: "{times[1]}", timeZone: UTC, factor: 3}}]
"""


def create(installation: Installation) -> str:
    """Create a Pod; return the message of its denial, "" if it was admitted."""
    status, answer = installation.create_pod(SPACE)
    return "" if status == 201 else str(answer["message"])


def test_limits_change_at_the_minute_on_every_server(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    begin = (int(time.time()) + SOON_SECONDS) // 60 * 60 + 60
    flags = ("--drain", "0s", "--store", a_redis.url)
    with install_podgate(
        plane, identities.files, policy_of(begin), [SPACE], servers=2, arguments=flags
    ) as installation:
        installation.wait_for_calls()
        assert not create(installation)
        assert time.time() < begin, "the schedule began before the test"
        denied = create(installation)
        shown = time.strftime("%Y-%m-%dT%H:%M:00.000Z", time.gmtime(begin))
        assert denied.endswith(f"cannot pass before {shown}, when the limits change: office, x3"), denied
        assert {server.status()["services"][0]["windows"][0]["hard"] for server in installation.servers} == {1}
        time.sleep(max(0.0, begin - time.time()))
        assert not create(installation)
        assert not create(installation)
        end = time.strftime("%H:%M UTC", time.gmtime(begin + 3600))
        denied = create(installation)
        assert f"hard 3, used 3, asked 1 (schedule: office, x3, until {end})" in denied
        for server in installation.servers:
            service = server.status()["services"][0]
            assert (service["windows"][0]["hard"], service["schedule"]["name"]) == (3, "office")
            assert server.total("podgate_quota_limit", 'service="web"') == 3
        text = podgate("status", "--server", f"http://{installation.servers[0].plain}", "-o", "table").out
        assert f"web: schedule: office, x3, until {end}" in text


def test_a_bad_schedule_is_refused_at_apply(plane: ControlPlane, identities: Identities) -> None:
    good = policy_of(time.time())
    with install_podgate(plane, identities.files, good, [SPACE]) as installation:
        installation.wait_for_calls()
        refused = installation.apply_policy(good.replace("timeZone: UTC", "timeZone: Europe/Berln"), check=False)
        assert "timeZone: Europe/Berln: no such time zone: did you mean Europe/Berlin?" in refused
