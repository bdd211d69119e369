"""Durable jobs: a table in the home's SQLite file, one worker per home, everybody else follows."""

from vilco_app.jobs.child import in_child, polite_environment, stand_back
from vilco_app.jobs.types import CannotRunHere, Context, Handler, Job, JobState, Progress, Stopped
from vilco_app.jobs.worker import JobContext, Jobs

__all__ = [
    "CannotRunHere",
    "Context",
    "Handler",
    "Job",
    "JobContext",
    "JobState",
    "Jobs",
    "Progress",
    "Stopped",
    "in_child",
    "polite_environment",
    "stand_back",
]
