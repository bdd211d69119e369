"""Answers read back from their JSON, every field checked: a person, or another program, may have edited them."""

from __future__ import annotations

from typing import Any

from vilco_app.values import (
    KINDS,
    SCHEMA,
    SOURCES,
    Answer,
    Concept,
    Curve,
    Moment,
    Searched,
    TimedBox,
    Track,
    VilcoError,
)  # fmt: skip


def read_answer(data: dict[str, Any]) -> Answer:
    """The answer that `Answer.to_json` wrote. Raises VilcoError naming the field that is missing or of a wrong type."""
    try:
        if data.get("schema") != SCHEMA:
            raise VilcoError(
                "bad-answer", f"schema is {data.get('schema')!r}, not {SCHEMA}.",
                "Use an answer written by this version: vilco ask ... --json > answer.json",
            )  # fmt: skip

        def moment(m: dict[str, Any]) -> Moment:
            category = m.get("category")
            if not 0 <= _number(m, "start") <= _number(m, "end"):
                raise ValueError(f"{m['start']:g} to {m['end']:g} s is not a window")
            return Moment(
                _plain_name(m, "video"), _word(m, "path"), _number(m, "start"), _number(m, "end"),
                _number(m, "score"), _one_of(m.get("source", "zero-shot"), "source", SOURCES),
                None if category is None else _word(m, "category"),
            )  # fmt: skip

        return Answer(
            query=_word(data, "query"), kind=_one_of(data["kind"], "kind", KINDS),
            confidence=_number(data, "confidence"), threshold=_number(data, "threshold"),
            searched=Searched(
                int(_number(data["searched"], "videos")),
                _number(data["searched"], "seconds"),
                _number(data["searched"], "indexed_seconds"),
                tuple(_plain_name({"ids": v}, "ids") for v in data["searched"].get("ids", ())),
            ),
            moments=tuple(moment(m) for m in data["moments"]),
            tracks=tuple(
                Track(moment(t), tuple(TimedBox(*(_real(v, "boxes") for v in b)) for b in t["boxes"]))
                for t in data["tracks"]
            ),
            curves=tuple(
                Curve(
                    _plain_name(c, "video"), tuple(_real(v, "times") for v in c["times"]),
                    tuple(_real(v, "values") for v in c["values"]),
                )
                for c in data.get("curves", ())
            ),
            snapshot=_word(data["model"], "snapshot"), profile=_word(data["model"], "profile"),
            milliseconds=_number(data, "milliseconds"), with_curves="curves" in data,
            digest=None if data.get("digest") is None else _word(data, "digest"),
            concepts=tuple(Concept(str(n), _real(w, "concepts")) for n, w in data.get("concepts", ())),
            categories=tuple(_word({"categories": c}, "categories") for c in data.get("categories", ())),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise VilcoError(
            "bad-answer", f"not an answer: {reason}.", "Use a file written by: vilco ask ... --json > answer.json"
        ) from None


def _real(value: Any, name: str) -> float:
    """A finite number of an answer's JSON; ValueError names the field otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        raise ValueError(f"{name} is {value!r}, not a number")
    return value


def _number(data: dict[str, Any], name: str) -> float:
    return _real(data[name], name)


def _word(data: dict[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _plain_name(data: dict[str, Any], name: str) -> str:
    """An id; files are named after it, so it may not lead out of a folder."""
    value = _word(data, name)
    if not value or set(value) & set("/\\\0"):
        raise ValueError(f"{name} is {value!r}, not an id")
    return value


def _one_of(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(choices)}")
    return value
