"""One door to the inference engines: OpenVINO (bf16 where the CPU computes in it, f32 else), torch as the fallback.

A network is stored twice in its folder, `<name>.xml` + `.bin` for OpenVINO and `<name>.safetensors` for torch, and a
third time, per machine, as a compiled blob in `cache/` so that a cold start takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

Engine = Literal["openvino", "torch"]
Precision = Literal["auto", "f32", "bf16"]


@dataclass(frozen=True)
class RuntimeOptions:
    """How networks run on this machine.

    engine: "auto" = OpenVINO if it imports, else torch. precision: "auto" = bf16 where the CPU has it (measured 2 times
    f32, cosine above 0.995), else f32. threads: 0 = all cores. streams: requests in flight; 2 lets the copying of one
    batch hide behind the arithmetic of another.
    """

    engine: Literal["auto", "openvino", "torch"] = "auto"
    precision: Precision = "auto"
    threads: int = 0
    streams: int = 1


class Network(Protocol):
    """A compiled network: named inputs -> list of outputs, thread-safe."""

    engine: Engine
    precision: str

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]: ...

    def stream(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
        """Outputs in order, computing ahead while the caller prepares the next batch (decode overlaps encode)."""
        ...

    def rest(self) -> None:
        """Give the memory of intermediate results back, in case the next call is long in coming; it takes it again."""
        ...


def have_openvino() -> bool:
    import importlib.util

    return importlib.util.find_spec("openvino") is not None


def import_openvino() -> Any:
    """The openvino module, without its usage reports: importing it would try to send one from a process it forks."""
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # it then uses its own silent stub
    import openvino

    return openvino


class OpenVinoNetwork:
    """An OpenVINO compiled model behind a pool of infer requests."""

    engine: Engine = "openvino"

    def __init__(self, xml: Path, options: RuntimeOptions, precision: Precision | None = None) -> None:
        ov = import_openvino()
        core = ov.Core()
        wanted = precision or options.precision
        capable = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        self.precision = "bf16" if capable and wanted in ("auto", "bf16") else "f32"
        config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": self.precision}
        if options.threads:
            config["INFERENCE_NUM_THREADS"] = options.threads
        if options.streams > 1:
            config["NUM_STREAMS"] = options.streams
        self._model = _compile(core, xml, config)
        self._requests = max(1, options.streams)
        self._local = threading.local()

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        request = getattr(self._local, "request", None)
        if request is None:  # one request per thread: no lock, no shared buffers
            request = self._local.request = self._model.create_infer_request()
        request.infer(dict(enumerate(inputs)), share_inputs=True)
        return [np.array(request.get_output_tensor(i).data) for i in range(len(self._model.outputs))]

    def stream(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
        waiting: list[tuple[Any, tuple[np.ndarray, ...]]] = []
        free = [self._model.create_infer_request() for _ in range(self._requests + 1)]
        for inputs in batches:
            if not free:
                request, _ = waiting.pop(0)
                request.wait()
                yield [np.array(request.get_output_tensor(i).data) for i in range(len(self._model.outputs))]
                free.append(request)
            request = free.pop()
            request.start_async(dict(enumerate(inputs)), share_inputs=True)
            waiting.append((request, inputs))  # the inputs must outlive the request
        for request, _ in waiting:
            request.wait()
            yield [np.array(request.get_output_tensor(i).data) for i in range(len(self._model.outputs))]

    def rest(self) -> None:
        with contextlib.suppress(RuntimeError, AttributeError):  # at work in another thread; OpenVINO before 2025
            self._model.release_memory()


class TorchNetwork:
    """The same network as a torch module: the fallback where OpenVINO does not run, and the reference of the tests."""

    engine: Engine = "torch"

    def __init__(self, module: Any, options: RuntimeOptions) -> None:
        import torch

        if options.threads:
            torch.set_num_threads(options.threads)
        self.precision = "bf16" if options.precision == "bf16" else "f32"
        self._module = module.eval()
        if self.precision == "bf16":
            self._module = self._module.to(torch.bfloat16)

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        import torch

        with torch.inference_mode():
            outputs = self._module(*(torch.from_numpy(np.ascontiguousarray(x)) for x in inputs))
        outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
        return [o.float().numpy() for o in outputs]

    def stream(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
        for inputs in batches:
            yield self(*inputs)

    def rest(self) -> None:
        """Torch keeps nothing between calls."""


def open_network(
    folder: Path,
    name: str,
    options: RuntimeOptions,
    torch_module: Callable[[], Any],
    precision: Precision | None = None,
) -> Network:
    """The network `name` converted into `folder`, on the engine the options ask for.

    torch_module: builds the torch module (called only on the torch engine). precision: overrides the options (text
    towers stay f32: they are small, and their error would be added to every score).
    """
    xml = folder / f"{name}.xml"
    if options.engine != "torch" and xml.is_file() and have_openvino():
        try:
            return OpenVinoNetwork(xml, options, precision)
        except RuntimeError:
            if options.engine == "openvino":
                raise  # asked for by name: say why it does not run
    return TorchNetwork(torch_module(), options)


def convert(module: Any, example: tuple[Any, ...], xml: Path, half: bool = False) -> None:
    """Trace a torch module and write it as OpenVINO IR. The caller owns the folder (a temporary one).

    half: keep the weights as fp16 (half the disk; for large models that run in bf16 anyway). Without OpenVINO nothing is
    written, and `open_network` falls back to torch.
    """
    if not have_openvino():
        return
    import warnings

    ov = import_openvino()
    import torch

    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused operators have no counterpart in OpenVINO
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # tracing warns of every Python branch; the agreement tests are the check
            traced = torch.jit.trace(module.eval(), example, check_trace=False)
            model = ov.convert_model(traced, example_input=example if len(example) > 1 else example[0])
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    ov.save_model(model, xml, compress_to_fp16=half)


def _compile(core: Any, xml: Path, config: dict[str, Any]) -> Any:
    """Compile, or import the blob compiled before on this kind of machine with this version.

    OpenVINO's own CACHE_DIR writes blobs in place; two processes starting at once could read half a file.
    """
    ov = import_openvino()

    machine = (
        f"{ov.__version__}|{platform.machine()}|{core.get_property('CPU', 'FULL_DEVICE_NAME')}"
        f"|{core.get_property('CPU', 'OPTIMIZATION_CAPABILITIES')}|{sorted(config.items())}|{os.cpu_count()}"
        f"|{xml.stat().st_size}|{xml.stat().st_mtime_ns}"
    )
    blob = xml.parent / "cache" / f"{xml.stem}-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.blob"
    if blob.is_file():
        try:
            return core.import_model(blob.read_bytes(), "CPU", config)
        except RuntimeError:
            pass  # a blob this version cannot read is only a slow start
    model = core.compile_model(str(xml), "CPU", config)
    with contextlib.suppress(OSError, RuntimeError):  # read-only home, or no export: compile again next time
        write_atomically(blob, bytes(model.export_model().getvalue()))
    return model


def write_atomically(path: Path, data: bytes) -> None:
    """Write data to path through a temporary name in the same folder, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
