"""Objects of cases, from files beside the test or written in it."""

from collections.abc import Sequence
from pathlib import Path

from webhook.commands.manifests import KNOWN_KINDS, Subject, parse_subjects, read_subjects
from webhook.commands.namespace_labels import is_namespace, merge_labels
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES, TemplatePaths
from webhook.errors import UserError
from webhook.policy_tests.case_files import ReadFiles
from webhook.policy_tests.document import Labels, ReviewedManifest


class CaseObjects:
    """Reads the objects of one test's cases, each file once. `read` collects the files."""

    def __init__(self, test: Path, read: ReadFiles) -> None:
        self.templates: TemplatePaths = KNOWN_TEMPLATES
        """Pod templates of custom kinds, as the test's policy knows them."""
        self._test = test
        self._read = read
        self._known: dict[tuple[Path, str], list[Subject | UserError]] = {}

    def read_all(
        self, given: Sequence[ReviewedManifest], namespace: str, labels: Labels
    ) -> tuple[list[Subject], Labels]:
        """Return the objects that make Pods, and the labels of Namespaces. UserError: an object is invalid."""
        found = [subject for manifest in given for subject in self._read_manifest(manifest, namespace)]
        known = merge_labels(labels, found, _raise)
        wrong = next((subject for subject in found if isinstance(subject, UserError)), None)
        if wrong is not None:
            raise wrong
        valid = [subject for subject in found if isinstance(subject, Subject)]
        makers = [subject for subject in valid if not subject.idle and not is_namespace(subject)]
        if not makers:
            names = ", ".join(subject.name for subject in valid) or "nothing"
            raise UserError(f"objects: {names}: makes no Pods", f"give one of {KNOWN_KINDS}")
        return makers, known

    def read_one(self, given: ReviewedManifest, namespace: str) -> Subject:
        """Return the only object that makes Pods."""
        makers, _ = self.read_all([given], namespace, {})
        if len(makers) != 1:
            raise UserError(f"object: {len(makers)} objects that make Pods", "give one, and the others in own steps")
        if makers[0].review is not None:
            raise UserError("object: an AdmissionReview in a sequence", "give the Pod, or use it as one of `objects`")
        return makers[0]

    def _read_manifest(self, given: ReviewedManifest, namespace: str) -> list[Subject | UserError]:
        if not isinstance(given, str):
            return parse_subjects(given, str(self._test), "", namespace, self.templates)
        path = self._test.parent / given
        self._read.add(path)
        if (path, namespace) not in self._known:
            self._known[path, namespace] = read_subjects(path, namespace, self.templates)
        return self._known[path, namespace]


def _raise(error: UserError) -> None:
    raise error
