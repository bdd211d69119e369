"""Times and chances in words a person reads, and the times a person types."""

from __future__ import annotations

from vilco_app.values import Answer, VilcoError


def clock(seconds: float, digits: int = 0) -> str:
    """H:MM:SS of `seconds`, with `digits` decimals; without decimals it is rounded down, so a seek never starts late."""
    unit = 10**digits
    ticks = int(seconds * unit) if digits == 0 else round(seconds * unit)
    whole, rest = divmod(ticks, unit)
    text = f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{rest:0{digits}d}" if digits else text


def short_clock(seconds: float, digits: int = 0) -> str:
    """As `clock`, without the hours where there are none: "4:05"."""
    text = clock(seconds, digits)
    return text[2:].removeprefix("0") if text.startswith("0:") else text


def span(start: float, end: float, between: str = " – ") -> str:
    """A window of time: "4:05 – 4:12"; with tenths where it is so short that both ends would read alike."""
    digits = 1 if end - start < 2 else 0
    return f"{short_clock(start, digits)}{between}{short_clock(end, digits)}"


def length(seconds: float) -> str:
    """A duration in words: "3 h 12 min", "4 min 5 s", "2.5 s"."""
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"


def parse_time(text: str | float, name: str = "time") -> float:
    """Seconds of "75", "1:15", "0:01:15.5" or a number. Raises VilcoError naming the option."""
    error = VilcoError(
        "bad-time", f"{name}: '{text}' is not a time.", "Give seconds or H:MM:SS, such as 75 or 0:01:15."
    )
    if isinstance(text, int | float):
        value = float(text)
    else:
        fields = text.strip().split(":")
        if not 1 <= len(fields) <= 3:
            raise error
        try:
            numbers = [float(f) for f in fields]
        except ValueError:
            raise error from None
        if any(n < 0 for n in numbers) or any(n >= 60 for n in numbers[1:]):
            raise error
        value = 0.0
        for number in numbers:
            value = value * 60 + number
    if not 0 <= value < float("inf"):
        raise error
    return value


def chance(confidence: float) -> str:
    """A calibrated probability in words."""
    for limit, word in ((0.9, "almost certainly"), (0.75, "very likely"), (0.5, "likely"), (0.25, "unlikely")):
        if confidence >= limit:
            return word
    return "very unlikely"


def searched(answer: Answer) -> str:
    """What was looked through: "3 h 12 min of 2 videos", with what is indexed where that is less."""
    what = answer.searched
    text = f"{length(what.seconds)} of {what.videos} video{'' if what.videos == 1 else 's'}"
    if what.indexed_seconds < what.seconds - 1.0:
        text += f" ({length(what.indexed_seconds)} of it indexed so far)"
    return text


def verdict(answer: Answer) -> str:
    """The first line of an answer: whether it is in there, how sure we are, and what was searched."""
    percent = f"{int(100 * answer.to_confidence() + 1e-6)}%"  # down, so that 50% never reads "not found"
    if not answer.moments:
        return f"Not found in {searched(answer)} searched."
    if answer.found and answer.moments[0].source == "correction":
        return f"Found, as you said; searched {searched(answer)}."
    if answer.found:
        return f"Found, {chance(answer.confidence)} right ({percent}); searched {searched(answer)}."
    return f"Not found in {searched(answer)} searched ({percent} likely to be in there). The closest guesses:"


def plain_words(text: str, name: str) -> str:
    """What a person asked in words, on one line. name: of what it is, for the VilcoError raised when it is empty."""
    # bytes that the shell's locale could not decode arrive as surrogates, which no text encoder takes
    clean = (
        str(text).encode("utf-8", "surrogateescape" if _from_shell(str(text)) else "replace").decode("utf-8", "replace")
    )
    words = " ".join(clean.split())
    if not words:
        raise VilcoError("empty-query", f"the {name} is empty.", "Say in a few words what you look for.")
    return words[:1000]  # longer than any question; the text encoder reads its first 256 tokens


def _from_shell(text: str) -> bool:
    """Whether all surrogates of a text are bytes Python could not decode in an argument."""
    return all(0xDC80 <= ord(c) <= 0xDCFF for c in text if 0xD800 <= ord(c) <= 0xDFFF)
