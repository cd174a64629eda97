"""A cache that fills itself makes each entry once, and keeps as many as it may."""

from webhook.core.lru_cache import SelfFillingCache


def test_entry_is_made_once_while_it_is_kept_and_the_oldest_is_replaced() -> None:
    made: list[str] = []

    def make(key: str) -> list[str]:
        made.append(key)
        return [key]

    cache = SelfFillingCache(2, make)
    first = cache["a"]
    assert cache["a"] is first == ["a"]
    assert [cache[key] for key in ("b", "a", "c", "c")] == [["b"], ["a"], ["c"], ["c"]]
    assert made == ["a", "b", "c"]
    assert list(cache) == ["b", "c"]
    assert cache["a"] is not first
    assert list(cache) == ["c", "a"]
