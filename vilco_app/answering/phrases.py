"""What a question looks for: the asking words are taken off before it is compared with pictures."""

from __future__ import annotations

import re

_ASKING = re.compile(
    r"""^\s*(?:
        (?:at\ what\ (?:time|point)|in\ what\ (?:location|room|place)|what\ time|how\ (?:many|much|often)|
           when|where|what|which|who|how|why)\b\s*
        (?:(?:did|does|do|was|were|is|are|am|had|has|have|can|could)\b\s*)?
        | (?:did|do|does|was|were|is|are|had|has|have)\b\s*
        | (?:show|find|give)\s+(?:me\b\s*)?(?:when|where|all|every)?\s*
      )
      (?:(?:i|you|we)\b\s*)?
      (?:(?:last|first|ever|just)\b\s*)?
      (?:(?:see|saw|seen|notice|look(?:ed|ing)?\s+(?:at|into)|watch(?:ed)?|put|leave|left|find|found)\b\s*)?""",
    re.IGNORECASE | re.VERBOSE,
)


def wanted(question: str) -> str:
    """The question without its asking words: "Where did I see the red cup?" -> "the red cup". Never empty."""
    text = question.strip().rstrip("?？!. ").strip()
    rest = _ASKING.sub("", text, count=1).strip()
    return rest or text or question
