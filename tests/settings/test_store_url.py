"""Store URLs as users write them; no password is ever shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import UserError
from webhook.ports.store_url import RedisAddress, RedisTopology, StoreFiles, StoreUrl
from webhook.settings import Settings, parse
from webhook.support.redaction import mask

CLUSTER, SENTINEL = RedisTopology.CLUSTER, RedisTopology.SENTINEL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://redis", StoreUrl(addresses=(RedisAddress("redis", 6379),))),
        ("redis://10.0.0.7:6380/2", StoreUrl(addresses=(RedisAddress("10.0.0.7", 6380),), database=2)),
        ("rediss://[::1]:6380/", StoreUrl(addresses=(RedisAddress("::1", 6380),), tls=True)),
        ("redis://podgate@redis", StoreUrl(addresses=(RedisAddress("redis", 6379),), username="podgate")),
        ("redis://:a%40b%2F@r/0", StoreUrl(addresses=(RedisAddress("r", 6379),), password="a@b/")),
        ("unix:///run/redis.sock", StoreUrl(path="/run/redis.sock")),
        ("unix://u:p@/run/a@b?db=3", StoreUrl(path="/run/a@b", database=3, username="u", password="p")),
        (
            "redis+sentinel://a,b:26380,c/store",
            StoreUrl(
                topology=SENTINEL,
                addresses=(RedisAddress("a", 26379), RedisAddress("b", 26380), RedisAddress("c", 26379)),
                service="store",
            ),
        ),
        (
            "rediss+sentinel://u:p@a/store/4",
            StoreUrl(
                topology=SENTINEL,
                addresses=(RedisAddress("a", 26379),),
                service="store",
                tls=True,
                database=4,
                username="u",
                password="p",
            ),
        ),
        (
            "redis+cluster://a:1,[fe80::1]:2",
            StoreUrl(topology=CLUSTER, addresses=(RedisAddress("a", 1), RedisAddress("fe80::1", 2))),
        ),
        ("rediss+cluster://a/0", StoreUrl(topology=CLUSTER, addresses=(RedisAddress("a", 6379),), tls=True)),
    ],
)  # fmt: skip
def test_every_form_of_url_is_parsed(text: str, expected: StoreUrl) -> None:
    assert StoreUrl.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "write memory, or the URL"),
        ("redis:6379", "write memory, or the URL"),
        ("http://redis", "write memory, or the URL"),
        ("redis+cluster", "write memory, or the URL"),
        ("redis://", "write redis://HOST:PORT/DB"),
        ("rediss://a b", "write rediss://HOST:PORT/DB"),
        ("redis://a:0", "PORT is from 1 to 65535"),
        ("redis://a:65536", "PORT is from 1 to 65535"),
        ("redis://a:²", "PORT is a number"),
        ("redis://a/one", "DB is a number"),
        ("redis://a,b", "several servers are a Cluster (redis+cluster) or Sentinels (redis+sentinel)"),
        ("redis://::1", "write an IPv6 address in brackets"),
        ("redis://[::1", "write an IPv6 address in brackets"),
        ("redis://[redis]:1", "write an IPv6 address in brackets"),
        ("redis://a?ssl_cert_reqs=none", "nothing behind a ?"),
        ("redis://:a/b@c", "write %2F for /"),
        ("redis://:a#b@c", "%23 for #"),
        ("redis://:a?b@c", "%3F for ?"),
        ("unix://redis.sock", "write unix:///PATH"),
        ("unix:///run/redis.sock?db=x", "write unix:///PATH"),
        ("redis+sentinel://a", "SERVICE is the name under which the Sentinels know the primary"),
        ("redis+cluster://a,,b", "write redis+cluster://HOST:PORT,HOST:PORT"),
        ("redis+cluster://a/1", "a Cluster has one database only"),
    ],
)
def test_invalid_url_error_says_what_to_write(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=r"^write|^in a name") as caught:
        StoreUrl.parse(text)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:2"),
        ("unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
        ("redis://podgate:s3cret@redis", "redis://***@redis"),
        ("redis://:s3/cr@et@redis:1", "redis://***@redis:1"),
        ("http://:s3cret@redis", "http://***@redis"),
        ("podgate:s3cret@redis", "***@redis"),
        ("redis://:s3cret", "redis://:***"),
        ("redis://podgate:s3cret/0", "redis://podgate:***/0"),
        ("redis://redis?password=s3cret", "redis://redis?***"),
        ("redis://redis#s3cret", "redis://redis?***"),
        ("http://a://:s3cret@redis", "http://***@redis"),
        ("redis://podgate:s3://cret@redis", "redis://***@redis"),
    ],
)
def test_masked_url_has_no_password(text: str, shown: str) -> None:
    assert mask(text) == shown


@given(st.text(min_size=9, alphabet=st.characters(exclude_characters="*", exclude_categories=("Cs",))))
def test_password_is_masked_in_any_form_of_url(password: str) -> None:
    for text in (f"redis://podgate:{password}@redis:6379/0", f"redis+cluster://:{password}@a,b", f"x:{password}@y"):
        assert password not in mask(text)


def test_repr_of_a_url_has_no_password() -> None:
    assert "s3cret" not in repr(StoreUrl.parse("redis://podgate:s3cret@redis"))


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, str | None]:
    files = ("tls_cert", "tls_key", "client_ca", "jwks", "identities", "policy")
    for name in (*files, "secret"):
        (tmp_path / name).touch()
    return {name: str(tmp_path / name) for name in files}


def list_mistakes(flags: dict[str, str | None]) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse(flags, {})
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_settings_do_not_show_a_password(flags: dict[str, str | None]) -> None:
    settings = parse({**flags, "store": "redis://:s3cret@redis", "otlp_endpoint": "http://:s3cret@collector"}, {})
    assert settings.store == "redis://:s3cret@redis"
    assert "s3cret" not in repr(settings)
    wrong = {"store": "reddis://:s3cret@redis", "otlp_endpoint": "htp://:s3cret@collector"}
    assert [line[:50] for line in list_mistakes({**flags, **wrong})] == [
        "--otlp-endpoint: 'htp://***@collector': write a UR",
        "--store: 'reddis://***@redis': write memory, or th",
    ]


@pytest.mark.parametrize(
    ("store", "setting", "remedy"),
    [
        ("memory", "password_file", "is for a Redis: give its URL as --store, or leave this out"),
        ("redis://a:b@c", "username_file", "--store has a username, too: leave out one of them"),
        ("redis://:b@c", "password_file", "--store has a password, too: leave out one of them"),
        ("redis://a", "ca", "is for TLS: write rediss instead of redis in --store, or leave this out"),
        ("rediss://a", "cert", "goes with --store-key: give both"),
        ("rediss+cluster://a", "key", "goes with --store-cert: give both"),
        ("redis+sentinel://a/s", "sentinel_username_file", "goes with --store-sentinel-password-file: give both"),
        ("redis+cluster://a", "sentinel_password_file", "is for Sentinels: write --store redis+sentinel://"),
    ],
)
def test_store_file_that_does_not_match_the_store_is_named(
    flags: dict[str, str | None], store: str, setting: str, remedy: str
) -> None:
    errors = list_mistakes({**flags, "store": store, f"store_{setting}": flags["jwks"]})
    assert len(errors) == 1
    assert errors[0].startswith(f"--store-{setting.replace('_', '-')}: {remedy}")


def test_store_files_are_those_of_the_settings(flags: dict[str, str | None], tmp_path: Path) -> None:
    secret = str(tmp_path / "secret")
    settings: Settings = parse({**flags, "store": "redis://podgate@a", "store_password_file": secret}, {})
    assert settings.store_files == StoreFiles(password_file=Path(secret))
    assert list_mistakes({**flags, "store": "redis://a", "store_password_file": "./nowhere"}) == [
        "--store-password-file: './nowhere': there is no such file"
    ]
