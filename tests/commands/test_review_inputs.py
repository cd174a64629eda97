"""Input of `podgate review`: files, folders, pipes, Namespaces, the user; and its summary."""

import json
from pathlib import Path

import pytest

from tests.cli.command_runner import Done, Json, podgate, policy_text
from webhook.commands.manifests import Subject, parse_subjects
from webhook.commands.simulator import Ask, build_admission_review
from webhook.core.admission.decision import Half

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop]}, placement: {nodeSelector: {disk: ssd}}}\n"
    "- {name: prod, match: {namespaceSelector: {matchLabels: {tier: prod}}}}\n",
    head="exemptions: {usernames: ['system:serviceaccount:ci:deployer']}",
)
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}


def pod(name: str, namespace: str = "shop", **spec: object) -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def write(path: str, *documents: Json) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n---\n".join(map(json.dumps, documents)))


def review(*arguments: str | Path, stdin: str = "") -> Done:
    return podgate("review", "--policy", "policy.yaml", "-o", "json", *arguments, stdin=stdin)


def names(done: Done) -> list[str]:
    return [f"{line['file']} {line['name']}" for line in done.lines]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)


@pytest.mark.parametrize("others", [[], [pod("p")]], ids=["alone", "beside a Pod"])
@pytest.mark.parametrize("form", ["one a file", "many a file", "a list"])
def test_unhandled_object_is_a_note_in_any_form_of_input(form: str, others: list[Json]) -> None:
    objects = [SERVICE, *others]
    if form == "one a file":
        for index, document in enumerate(objects):
            write(f"all/{index}.yaml", document)
    else:
        write("all/all.yaml", *([{"kind": "List", "items": objects}] if form == "a list" else objects))
    done = review("-f", "all")
    assert (done.code, len(done.lines)) == (0, len(others))
    assert "Service s: not handled by Podgate: makes no Pods\n" in done.err
    counted = f"{len(others)} reviewed{': Admit 1' * len(others)}; 1 not handled"
    assert done.err.splitlines()[-1] == counted


def test_folder_means_its_manifests_and_r_includes_subfolders() -> None:
    for name in ("b.yaml", "a.yml", "c.json", "ignored.txt", "deeper/d.yaml", "deeper/and/e.json"):
        write(f"all/{name}", pod(name))
    flat = ["all/a.yml a.yml", "all/b.yaml b.yaml", "all/c.json c.json"]
    deep = ["all/deeper/d.yaml deeper/d.yaml", "all/deeper/and/e.json deeper/and/e.json"]
    assert names(review("all")) == names(review("-f", "all")) == flat
    assert names(review("-R", "-f", "all")) == [*flat, *deep]
    assert names(review("all/b.yaml", "-f", "all/c.json", "-f", "all/a.yml")) == [flat[1], flat[2], flat[0]]


def test_folder_without_manifests_is_an_error_beside_other_results() -> None:
    write("all/p.yaml", pod("p"))
    Path("empty").mkdir()
    done = review("empty", "all")
    assert (done.code, names(done)) == (2, ["all/p.yaml p"])
    assert "error: empty: no .yaml, .yml or .json file in it: give a folder with manifests, or -R" in done.err


def test_kustomization_is_skipped_and_its_output_can_be_piped() -> None:
    write("all/p.yaml", pod("p"))
    Path("all/kustomization.yaml").write_text("resources: [p.yaml]\nnamePrefix: x-\n")
    done = review("all")
    assert (done.code, names(done)) == (0, ["all/p.yaml p"])
    assert "all/kustomization.yaml: not a manifest, skipped: pipe its output: kubectl kustomize all |" in done.err
    made = "\n---\n".join(map(json.dumps, (namespace("shop"), SERVICE, pod("x-p"))))
    assert names(review("-f", "-", stdin=made)) == ["- x-p"]


def test_empty_input_is_an_error_and_a_file_without_objects_a_note() -> None:
    Path("empty.yaml").write_text("# nothing\n---\n")
    write("p.yaml", pod("p"))
    assert review("-", stdin="").error.startswith("-: no object in it: give one of Pod, Deployment")
    assert review("empty.yaml").code == 2
    done = review("empty.yaml", "p.yaml")
    assert (done.code, names(done)) == (0, ["p.yaml p"])
    assert "note: empty.yaml: no object in it\n" in done.err


@pytest.mark.parametrize(
    "arguments", [["-", "-"], ["-", "-f", "-"], ["-", "--namespaces", "-"], ["-", "--policy", "-"]]
)
def test_standard_input_is_read_once(arguments: list[str]) -> None:
    done = podgate("review", "--policy", "policy.yaml", *arguments, stdin="x")
    assert (done.code, done.error) == (
        2,
        "-: standard input is named twice: it can only be read once: put the other in a file",
    )


def test_namespaces_in_the_input_give_their_labels() -> None:
    write("all.yaml", pod("p", "team-a"), pod("q", "team-b"), namespace("team-a", tier="prod"), namespace("team-b"))
    done = review("all.yaml")
    assert [line["service"] for line in done.lines] == ["prod", None]
    assert done.err == "2 reviewed: Admit 1, Unmatched 1\n"


