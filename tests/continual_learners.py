"""Two small learners that stand for the network and for a policy in the tests of the strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vilco_app.continual.protocols import Batch, Output, Result, Sample


class Policy:
    """An MLP with dropout, and per stage one head of K means and K log standard deviations: a SAC actor in small."""

    def __init__(self, stages: int = 3, width: int = 12, dropout: float = 0.1, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.trunk = nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.Tanh(), nn.Dropout(dropout),
                                       nn.Linear(width, width), nn.Tanh())  # fmt: skip
            self.heads = nn.ModuleList(nn.Linear(width, 4) for _ in range(stages))
        self.module = nn.ModuleDict({"trunk": self.trunk, "heads": self.heads})

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.trunk.named_parameters())

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        return {f"heads.{task}.{n}": p for n, p in self.heads[task].named_parameters()}

    def collate(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        return {"x": torch.stack([s.features["state"].float() for s in samples]),
                "a": torch.stack([s.targets["action"] for s in samples]),
                "t": torch.tensor([s.task for s in samples])}  # fmt: skip

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        every = torch.stack([head(self.trunk(batch.data["x"])) for head in self.heads], 1)
        return [Output("policy", every[torch.arange(len(every)), batch.data["t"]], "gaussian-logstd")]

    def loss(self, batch: Batch, task: int) -> Result:
        outputs = self.outputs(batch, task)
        mean, logstd = outputs[0].tensor.chunk(2, -1)
        nll = 0.5 * ((batch.data["a"] - mean) / logstd.exp()) ** 2 + logstd
        return Result({"nll": nll.sum(1)}, outputs)

    def encode(self, sample: Sample) -> Tensor:
        return sample.features["state"].float()

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        for m in self.module.modules():
            if isinstance(m, nn.Linear | nn.LayerNorm):
                m.reset_parameters()

    def state_dict(self) -> dict[str, Tensor]:
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(dict(state))


def policy_samples(task: int, count: int, seed: int = 0) -> list[Sample]:
    """States and actions of a linear expert of that stage."""
    rng = torch.Generator().manual_seed(seed * 100 + task)
    expert = torch.randn(4, 2, generator=rng)
    states = torch.randn(count, 4, generator=rng)
    return [
        Sample(
            f"p{task}-{i}",
            {"state": x},
            {"action": x @ expert},
            task,
            f"stage {task}",
            spans=((f"v{task}", i, i + 1.0),),
        )
        for i, x in enumerate(states)
    ]


class Detector:
    """Clips [T, D] of unequal length, class logits per place over a growing list, boundary offsets, prompt rows, narrations.

    Two classes per stage; a place belongs to the one class its label says or to none (-1).
    """

    def __init__(self, stages: int = 3, dim: int = 6, width: int = 10, seed: int = 0) -> None:
        self.dim, self.stages, self.known = dim, stages, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.trunk = nn.Linear(dim, width)
            self.classes = nn.Linear(width, 2 * stages)
            self.boundary = nn.Linear(width, 2)
            self.slots = nn.Parameter(torch.zeros(stages, width))
            self.level = nn.Parameter(torch.tensor(1.0))  # networks have scalars too,
            self.keys = nn.Parameter(torch.ones(2, 2), requires_grad=False)  # and parameters no gradient reaches
        self.module = nn.Module()
        self.module.trunk, self.module.classes, self.module.boundary = self.trunk, self.classes, self.boundary
        self.module.slots, self.module.level, self.module.keys = self.slots, self.level, self.keys
        self.class_view = self.ridge_view = None
        self.closed: set[int] = set()

    def begin(self, task: int) -> None:
        """Make the stage's two classes known."""
        self.known = max(self.known, 2 * (task + 1))

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.module.named_parameters())

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        return {}

    def collate(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        longest = max(len(s.targets["label"]) for s in samples)
        pad = [longest - len(s.targets["label"]) for s in samples]
        return {
            "x": torch.stack(
                [F.pad(s.features["clip"].float(), (0, 0, 0, p)) for s, p in zip(samples, pad, strict=True)]
            ),
            "y": torch.stack([F.pad(s.targets["label"], (0, p), value=-1) for s, p in zip(samples, pad, strict=True)]),
            "mask": torch.stack([torch.arange(longest) < longest - p for p in pad]),
        }

    def embed(self, batch: Batch) -> Tensor:
        return torch.relu(self.trunk(batch.data["x"]) + self.slots.sum(0))

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        hidden, mask = self.embed(batch), batch.data["mask"]
        logits = self.level * self.classes(hidden)[..., : self.known]
        return [
            Output("classes", logits, "bernoulli", mask, classes=True),
            Output("offsets", self.boundary(hidden), "gaussian", mask, weight=0.5, gate="classes"),
        ]

    def loss(self, batch: Batch, task: int) -> Result:
        outputs = self.outputs(batch, task)
        mask, labels = batch.data["mask"].float(), batch.data["y"]
        target = F.one_hot(labels.clamp(min=0), self.known).float() * (labels >= 0).unsqueeze(-1)
        focal = F.binary_cross_entropy_with_logits(outputs[0].tensor, target, reduction="none").sum(-1)
        count = mask.sum(1)
        box = (outputs[1].tensor - 1).abs().sum(-1) * (labels >= 0)
        return Result({"classes": (focal * mask).sum(1) / count, "offsets": box.sum(1) / count}, outputs)

    def predict(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """(predicted, true) class of every labelled place, through whatever view is on."""
        batch = Batch.of(samples)
        batch.data = self.collate(samples)
        with torch.no_grad():
            logits, embedding, labels = self.class_rows(batch)
            if self.ridge_view is not None:
                logits = self.ridge_view(batch.data["x"][batch.data["y"] >= 0])
            elif self.class_view is not None:
                logits = self.class_view(logits, embedding)
        return logits.argmax(-1), labels

    def accuracy(self, samples: Sequence[Sample]) -> float:
        predicted, labels = self.predict(samples)
        return float((predicted == labels).float().mean())

    def encode(self, sample: Sample) -> Tensor:
        return sample.features["clip"].float().mean(0)

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        for m in (self.trunk, self.classes, self.boundary):
            m.reset_parameters()

    def state_dict(self) -> dict[str, Tensor]:
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(dict(state))

    # what some learners have beyond the protocol

    def head_names(self) -> set[str]:
        return {"classes.weight", "classes.bias", "level"}

    def boundary_names(self) -> set[str]:
        return {"boundary.weight", "boundary.bias"}

    def class_task(self) -> list[int]:
        return [k // 2 for k in range(self.known)]

    def class_rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        hidden, labels = self.embed(batch), batch.data["y"]
        keep = labels >= 0
        return (self.level * self.classes(hidden)[..., : self.known])[keep], hidden[keep], labels[keep]

    def ridge_rows(self, sample: Sample) -> tuple[Tensor, Tensor]:
        labels = sample.targets["label"]
        keep = labels >= 0
        return sample.features["clip"][keep].float(), F.one_hot(labels[keep], self.known).float()

    def open_slots(self, task: int, samples: Sequence[Sample], rng: torch.Generator) -> None:
        self.closed.discard(task)

    def close_slots(self, task: int) -> None:
        self.closed.add(task)

    def frozen_rows(self) -> dict[str, Tensor]:
        return {"slots": torch.tensor([i in self.closed for i in range(self.stages)])}

    def narration_loss(self, pairs: Sequence[Sample], negatives: Sequence[Sample]) -> Tensor:
        video = F.normalize(self.trunk(torch.stack([s.features["clip"].float().mean(0) for s in pairs])), dim=1)
        texts = torch.stack([s.features["text"].float() for s in [*pairs, *negatives]])
        return F.cross_entropy(video @ F.normalize(texts, dim=1).T, torch.arange(len(pairs)))


def detector_samples(task: int, count: int, seed: int = 0, noise: float = 0.3, groups: bool = True) -> list[Sample]:
    """Clips of 5 to 8 places around the prototypes of the stage's two classes; some places are background."""
    fixed = torch.Generator().manual_seed(7)
    prototypes = torch.randn(20, 6, generator=fixed) * 1.5
    rng = torch.Generator().manual_seed(seed * 1000 + task)
    samples = []
    for i in range(count):
        name = 2 * task + i % 2
        length = 5 + int(torch.randint(4, (1,), generator=rng))
        label = torch.where(torch.rand(length, generator=rng) < 0.6, name, -1)
        label[0] = name
        clip = torch.randn(length, 6, generator=rng) * noise + (label >= 0).unsqueeze(-1) * prototypes[name]
        samples.append(
            Sample(f"d{task}-{i}", {"clip": clip}, {"label": label}, task, f"class {name}" if groups else "",
                   spans=((f"v{task}", float(i), i + 1.0),))
        )  # fmt: skip
    return samples


def narration_samples(task: int, count: int, width: int = 10) -> list[Sample]:
    rng = torch.Generator().manual_seed(task + 50)
    return [
        Sample(f"n{task}-{i}", {"clip": torch.randn(5, 6, generator=rng), "text": torch.randn(width, generator=rng)},
               task=task, spans=((f"v{task}", float(i), i + 1.0),))
        for i in range(count)
    ]  # fmt: skip


class Linear:
    """z = W x with one declared kind of output: the cases that can be worked out by hand. K classes or outputs, D inputs."""

    def __init__(self, weight: Tensor, kind: str, scale: float = 1.0, factor: float = 1.0) -> None:
        self.module = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        self.module.weight.data = weight.clone()
        self.kind, self.scale, self.factor = kind, scale, factor

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        return {"weight": self.module.weight}

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        return {}

    def collate(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        batch = {"x": torch.stack([s.features["x"].float() for s in samples])}
        if samples and "y" in samples[0].targets:
            batch["y"] = torch.stack([s.targets["y"] for s in samples])
        if samples and "valid" in samples[0].targets:
            batch["valid"] = torch.stack([s.targets["valid"] for s in samples])
        return batch

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        z = self.module(batch.data["x"])
        return [Output("z", z, self.kind, batch.data.get("valid"), self.factor, self.scale)]  # type: ignore[arg-type]

    def loss(self, batch: Batch, task: int) -> Result:
        outputs = self.outputs(batch, task)
        return Result({"squared": 0.5 * ((outputs[0].tensor - batch.data["y"]) ** 2).sum(1)}, outputs)

    def encode(self, sample: Sample) -> Tensor:
        return sample.features["x"].float()

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.module.reset_parameters()

    def state_dict(self) -> dict[str, Tensor]:
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(dict(state))


class Bowl:
    """loss = 1/2 sum_j h_j (theta_j - c_j)^2 whatever the sample: a quadratic for path integrals and penalties."""

    def __init__(self, h: Sequence[float], c: Sequence[float], start: Sequence[float]) -> None:
        self.module = nn.Module()
        self.module.theta = nn.Parameter(torch.tensor([start], dtype=torch.float64))
        self.h, self.c = torch.tensor(h, dtype=torch.float64), torch.tensor(c, dtype=torch.float64)

    @property
    def theta(self) -> Tensor:
        return self.module.theta.detach()[0]

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        return {"theta": self.module.theta}

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        return {}

    def collate(self, samples: Sequence[Sample]) -> int:
        return len(samples)

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        return [Output("theta", self.module.theta.expand(batch.data, -1), "raw")]

    def loss(self, batch: Batch, task: int) -> Result:
        bowl = 0.5 * (self.h * (self.module.theta[0] - self.c) ** 2).sum()
        return Result({"bowl": bowl.expand(batch.data)}, self.outputs(batch, task))

    def encode(self, sample: Sample) -> Tensor:
        return torch.zeros(1)

    def reset(self, seed: int) -> None: ...

    def state_dict(self) -> dict[str, Tensor]:
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(dict(state))


def plain(*rows: Sequence[float], targets: Sequence[Sequence[float]] | None = None, task: int = 0) -> list[Sample]:
    """Samples of the Linear and Bowl learners."""
    return [
        Sample(
            f"x{task}-{i}", {"x": torch.tensor(row)}, {} if targets is None else {"y": torch.tensor(targets[i])}, task
        )
        for i, row in enumerate(rows)
    ]
