"""The policy page: rollout with its figures, history, difference of two policies, and what is said without them."""

from tests.console.policies import HASHES, PreparedPolicies, make_policy_ports, make_stored
from tests.harness.console import open_console
from webhook.core.reporting.candidate_document import StoredRollout
from webhook.errors import UserError

FIRST, SECOND, THIRD = HASHES


async def test_a_rollout_is_shown_with_its_figures_against_thresholds() -> None:
    async with open_console(make_policy_ports(PreparedPolicies(make_stored()))) as client:
        _, text = await client.get("/policy")
        found = await client.get_json("/api/v1/policy")
    assert f"{SECOND} is tried: canary step 2 of 3" in text
    assert "more Pods of the candidate: 12 of 20" in text
    assert "7.1 %" in text
    assert "since 03:59:10 UTC" in text
    figures = {figure["name"]: (figure["percent"], figure["thresholdPercent"]) for figure in found["figures"]}
    assert figures == {"pending": (2.0, 8), "denied": (7.1, 5), "startErrors": (None, 10)}
    assert [(entry["number"], entry["roles"]) for entry in found["entries"]] == [
        (3, ["taken back"]),
        (2, ["candidate", "wished"]),
        (1, ["in force"]),
    ]
    assert "&lt;b&gt;Pending&lt;/b&gt; (9 % &gt; 8 %), by ann" in text


async def test_two_policies_are_compared_as_the_command_does() -> None:
    async with open_console(make_policy_ports(PreparedPolicies(make_stored()))) as client:
        _, text = await client.get(f"/policy?a={FIRST}&b=2")
        assert "service web\n  slaClass" in text
        assert f"podgate policy diff {FIRST} {SECOND}" in text
        _, text = await client.get(f"/policy?a={FIRST}&b={FIRST}")
        assert "Both have the same effect" in text
        _, text = await client.get(f"/policy?a={FIRST}&b=%3Cb%3E")
        assert "&lt;b&gt;: no such revision" in text


async def test_a_policy_that_is_not_kept_is_named() -> None:
    policies = PreparedPolicies(make_stored())
    del policies.documents[THIRD]
    async with open_console(make_policy_ports(policies)) as client:
        _, text = await client.get(f"/policy?a={FIRST}&b={THIRD}")
    assert f"{THIRD}: not kept any more choose another one" in text


async def test_what_is_not_there_is_said_with_the_next_step() -> None:
    for policies, said in (
        (None, "run podgate console with a kubeconfig"),
        (PreparedPolicies(UserError("no cluster", "give --kubeconfig")), "no cluster: give --kubeconfig"),
        (PreparedPolicies(StoredRollout((), None, "no leader has kept one")), "no leader has kept one"),
        (PreparedPolicies(), "No policy is kept yet"),
    ):
        async with open_console(make_policy_ports(policies)) as client:
            status, text = await client.get("/policy?a=1&b=2")
        assert status == 200
        assert said in text
        assert "0123456789abcdef" in text  # what is in force
