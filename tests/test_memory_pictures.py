"""Pictures to ask with: upright, opaque, cut; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vilco_app.pictures import check_picture, read_picture, visual_query
from vilco_app.values import Box, VilcoError


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    """[300, 451, 3]: a cat."""
    from skimage import data

    return data.chelsea()


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "bmp", "heic", "tiff"])
def test_formats_give_the_same_picture(suffix: str, photo: np.ndarray, tmp_path: Path) -> None:
    import pillow_heif
    from PIL import Image

    pillow_heif.register_heif_opener()
    path = tmp_path / f"cat.{suffix}"
    Image.fromarray(photo).save(path, quality=95)
    read = read_picture(path)
    assert read.shape == photo.shape and read.dtype == np.uint8
    assert np.abs(read.astype(int) - photo).mean() < 4


@pytest.mark.parametrize("suffix", ["jpg", "heic"])
def test_orientation_is_applied_once(suffix: str, photo: np.ndarray, tmp_path: Path) -> None:
    """JPEG turns by its EXIF note. HEIF turns by a box of its own that the decoder obeys; its EXIF note is a copy of
    that for information, so a HEIC that has the note alone is upright as stored."""
    import pillow_heif
    from PIL import Image

    pillow_heif.register_heif_opener()
    lying = Image.fromarray(np.rot90(photo) if suffix == "jpg" else photo)
    exif = lying.getexif()
    exif[0x0112] = 6  # "turn right to see it"
    lying.save(tmp_path / f"cat.{suffix}", exif=exif, quality=95)
    read = read_picture(tmp_path / f"cat.{suffix}")
    assert read.shape == photo.shape
    assert np.abs(read.astype(int) - photo).mean() < 6


def test_transparency_lies_on_white_and_grey_becomes_rgb(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (read_picture(tmp_path / "clear.png") == 255).all()
    Image.new("L", (8, 8), 77).save(tmp_path / "grey.png")
    assert read_picture(tmp_path / "grey.png").shape == (8, 8, 3)
    Image.new("I;16", (8, 8), 300).save(tmp_path / "deep.png")
    assert read_picture(tmp_path / "deep.png").shape == (8, 8, 3)


def test_the_box_cuts_fractions_of_the_picture(photo: np.ndarray) -> None:
    query = visual_query(photo, Box(0.5, 0.0, 1.0, 0.5), "cat")
    assert query.image.shape == (150, 226, 3)
    assert (query.image == photo[:150, 225:]).all()
    assert visual_query(photo, Box(0.5, 0.5, 0.5001, 0.5001), "dot").image.size > 0
    same, other = visual_query(photo, None, "a"), visual_query(photo[::-1], None, "a")
    assert same.digest == visual_query(photo.copy(), None, "b").digest != other.digest


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3)),
        np.zeros((0, 4, 3), np.uint8),
        "x",
    ],
)
def test_arrays_that_are_not_rgb_are_refused(image: object) -> None:
    with pytest.raises(VilcoError, match="RGB"):
        check_picture(image)


def test_files_that_are_not_pictures_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("no picture")
    (tmp_path / "b.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    for name in ("a.jpg", "b.heic", "gone.png"):
        with pytest.raises(VilcoError, match=name):
            read_picture(tmp_path / name)
    with pytest.raises(VilcoError):
        read_picture(tmp_path)


def test_a_heic_picture_renamed_jpg_is_read(photo: np.ndarray, tmp_path: Path) -> None:
    import pillow_heif

    pillow_heif.from_bytes("RGB", (photo.shape[1], photo.shape[0]), photo.tobytes()).save(tmp_path / "a.heic")
    (tmp_path / "a.heic").rename(tmp_path / "a.jpg")
    code = "import sys; from pathlib import Path; from vilco_app.pictures import read_picture; "
    code += "print(read_picture(Path(sys.argv[1])).shape)"  # a fresh process: nothing else has taught PIL about HEIC
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.jpg")], capture_output=True, text=True)
    assert out.stdout.strip() == str(photo.shape), out.stderr


def test_a_box_in_the_far_corner_keeps_two_pixels(photo: np.ndarray) -> None:
    assert visual_query(photo, Box(0.999, 0.999, 1, 1), "x").image.shape == (2, 2, 3)
