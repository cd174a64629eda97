import re
from pathlib import Path

from tests.core.policy.documents import problems
from webhook.core.document import Purpose
from webhook.core.document.support import NOT_EVERYWHERE

PAGE = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")


def test_the_pages_example_can_be_served() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert problems(found[1], Purpose.SERVE) == []


def test_the_page_names_all_that_is_not_supported_yet() -> None:
    table = PAGE.partition("## What is not supported yet")[2].partition("\n## ")[0]
    missing = [
        stanza.path for stanza in NOT_EVERYWHERE if stanza.path[-1] not in table or (stanza.word or "") not in table
    ]
    assert missing == []
