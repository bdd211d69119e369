"""Encoders on one thread: against torch f32, and against the matrix-product peak of their precision, in one process."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vilco_app.benchmarks.machine import matmul_peak
from vilco_app.benchmarks.rows import Row

if TYPE_CHECKING:
    from pathlib import Path

    from vilco_app.benchmarks.speed import Bench

BATCH = 8
VIT_B32_GFLOP = 8.8  # multiply-adds times two, per 224 x 224 picture


def encoder_rows(bench: Bench) -> list[Row]:
    """EfficientNet-Lite0 and ViT-B-32 (random weights: the arithmetic is the same) through our runtime and torch."""
    lite, lite_torch, precision = _lite0(bench)
    target = 4.0 if precision == "bf16" else 2.0
    rows = [
        Row("encoder: EfficientNet-Lite0, torch f32", lite_torch, "pictures/s/thread"),
        Row(f"encoder: EfficientNet-Lite0, ours ({precision})", lite, "pictures/s/thread"),
        Row("encoder: EfficientNet-Lite0, ours against torch f32", lite / lite_torch, "times", target, "min"),
    ]
    vit, precision = _vit(bench.folder / "vit")
    peak = matmul_peak(precision)
    rows += [
        Row(f"encoder: ViT-B-32, ours ({precision})", vit, "pictures/s/thread"),
        Row(
            f"encoder: ViT-B-32 against the {precision} matmul peak", 100 * vit * VIT_B32_GFLOP / peak, "%", 80.0, "min"
        ),
    ]
    return rows


def _rate(run: Callable[[], Any], pictures: int, seconds: float = 4.0) -> float:
    """Pictures per CPU second of this process (one thread), best third of the calls."""
    run()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    times.sort()
    kept = times[: max(1, len(times) // 3)]
    return pictures * len(kept) / max(sum(kept), 1e-9)


def _lite0(bench: Bench) -> tuple[float, float, str]:
    import timm
    import torch

    torch.set_num_threads(1)
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    pictures = torch.rand(BATCH, 3, 256, 256)
    ours, precision = _openvino(model, pictures, bench.folder / "lite0")
    with torch.inference_mode():
        plain = _rate(lambda: model(pictures), BATCH)
    return ours, plain, precision


def _vit(folder: Path) -> tuple[float, str]:
    import open_clip
    import torch

    torch.set_num_threads(1)
    logging.getLogger().setLevel(logging.ERROR)  # it warns that the weights are random, which is what we want
    model = open_clip.create_model("ViT-B-32", pretrained=None).visual.eval()
    return _openvino(model, torch.rand(BATCH, 3, 224, 224), folder)


def _openvino(model: Any, pictures: Any, folder: Path) -> tuple[float, str]:
    """(pictures per second of one thread, precision) of a torch module in the runtime the profiles use."""
    import torch

    from vilco_app.encoders.runtime import OpenVinoNetwork, RuntimeOptions, import_openvino

    ov = import_openvino()

    folder.mkdir(exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch calls its tracer old; OpenVINO reads nothing newer yet
        traced = torch.jit.trace(model, pictures, check_trace=False)
        ov.save_model(ov.convert_model(traced, example_input=pictures), folder / "model.xml", compress_to_fp16=False)
    network = OpenVinoNetwork(folder / "model.xml", RuntimeOptions(threads=1))
    array = pictures.numpy()
    return _rate(lambda: network(array), BATCH), network.precision
