"""`python -m vilco_app.learning.child HOME PAYLOAD`: learns one stage and reports on stdout, one JSON object a line.

{"done", "total", "text"} while it works, then {"result": report} or {"error": ...}. SIGTERM: finish the step, keep the work,
end with code 3.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from vilco_app.jobs import stand_back
from vilco_app.learning.types import Stopped
from vilco_app.values import VilcoError


def main(home: Path, payload: dict[str, Any]) -> int:
    """Returns the exit code: 0 done, 1 failed, 3 stopped."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print must not mix with the events
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides

    def tell(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    try:
        stand_back()
        import torch

        # one core stays with whoever asks
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
        from vilco_app.encoders import load_profile
        from vilco_app.learning.run import learn_stage
        from vilco_app.library import Library

        profile = load_profile(payload["profile"], home / "models")
        report = learn_stage(
            home, Library(home, profile.id), profile, payload["stage"], payload["strategy"], payload["preset"],
            progress=lambda done, total, text: tell({"done": done, "total": total, "text": text}),
            job=payload["name"], should_stop=lambda: bool(asked), parent=payload["parent"],
        )  # fmt: skip
        tell({"result": report.full_json()})
        return 0
    except Stopped:
        return 3
    except VilcoError as error:
        tell({"error": error.to_json()["error"]})
        return 1
    except Exception as error:
        tell(
            {
                "error": {
                    "code": "learning-failed",
                    "message": f"learning failed: {error!r}.",
                    "remedy": "Please report this.",
                }
            }
        )
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
