"""Reviews of tokens and rights, as a fake API server answers; tests/cluster asks a real one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fake_apiserver import FakeApiServer, fake_apiserver, refuse, say
from webhook.adapters.kubernetes import KubernetesReviews, connect
from webhook.errors import UserError
from webhook.ports.viewers import ResourceAccess, ReviewedUser

ANN = ReviewedUser("ann", "u1", ("dev",), {"scopes": ("a",)})


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as fake:
        yield fake


@pytest.fixture
async def reviews(fake: FakeApiServer, tmp_path: Path) -> AsyncIterator[KubernetesReviews]:
    assert fake.url
    async with await connect(tmp_path / "kubeconfig") as client:
        yield KubernetesReviews(client)


def answer(**status: Any) -> Any:
    return say(json.dumps({"status": status}).encode())


async def test_a_token_is_of_the_user_that_the_api_server_says(fake: FakeApiServer, reviews: KubernetesReviews) -> None:
    user = {"username": "ann", "uid": "u1", "groups": ["dev"], "extra": {"scopes": ["a"]}}
    fake.fail_next("create", answer(authenticated=True, user=user))
    assert await reviews.find_user("token") == ANN


@pytest.mark.parametrize("status", [{}, {"authenticated": False}, {"authenticated": True}, {"user": {"username": "x"}}])
async def test_any_other_answer_is_no_user(
    fake: FakeApiServer, reviews: KubernetesReviews, status: dict[str, Any]
) -> None:
    fake.fail_next("create", answer(**status))
    assert await reviews.find_user("token") is None


@pytest.mark.parametrize(("status", "allowed"), [({"allowed": True}, True), ({"allowed": False}, False), ({}, False)])
async def test_a_right_is_what_the_api_server_says(
    fake: FakeApiServer, reviews: KubernetesReviews, status: dict[str, Any], *, allowed: bool
) -> None:
    fake.fail_next("create", answer(**status))
    assert await reviews.may(ANN, ResourceAccess("list", "pods", "shop")) is allowed


async def test_without_the_right_to_ask_the_remedy_names_the_role(
    fake: FakeApiServer, reviews: KubernetesReviews
) -> None:
    fake.fail_next("create", refuse(403, "no"))
    with pytest.raises(UserError, match="create tokenreviews") as failure:
        await reviews.find_user("token")
    assert "system:auth-delegator" in failure.value.remedy
