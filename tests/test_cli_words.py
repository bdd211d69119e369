"""Times and chances in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vilco_app.values import Answer, Moment, Searched, VilcoError
from vilco_app.words import chance, clock, length, parse_time, short_clock, verdict


@pytest.mark.parametrize(
    ("text", "seconds"), [("75", 75.0), ("1:15", 75.0), ("0:01:15.5", 75.5), ("2:00:00", 7200.0), (3, 3.0), ("0", 0.0)]
)
def test_times_a_person_types(text: str | float, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:75", "1:2:3:4", "-5", "1:-5", "nan", "inf", ":"])
def test_what_is_not_a_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(VilcoError, match="--before"):
        parse_time(text, "--before")


@given(st.integers(0, 10**8))
def test_clock_and_parse_agree_to_the_millisecond(milliseconds: int) -> None:
    assert parse_time(clock(milliseconds / 1000, 3)) == pytest.approx(milliseconds / 1000, abs=1e-6)


def test_clock_without_decimals_never_starts_late() -> None:
    assert clock(59.999) == "0:00:59"
    assert clock(3600) == "1:00:00"
    assert short_clock(65.2) == "1:05" and short_clock(3665) == "1:01:05" and short_clock(605) == "10:05"


def test_lengths_read_like_speech() -> None:
    assert [length(s) for s in (2.5, 4, 45, 245, 11520, 3600)] == [
        "2.5 s",
        "4 s",
        "45 s",
        "4 min 5 s",
        "3 h 12 min",
        "1 h",
    ]


def test_chances_rise_with_confidence() -> None:
    words = [chance(c / 20) for c in range(21)]
    assert words[0] == "very unlikely" and words[-1] == "almost certainly"
    assert len(dict.fromkeys(words)) == 5 and words == sorted(words, key=list(dict.fromkeys(words)).index)


def test_the_verdict_says_not_found_and_how_much_was_searched() -> None:
    moment = Moment("a" * 12, "a.mp4", 1.0, 2.0, 0.5)
    no = verdict(Answer("q", "text", 0.1, 0.5, Searched(3, 11520.0, 10200.0), (moment,)))
    assert "Not found in 3 h 12 min of 3 videos" in no and "2 h 50 min of it indexed" in no and "guesses" in no
    yes = verdict(Answer("q", "text", 0.93, 0.5, Searched(1, 60.0, 60.0), (moment,)))
    assert yes.startswith("Found, almost certainly right (93%)") and "guess" not in yes
