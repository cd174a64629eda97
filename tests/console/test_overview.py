"""The overview page: order, filter, pages, size, and text from outside."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from tests.harness.console import PreparedPort, breaker, make_ports, open_console, service
from webhook.console.interface.document_reader import ConsolePorts
from webhook.errors import UserError


class Texts(HTMLParser):
    """The links of rows, and the names of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.tags: set[str] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        address = given.get("href") or ""
        if tag == "a" and address.startswith("/service/"):
            self.rows.append(address.removeprefix("/service/"))


IN_TROUBLE = (
    service("nearly", used=44),
    service("unknown", used=None),
    service("full", used=50),
    service("probing", breaker=breaker("HALF_OPEN")),
    service("open", breaker=breaker("OPEN", 272)),
    service("waits"),
)


async def test_services_are_sorted_by_trouble() -> None:
    ports = make_ports(service("fine"), *IN_TROUBLE, queues=[{"service": "waits", "waiting": 2}])
    async with open_console(ports) as client:
        _, text = await client.get("/")
        assert Texts(text).rows == ["open", "probing", "full", "waits", "unknown", "nearly", "fine"]
        _, text = await client.get("/?only=trouble")
        assert Texts(text).rows == ["open", "probing", "full", "waits", "unknown"]
        _, text = await client.get("/?text=N")
        assert Texts(text).rows == ["open", "probing", "unknown", "nearly", "fine"]
        _, text = await client.get("/?text=nothing-like-it")
        assert "No service matches" in text


async def test_the_json_form_has_what_the_page_shows() -> None:
    async with open_console(make_ports(*IN_TROUBLE)) as client:
        found = await client.get_json("/api/v1/services")
    assert [(row["name"], row["trouble"]) for row in found["rows"]][:2] == [
        ("open", "BREAKER_OPEN"),
        ("probing", "BREAKER_PROBING"),
    ]
    assert (found["services"], found["inTrouble"]) == (6, 4)


async def test_five_thousand_services_are_paged() -> None:
    ports = make_ports(*(service(f"service-{number:04d}-of-a-team".ljust(63, "x"), used=44) for number in range(5000)))
    async with open_console(ports) as client:
        status, text = await client.get("/")
        assert status == 200
        assert len(text.encode()) < 100_000
        assert len(Texts(text).rows) == 50
        assert "Page 1 of 100" in text
        _, last = await client.get("/?page=100")
        assert Texts(last).rows[-1] == "service-4999-of-a-team".ljust(63, "x")
        _, beyond = await client.get("/?page=999999999")
        assert "Page 100 of 100" in beyond


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\x1b[2J", "\u202egnp", "{{7*7}}", "'>&lt;"]


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_from_outside_stays_text(text: str) -> None:
    ports = make_ports(
        service(text, breaker=breaker("OPEN", 60, reason=text), slaClass=text),
        notReady=[text],
        policy={"source": text, "hash": None, "loadedAt": None, "errors": [text]},
    )
    async with open_console(ports) as client:
        for path in ("/", "/?text=" + text.replace("&", "%26").replace("\x1b", "%1B").replace("{", "%7B")):
            _, page = await client.get(path)
            parsed = Texts(page)
            assert parsed.inline == []
            assert parsed.tags.isdisjoint({"img", "style", "iframe", "object", "base"})
            assert page.count("<script") == 1
            assert not {"\x1b", "\u202e"} & set(page)
            assert "49" not in page.replace("&#3949", "")
        _, document = await client.get("/api/v1/services")
        assert not {"\x1b", "\u202e"} & set(document)


async def test_denials_of_the_last_minutes_are_counted_once() -> None:
    def record(number: int, name: str = "web") -> dict[str, object]:
        return {"id": f"r{number}", "at": datetime.now(UTC) - timedelta(minutes=1), "service": name}

    pages = [
        {"decisions": [record(3), record(2), record(2)], "next": "r2"},
        {"decisions": [record(1, "api")], "next": None},
    ]
    ports = make_ports(service("web"), service("api"), denied=lambda: pages.pop(0))
    async with open_console(ports) as client:
        found = await client.get_json("/api/v1/services")
    assert {row["name"]: sum(row["denied"]) for row in found["rows"]} == {"web": 2, "api": 1}


async def test_what_cannot_be_read_is_named_and_the_rest_is_shown() -> None:
    ports = make_ports(service("web"))
    plain = ports.plain
    broken = ConsolePorts(plain, PreparedPort({"/api/v1/decisions": UserError("no port there")}))
    async with open_console(broken) as client:
        _, text = await client.get("/")
        assert Texts(text).rows == ["web"]
        assert "decisions cannot be read: no port there" in text
