"""The web app: `python app.py` is `vilco app`, with the same options."""

from __future__ import annotations

import sys

from vilco_app.cli import main

if __name__ == "__main__":
    main(["app", *sys.argv[1:]])