def test_namespace_alone_is_valid_and_not_reviewed() -> None:
    write("all.yaml", namespace("team-a"))
    done = review("all.yaml")
    assert (done.code, done.out, done.err) == (0, "", "0 reviewed\n")


def test_namespaces_option_overrides_labels_and_conflicts_are_noted() -> None:
    write("all.yaml", pod("p", "team-a"), namespace("team-a", tier="prod"), namespace("team-a", tier="test"))
    Path("labels.yaml").write_text("team-a: {tier: test}")
    done = review("all.yaml", "--namespaces", "labels.yaml")
    assert [line["service"] for line in done.lines] == [None]
    assert done.err.splitlines()[0] == (
        "note: all.yaml: document 2: Namespace team-a: its labels differ from those read before: "
        "those of --namespaces are used"
    )
    done = review("all.yaml")
    assert [line["service"] for line in done.lines] == ["prod"]
    assert "document 3: Namespace team-a: its labels differ from those read before: the first ones are used" in done.err


def test_label_set_by_the_api_server_is_no_conflict() -> None:
    live = namespace("team-a", **{"tier": "prod", "kubernetes.io/metadata.name": "team-a"})
    write("all.yaml", pod("p", "team-a"), live)
    Path("labels.yaml").write_text("team-a: {tier: prod}")
    assert review("all.yaml", "--namespaces", "labels.yaml").err == "1 reviewed: Admit 1\n"


def test_bad_namespace_label_is_an_error() -> None:
    wrong = namespace("team-a")
    wrong["metadata"]["labels"] = {"tier": True}
    write("all.yaml", pod("p"), wrong)
    done = review("all.yaml")
    assert (done.code, len(done.lines)) == (2, 1)
    assert "error: all.yaml: document 2: team-a: tier: True: a label's value is a string" in done.err


def test_namespace_of_another_api_is_not_used() -> None:
    other = {**namespace("team-a", tier="prod"), "apiVersion": "example.com/v1"}
    write("all.yaml", pod("p", "team-a"), other)
    done = review("all.yaml")
    assert (done.code, done.lines) == (2, [])
    assert "the labels of Namespace 'team-a', which are not known here" in done.err


def test_user_option_applies_to_pods_and_not_to_workloads() -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "shop"}, "spec": {"template": template}}
    write("all.yaml", pod("p"), job)
    usual = review("all.yaml")
    assert [line["decision"] for line in usual.lines] == ["Admit", "Admit"]
    asked = review("all.yaml", "--as", "system:serviceaccount:ci:deployer", "--as-group", "system:masters")
    assert [line["decision"] for line in asked.lines] == ["Exempt", "Admit"]


def test_group_without_a_user_is_refused() -> None:
    done = review("all.yaml", "--as-group", "system:masters")
    assert (done.code, done.error) == (2, "--as-group needs --as: see podgate review --help")


@pytest.mark.parametrize("form", ["diff", "yaml", "json", "patch"])
def test_every_form_names_file_object_and_verdict(form: str) -> None:
    write("a.yaml", pod("p"), pod("q", nodeSelector={"disk": "hdd"}))
    done = podgate("review", "a.yaml", "--policy", "policy.yaml", "-o", form)
    assert done.code == 3
    if form in {"diff", "yaml"}:
        assert "# a.yaml: document 1: Pod shop/p: Admit (service web)\n" in done.out
        assert "# a.yaml: document 2: Pod shop/q: Deny (service web)\n# 403 Forbidden: " in done.out
    else:
        assert [
            [line[key] for key in ("file", "place", "kind", "namespace", "name", "decision")] for line in done.lines
        ] == [
            ["a.yaml", "document 1", "Pod", "shop", "p", "Admit"],
            ["a.yaml", "document 2", "Pod", "shop", "q", "Deny"],
        ]
    assert done.err == "2 reviewed: Admit 1, Deny 1\n"


@pytest.mark.parametrize(
    ("user", "groups", "sent"),
    [
        ("alice", (), ["system:authenticated"]),
        ("alice", ("devs", "ops"), ["devs", "ops", "system:authenticated"]),
        (
            "system:serviceaccount:ci:deployer",
            (),
            ["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"],
        ),
        ("system:serviceaccount:ci:deployer", ("devs",), ["devs", "system:authenticated"]),
    ],
)
def test_groups_follow_the_rules_of_impersonation(user: str, groups: tuple[str, ...], sent: list[str]) -> None:
    ask = Ask(pod("p"), "shop", "uid", user, groups=groups)
    request = build_admission_review(ask, ask.pod, Half.VALIDATE)["request"]
    assert request["userInfo"] == {"username": user, "groups": sent}


def test_a_kind_that_only_ends_in_list_is_an_object() -> None:
    document = {"apiVersion": "example.com/v1", "kind": "TaskList", "metadata": {"name": "a"}}
    [found] = parse_subjects(document, "file", "", "shop")
    assert isinstance(found, Subject)
    assert found.name == "TaskList a"
    assert found.idle
    for empty in ({**document, "items": []}, {"apiVersion": "v1", "kind": "List"}):
        assert parse_subjects(empty, "file", "", "shop") == []
