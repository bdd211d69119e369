"""OpenTimelineIO: the moments as clips of one video track, each a reference into its own file."""

from __future__ import annotations

from pathlib import Path

from vilco_app.exports.files import write_text
from vilco_app.exports.footage import Footage
from vilco_app.values import Answer


def write_otio(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """Clips in rank order; what the answer knows of each stands in its metadata under "vilco"."""
    import opentimelineio as otio

    timeline = otio.schema.Timeline(name=" ".join(answer.query.split()))
    timeline.metadata["vilco"] = {
        "kind": answer.kind, "found": answer.found, "confidence": answer.to_confidence(), "profile": answer.profile,
    }  # fmt: skip
    track = otio.schema.Track(name="moments", kind=otio.schema.TrackKind.Video)
    timeline.tracks.append(track)
    for rank, moment in enumerate(answer.moments, start=1):
        parts = {part.path: part for part in footage.recording(moment).parts}
        for span in footage.spans(moment):

            def ticks(start: float, end: float, rate: float) -> otio.opentime.TimeRange:
                first = round(start * rate)
                return otio.opentime.TimeRange(
                    otio.opentime.RationalTime(first, rate),
                    otio.opentime.RationalTime(max(1, round(end * rate) - first), rate),
                )

            media = otio.schema.ExternalReference(
                target_url=span.path.resolve().as_uri(),
                available_range=ticks(0.0, parts[span.path].duration, span.rate),
            )
            clip = otio.schema.Clip(
                name=f"{rank} {span.path.name}",
                media_reference=media,
                source_range=ticks(span.start, span.end, span.rate),
            )
            clip.metadata["vilco"] = {**moment.to_json(), "rank": rank}
            track.append(clip)
    return [write_text(out, otio.adapters.write_to_string(timeline, "otio_json"))]
