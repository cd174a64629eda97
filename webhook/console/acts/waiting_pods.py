"""Acts on one waiting Pod: release it now, or delete it, as `podgate queue release` and `drop` do."""

from webhook.commands.explain_target import parse_pod
from webhook.console.acts.overrides import COMBINE, build_entry, list_terms, write_entry
from webhook.console.interface.act import (
    DURATION,
    REASON,
    ActPlan,
    Arguments,
    ClusterHands,
    ConsoleAct,
    Form,
    FormField,
    Hands,
)
from webhook.console.interface.page import PageRequest
from webhook.errors import UserError

_BACK = "/queue"
_POD = FormField("pod", "Pod", hint="NAMESPACE/POD, such as shop/web-x7.")


def require_cluster(hands: Hands) -> ClusterHands:
    if hands.cluster is None:
        raise UserError("this console has no cluster", "start podgate console with a kubeconfig")
    return hands.cluster


def list_cluster_arguments(hands: Hands) -> Arguments | None:
    return None if hands.cluster is None else hands.cluster_arguments


def _list_both_arguments(hands: Hands) -> Arguments | None:
    return None if hands.cluster is None else (*hands.cluster_arguments, *hands.file_arguments)


async def _plan_release(asked: PageRequest, form: Form) -> ActPlan:
    namespace, name = parse_pod(form["pod"])
    build_entry(asked, "any", form, {"releasePods": [{"namespace": namespace, "name": name, "uid": "any"}]})
    effect = f"Releases {form['pod']} now, whatever the limits. It is charged, so the others wait longer."
    return ActPlan(effect, ("podgate", "queue", "release", form["pod"], *list_terms(form)))


async def _release(hands: Hands, asked: PageRequest, form: Form) -> str:
    namespace, name = parse_pod(form["pod"])
    found = await require_cluster(hands).find_waiting(namespace, name)
    released = {"namespace": namespace, "name": name, "uid": found.uid}
    entry = build_entry(asked, found.service, form, {"releasePods": [released]})
    return await write_entry(hands, asked, entry, form)


async def _plan_drop(_: PageRequest, form: Form) -> ActPlan:
    parse_pod(form["pod"])
    effect = f"Deletes {form['pod']}, with your own rights. Its controller, if any, creates another one."
    return ActPlan(effect, ("podgate", "queue", "drop", form["pod"], "--reason", form["reason"]))


async def _drop(hands: Hands, _: PageRequest, form: Form) -> str:
    found, unwritten = await require_cluster(hands).drop_waiting(*parse_pod(form["pod"]), form["reason"])
    recorded = f"; the reason is not recorded: {unwritten}" if unwritten else "; the reason is an Event on the Pod"
    return f"{form['pod']} (uid {found.uid}) of {found.service}: deleted{recorded}"


ACTS = (
    ConsoleAct(
        name="release",
        path="/queue/release",
        title="Release a waiting Pod",
        fields=(_POD, DURATION, REASON, COMBINE),
        plan=_plan_release,
        perform=_release,
        back=_BACK,
        link="Release a waiting Pod",
        list_arguments=_list_both_arguments,
    ),
    ConsoleAct(
        name="drop",
        path="/queue/drop",
        title="Delete a waiting Pod",
        fields=(_POD, REASON),
        plan=_plan_drop,
        perform=_drop,
        back=_BACK,
        link="Delete a waiting Pod",
        list_arguments=list_cluster_arguments,
    ),
)
