"""Rules of names with a `*`, in `match.namespaces` and `placement.allow`: those that a wider one covers."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import covering_patterns

_PATTERNS = (
    ("match", "namespaces"),
    *(("placement", "allow", names) for names in ("priorityClassNames", "schedulerNames", "runtimeClassNames")),
)


def patterns_do_not_overlap(service: DocumentPart) -> Iterator[Problem]:
    """`match.namespaces` and the names of `placement.allow`: warn about a name that a pattern of the list covers."""
    for patterns in [part for path in _PATTERNS for part in service.select(*path)]:
        names = [(part, part.read(str)) for part in patterns.items()]
        listed = {name for _, name in names}
        for part, name in names:
            wider = next((other for other in covering_patterns(name) if other != name and other in listed), None)
            if wider is not None:
                yield part.wrong(f"{wider} already covers it", "remove it")
