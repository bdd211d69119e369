"""Pictures a person asks with: files (JPEG, PNG, WebP, HEIC, ...) or RGB arrays, upright, cut to a box."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.values import Box, VilcoError, VisualQuery

if TYPE_CHECKING:
    import numpy as np

LARGEST = 4096  # pixels of the longer side kept: no encoder here looks at more, and a phone picture may have 200 MP


def read_picture(path: Path) -> np.ndarray:
    """RGB [H, W, 3] uint8 of an image file, turned upright by its EXIF orientation, transparency on white.

    Raises VilcoError naming the file when it is missing or not a picture.
    """
    import numpy as np
    from PIL import Image, ImageOps, UnidentifiedImageError

    remedy = "Give a JPEG, PNG, WebP or HEIC picture of the thing you look for."
    try:
        with open(path, "rb") as file:
            if file.read(12)[4:8] == b"ftyp":  # HEIC and AVIF, whatever the file is called: phones rename them to .jpg
                import pillow_heif

                pillow_heif.register_heif_opener()
        with Image.open(path) as opened:
            opened.draft("RGB", (LARGEST, LARGEST))  # lets JPEG decode at reduced size
            picture: Any = ImageOps.exif_transpose(opened)
            if max(picture.size) > LARGEST:
                picture.thumbnail((LARGEST, LARGEST))
            if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
                picture = picture.convert("RGBA")
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            return np.asarray(picture.convert("RGB"))
    except FileNotFoundError:
        raise VilcoError("missing-picture", f"{path} does not exist.", "Check the path of the picture.") from None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise VilcoError("not-a-picture", f"{path} cannot be read as a picture ({error}).", remedy) from None


def check_picture(image: Any) -> np.ndarray:
    """An array as RGB [H, W, 3] uint8. Raises VilcoError for other shapes or types."""
    import numpy as np

    array = np.asarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or 0 in array.shape:
        raise VilcoError(
            "not-a-picture", f"picture: an array of shape {array.shape} and type {array.dtype}.",
            "Give RGB pixels [height, width, 3] of type uint8.",
        )  # fmt: skip
    return array


def visual_query(image: np.ndarray, box: Box | None, name: str) -> VisualQuery:
    """The query for an RGB picture [H, W, 3], cut to `box` (fractions); a box under 2 pixels is grown to 2."""
    import numpy as np

    from vilco_app.answering.keys import picture_digest

    if box is not None:
        height, width = image.shape[:2]
        left, top = max(0, min(int(box.x1 * width), width - 2)), max(0, min(int(box.y1 * height), height - 2))
        right, bottom = max(left + 2, round(box.x2 * width)), max(top + 2, round(box.y2 * height))
        image = image[top:bottom, left:right]
    pixels = np.ascontiguousarray(image)
    return VisualQuery(pixels, picture_digest(pixels), name)
