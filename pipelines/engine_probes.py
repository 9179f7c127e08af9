"""Questions to an engine before a run: does it answer, and which options does it know?"""

from __future__ import annotations

import argparse
import difflib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from corpus.errors import ThresherError, UsageError

SECONDS = 5.0
# The tests run with job servers of this version of Beam; older ones fail in ways that name no cause. A job server does
# not tell its version, but its options, and these came with it (beam-sdks-java-core 2.62.0 has the second and 2.61.0
# has not; all since 2.22 have the first).
OLDEST_JOB_SERVER = "2.62"
_OPTION_OF_ANY = "environment_cache_millis"
_OPTION_OF_OLDEST = "bundle_processor_cache_timeout"
# Options of the command line that are none of Beam's, for a name that is nearly one of them.
_OWN = ("--set", "--output", "--limit", "--sample", "--overwrite", "--engine", "--job-endpoint", "--master")


def check_known(arguments: Sequence[str], engine_options: Collection[str] = ()) -> None:
    """Raise UsageError for an option that neither Beam nor the engine knows.

    Args:
        engine_options: names of options, without dashes, that the job server of the engine takes.
    """
    if not arguments:
        return
    from apache_beam.options.pipeline_options import PipelineOptions

    parser: Any = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    pending = list(PipelineOptions.__subclasses__())
    while pending:
        options = pending.pop()
        pending.extend(options.__subclasses__())
        if "_add_argparse_args" in vars(options):
            options._add_argparse_args(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    for name in sorted(engine_options):
        if f"--{name}" not in known:
            parser.add_argument(f"--{name}", nargs="?")
    _, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        known |= {f"--{name}" for name in engine_options}
        near = difflib.get_close_matches(unknown[0].split("=")[0], [*sorted(known), *_OWN], 1)
        hint = f"; did you mean {near[0]}?" if near else "; options of thresher and of Beam are accepted"
        raise UsageError(f"unknown option {unknown[0]}{hint}")


def job_server_options(endpoint: str) -> frozenset[str]:
    """Return the names of the options that a Beam job server takes.

    Raises ThresherError where none answers, or one of a Beam that is too old.
    """
    _check_listening(endpoint, "Beam job server", "--job-endpoint")
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SECONDS)
            service = beam_job_api_pb2_grpc.JobServiceStub(channel)
            request = beam_job_api_pb2.DescribePipelineOptionsRequest()
            described = service.DescribePipelineOptions(request, timeout=SECONDS)
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            if isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.UNIMPLEMENTED:
                # Job servers need not describe their options; Prism does not.
                return frozenset()
            raise ThresherError(
                f"what listens at {endpoint} is no Beam job server; give its address with --job-endpoint (the ports of "
                "Flink and Spark themselves belong to --master)"
            ) from None
    names = frozenset(option.name for option in described.options)
    if _OPTION_OF_ANY in names and _OPTION_OF_OLDEST not in names:
        version = metadata.version("apache-beam")
        raise ThresherError(
            f"the Beam job server at {endpoint} is older than Beam {OLDEST_JOB_SERVER}, and Thresher runs on Beam "
            f"{version} here; start a job server of {version}, such as the image "
            f"apache/beam_flink1.19_job_server:{version} or apache/beam_spark3_job_server:{version}"
        )
    return names


def _rest_of(master: str) -> str:
    return (master if master.startswith(("http://", "https://")) else f"http://{master}").rstrip("/")


def cancel_flink_job(master: str, name: str) -> None:
    """Cancel a Flink job of this name; does nothing where the cluster does not answer."""
    url = _rest_of(master)
    with suppress(OSError, ValueError, KeyError):
        for identity in _flink_jobs(url, name):
            request = urllib.request.Request(f"{url}/jobs/{identity}", method="PATCH")
            urllib.request.urlopen(request, timeout=SECONDS).close()


def flink_failures(master: str, name: str) -> list[str]:
    """Return why attempts of a Flink job of this name failed: stack traces; none where the cluster does not answer."""
    url = _rest_of(master)
    found: list[str] = []
    with suppress(OSError, ValueError, KeyError):
        for identity in _flink_jobs(url, name):
            with urllib.request.urlopen(f"{url}/jobs/{identity}/exceptions", timeout=SECONDS) as answer:
                entries = json.load(answer)["exceptionHistory"]["entries"]
            for entry in entries:
                found.extend(each["stacktrace"] for each in (entry, *entry.get("concurrentExceptions", ())))
    return found


def _flink_jobs(url: str, name: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/jobs/overview", timeout=SECONDS) as answer:
        return [job["jid"] for job in json.load(answer)["jobs"] if job["name"] == name]


def flink_slots(master: str) -> tuple[int, int]:
    """Return TaskManagers and slots of a Flink cluster. Raises ThresherError where its REST service does not answer."""
    url = _rest_of(master)
    try:
        with urllib.request.urlopen(f"{url}/overview", timeout=SECONDS) as answer:
            overview = json.load(answer)
        return int(overview["taskmanagers"]), int(overview["slots-total"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ThresherError(
            f"no Flink cluster answers at {url} ({reason}); give HOST:PORT of its REST service with --master"
        ) from None


def check_spark(master: str) -> None:
    """Raise ThresherError if a Spark master with an address does not listen there."""
    if master.startswith("spark://"):
        _check_listening(master.removeprefix("spark://"), "Spark master", "--master")


def check_dataflow(offline: bool) -> None:
    """Raise an error if jobs cannot be sent to Dataflow: packages or credentials are missing."""
    try:
        import google.auth
        from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
    except ImportError:
        raise UsageError(
            "--engine=dataflow needs packages that are not installed; install them with: "
            "pip install 'thresher[dataflow]'"
        ) from None
    if offline:
        return
    from google.auth.exceptions import GoogleAuthError

    try:
        google.auth.default()
    except GoogleAuthError as error:
        raise ThresherError(
            f"--engine=dataflow: no credentials ({error}); set GOOGLE_APPLICATION_CREDENTIALS, or say "
            "`gcloud auth application-default login`"
        ) from None


def _check_listening(address: str, what: str, option: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{option}: {address} is no address of a {what}; wanted HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
    except OSError as error:
        raise ThresherError(
            f"no {what} answers at {address} ({error.strerror or error}); start it, or give another {option}"
        ) from None
