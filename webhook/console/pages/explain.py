"""Page of a Pod's story: the report of `podgate explain`, and a form to ask for one."""

import shlex

from msgspec.structs import replace

from webhook.commands.explain_target import ExplainTarget, parse_target
from webhook.commands.pages.pod_report_page import describe_unread, judge_fate, list_parts
from webhook.console.interface.page import Page, PageRequest
from webhook.console.interface.page_documents import explain
from webhook.core.admission.denials import format_utc
from webhook.core.console_views.pod_story import PodStory, find_moment, list_steps, list_story_parts
from webhook.errors import UserError

_TEXT_MAX = 300
_DENIED, _NOTHING_KNOWN = 3, 4
_DEFAULT = "default"


async def build(request: PageRequest) -> PodStory:
    """Return the story of `?pod=NAMESPACE/NAME`, or of `?what=` in the words of the command; without one the form."""
    pod = request.query.get("pod", "").strip()[:_TEXT_MAX]
    what = f"pod {pod}" if pod else " ".join(request.query.get("what", "").split())[:_TEXT_MAX]
    namespace = request.query.get("namespace", "").strip()[:_TEXT_MAX] or _DEFAULT
    story = PodStory(format_utc(request.reader.now_us()), what, namespace)
    if not what:
        return story
    try:
        target = parse_target(what.split(), namespace)
        with_rules = _asks_for_rules(request)
        shown = target.namespace or namespace
        story = replace(
            story, namespace=shown, target=str(target), command=_format_command(target, with_rules=with_rules)
        )
        return await _tell(request, story, target)
    except UserError as error:
        return replace(story, problem=str(error), remedy=error.remedy)


def _asks_for_rules(request: PageRequest) -> bool:
    return request.query.get("rules") == "yes"


async def _tell(request: PageRequest, story: PodStory, target: ExplainTarget) -> PodStory:
    viewer = request.viewer
    if target.namespace and not await viewer.sees(target.namespace):
        raise UserError(f"you may not list the Pods of {target.namespace}", "ask for that right, or name another one")
    found = await explain(request.reader, target)
    report = found.report
    if report is None or not await viewer.sees(report.subject.namespace):
        unread = tuple(describe_unread(what, reason) for what, reason in found.unread.items())
        return replace(story, unread=unread, exit_code=_NOTHING_KNOWN)
    time = format_utc(request.reader.now_us())
    moment, words = find_moment(report, time)
    return replace(
        story,
        time=time,
        report=report,
        judgement=judge_fate(report.token),
        steps=list_steps(report),
        parts=list_story_parts(list_parts(report, with_rules=_asks_for_rules(request))),
        moment=moment,
        moment_words=words,
        exit_code=_DENIED if report.is_denied else 0,
        with_services=await viewer.sees_services(),
    )


def _format_command(target: ExplainTarget, *, with_rules: bool) -> str:
    asked = [target.uid] if target.uid else str(target).split()
    return shlex.join(["podgate", "explain", *asked, *(["--rules"] if with_rules else [])])


PAGE = Page("explain", "/explain", "Why a Pod does not run", build, 10, "Explain", is_of_namespace=True, is_live=False)
