"""Schedules and acts: the seed alone decides them, and no target is hit twice at once."""

from collections import Counter
from hashlib import sha256
from itertools import combinations, pairwise

import msgspec
import pytest

from tests.chaos.acts import draw_workload
from tests.chaos.effects import BUILDS
from tests.chaos.fault_kinds import CLUSTER, EFFECTS, FaultKind
from tests.chaos.forms import FORMS, LONG, LONG_SECONDS, SHORT, Form, choose_form
from tests.chaos.history import PlannedFault
from tests.chaos.policies import SERVICES, build_policies, hash_policy
from tests.chaos.schedule import draw_schedule, list_families, list_targets
from webhook.core.document import Purpose, load

LONG_FORMS = [form for form in FORMS.values() if form is not SHORT]
of_each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def draw(seed: int, seconds: float, form: Form = SHORT) -> list[PlannedFault]:
    return draw_schedule(seed, seconds, form.parts, form.links, form.kinds)


@of_each_form
def test_a_seed_draws_the_same_schedule_and_acts_each_time(form: Form) -> None:
    assert draw(7, 90, form) == draw(7, 90, form) != draw(8, 90, form)
    assert draw_workload(7, 90, 3) == draw_workload(7, 90, 3) != draw_workload(8, 90, 3)


@pytest.mark.parametrize(
    ("seed", "digest"), [(1049, "fe9361c9d7ced54b"), (7, "b78a9d937a25dda1"), (12, "eaaf2070385f99f1")]
)
def test_an_old_seed_repeats_the_short_form(seed: int, digest: str) -> None:
    """What only long forms have takes no draw from it."""
    assert sha256(msgspec.json.encode(draw(seed, 90))).hexdigest()[:16] == digest


def test_the_seed_chooses_the_form_of_a_long_run_unless_one_is_asked_for() -> None:
    assert {choose_form(seed, 90).name for seed in range(20)} == {SHORT.name}
    chosen = [choose_form(seed, LONG_SECONDS) for seed in range(20)]
    assert {form.name for form in chosen} == {form.name for form in LONG_FORMS}
    assert chosen == [choose_form(seed, LONG_SECONDS) for seed in range(20)]
    assert choose_form(1, LONG_SECONDS, "short") is SHORT
    assert choose_form(1, 90, "long") is LONG


@of_each_form
@pytest.mark.parametrize("seed", range(20))
def test_no_target_has_two_faults_at_once(seed: int, form: Form) -> None:
    for one, other in combinations(draw(seed, 600, form), 2):
        is_same = one.parts == other.parts and (CLUSTER not in one.parts or one.kind == other.kind)
        assert not is_same or one.until <= other.after or other.until <= one.after, (one, other)


@pytest.mark.parametrize("form", LONG_FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("seed", range(20))
def test_a_majority_of_etcd_stays(seed: int, form: Form) -> None:
    schedule = draw(seed, 600, form)
    of_etcd = sorted((fault for fault in schedule if fault.parts[0].startswith("etcd")), key=lambda fault: fault.after)
    assert of_etcd
    for one, other in pairwise(of_etcd):
        assert other.after >= one.until + 5, (one, other)


def find_kind(fault: PlannedFault, form: Form) -> FaultKind:
    """Return the kind of a fault: of one name there may be several, of different targets."""
    named = [kind for kind in form.kinds if kind.name == fault.kind]
    return next(kind for kind in named if fault.parts in list_targets(kind, form.parts, form.links))


@of_each_form
def test_each_kind_is_drawn_and_no_family_more_often_than_others(form: Form) -> None:
    drawn = [find_kind(fault, form) for seed in range(20) for fault in draw(seed, 600, form)]
    assert {*drawn} == {kind for kind in form.kinds if list_targets(kind, form.parts, form.links)}
    families = Counter(kind.family for kind in drawn)
    assert {*families} == {*list_families(form.kinds)}
    assert max(families.values()) < 1.5 * min(families.values()), families


def test_each_kind_has_an_effect_and_a_text() -> None:
    names = {kind.name for form in FORMS.values() for kind in form.kinds}
    assert names == {*BUILDS} == {*EFFECTS}


def test_the_policies_are_good_and_have_the_hashes_of_the_plan() -> None:
    for text in build_policies():
        loaded = load(text.encode(), Purpose.SERVE).policy
        assert loaded.hash == hash_policy(text)
        assert [service.name for service in loaded.policy.services] == [*SERVICES]
