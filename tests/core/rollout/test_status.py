"""Status of a PolicyRollout, and how Argo CD judges it, by the Lua of a real Redis: both are Lua 5.1."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from tests.architecture.sources import ROOT
from tests.redis_servers import RedisServer
from tests.redis_servers.inventory import names
from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.policy_fields.rollout import Rollout
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState
from webhook.core.rollout.status import render_rollout_status

pytest_plugins = ("tests.redis_servers.fixtures",)

OLD, NEW = "0" * 16, "1" * 16
SINCE = "2026-12-01T04:00:00Z"
ROLLOUT = msgspec.convert(
    {"canary": {"steps": [{"namespaces": ["staging-*"]}, {"percent": 5}]}}, Rollout, dec_hook=convert_amount
)
STABLE = RolloutState(OLD, governed=True)
CANARY = RolloutState(OLD, governed=True, phase=Phase.CANARY, candidate=NEW, step=1, since=SINCE)
REJECTED = STABLE.reject(Rejection(NEW, "too many Pending Pods", figures="9 of 100: above 8 %", at=SINCE))
PINNED = replace(STABLE, pinned=Intervention("incident 7", "alice", SINCE))


def find_conditions(status: Any) -> dict[str, dict[str, str]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def test_a_canary_is_progressing() -> None:
    status = render_rollout_status(replace(CANARY, waits_for="pending: no data"), NEW, ROLLOUT)
    assert (status["candidate"], status["phase"], status["step"], status["since"]) == (NEW, "Canary", "2/2", SINCE)
    conditions = find_conditions(status)
    assert conditions["Progressing"]["status"] == "True"
    assert conditions["Progressing"]["message"] == (
        f"candidate {NEW}: step 2/2: 5 % for 10m; waits for pending: no data"
    )
    assert conditions["Degraded"]["status"] == "False"


def test_a_policy_that_was_taken_back_is_degraded_while_it_is_wished() -> None:
    conditions = find_conditions(render_rollout_status(REJECTED, NEW, ROLLOUT))
    assert (conditions["Degraded"]["status"], conditions["Degraded"]["reason"]) == ("True", "RolledBack")
    assert "9 of 100: above 8 %" in conditions["Degraded"]["message"]
    assert find_conditions(render_rollout_status(REJECTED, OLD, ROLLOUT))["Degraded"]["status"] == "False"


def test_a_status_has_no_field_without_a_value() -> None:
    status = render_rollout_status(STABLE, OLD, None)
    assert set(status) == {"stable", "wished", "phase", "conditions"}


@pytest.fixture(scope="module")
def redis(shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    return shared_redis(names()[0])


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (None, "Progressing"),
        (render_rollout_status(STABLE, OLD, ROLLOUT), "Healthy"),
        (render_rollout_status(CANARY, NEW, ROLLOUT), "Progressing"),
        (render_rollout_status(replace(CANARY, paused=Intervention("holidays")), NEW, ROLLOUT), "Suspended"),
        (render_rollout_status(REJECTED, NEW, ROLLOUT), "Degraded"),
        (render_rollout_status(REJECTED, OLD, ROLLOUT), "Healthy"),
        (render_rollout_status(PINNED, NEW, ROLLOUT), "Degraded"),
    ],
)
def test_argo_cd_judges_health_by_the_conditions(redis: RedisServer, status: Any, health: str) -> None:
    [check] = yaml.safe_load((ROOT / "manifests/argocd/argocd-cm.yaml").read_text())["data"].values()
    script = f"local function judge(obj) {check} end return cjson.encode(judge(cjson.decode(ARGV[1])))"
    found = json.loads(redis.cli("EVAL", script, 0, json.dumps({"status": status} if status else {})))
    assert found["status"] == health
    assert found["message"]
