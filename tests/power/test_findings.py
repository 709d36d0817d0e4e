"""Findings keep their places, in bounded memory and however the samples were cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from power.model import MAX_SPANS, Finding, FindingLog, Severity, join_spans


def log_of(*indexes: int | None) -> Finding:
    log = FindingLog()
    for index in indexes:
        log.add("clipping", Severity.ERROR, "at the limit", index=index)
    (finding,) = log.as_tuple()
    return finding


def test_places_are_kept_apart() -> None:
    finding = log_of(10, 11, 500)
    assert (finding.count, finding.first_index, finding.last_index) == (3, 10, 500)
    assert finding.spans == ((10, 11), (500, 500))
    assert [finding.touches(a, b) for a, b in [(0, 9), (0, 10), (12, 499), (400, 600)]] == [
        False,
        True,
        False,
        True,
    ]


def test_without_a_place_it_concerns_everything() -> None:
    for finding in (log_of(None), log_of(10, None), log_of(None, 10)):
        assert finding.touches(1000, 2000)


def test_one_stretch_needs_no_spans() -> None:
    assert log_of(10, 11, 12).spans == ()


def test_a_finding_from_before_there_were_spans_stays_what_it_was() -> None:
    stored = {"code": "clipping", "severity": "error", "message": "x", "count": 2}
    stored |= {"first_index": 3, "last_index": 9}
    finding = Finding.model_validate(stored)
    assert finding.model_dump(mode="json") == stored  # or its recording would no longer have its hash
    assert finding.touches(5, 5)
    several = log_of(3, 9)
    assert Finding.model_validate_json(several.model_dump_json()) == several


HITS = st.lists(st.booleans(), min_size=1, max_size=400)


@given(hits=HITS, cut=st.integers(0, 400))
def test_bounded_and_complete_however_the_samples_are_cut(hits: list[bool], cut: int) -> None:
    (places,) = np.nonzero(hits)
    whole, parts, one_by_one = FindingLog(), FindingLog(), FindingLog()
    whole.add_each("clipping", Severity.ERROR, "x", places)
    for part in (places[places < cut], places[places >= cut]):
        parts.add_each("clipping", Severity.ERROR, "x", part)
    for place in places.tolist():
        one_by_one.add("clipping", Severity.ERROR, "x", index=place)
    assert whole.as_tuple() == parts.as_tuple() == one_by_one.as_tuple()
    for finding in whole.as_tuple():
        assert finding.count == len(places)
        assert len(finding.spans) <= MAX_SPANS
        assert all(finding.touches(place, place) for place in places.tolist())
        if 1 < len(finding.spans) < MAX_SPANS:
            touched = [i for i in range(len(hits)) if finding.touches(i, i)]
            assert touched == places.tolist()


def test_the_nearest_places_are_joined_when_they_are_too_many() -> None:
    assert join_spans([(90, 90), (0, 3), (10, 10), (12, 14), (2, 5)], limit=3) == [(0, 5), (10, 14), (90, 90)]
