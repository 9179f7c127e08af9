"""A worker on an engine's machine without containers: what the boot program of Beam's SDK containers does, in Python.

Installed as ``thresher-worker``, the command for the Beam options ``--environment_type=PROCESS`` and, through Beam's
worker pool, ``EXTERNAL``. The engine starts it with ``--id`` and ``--provision_endpoint``; everything else is asked
for there. It fetches no artifacts: Thresher is installed in the Python that runs it.
"""

from __future__ import annotations

import os
import sys

from corpus.errors import UsageError


def main() -> None:
    """Run a worker until the engine has no more work for it."""
    given = dict(part[2:].split("=", 1) for part in sys.argv[1:] if part.startswith("--") and "=" in part)
    if not {"id", "provision_endpoint"} <= given.keys():
        sys.exit("thresher-worker is started by an engine, with --id and --provision_endpoint; see `thresher run`")
    os.environ.update(worker_environment(given))
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main([])


def worker_environment(given: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that Beam's worker reads, for the arguments that an engine gave.

    Args:
        given: ``id`` and ``provision_endpoint`` (host:port), and where the engine names them ``logging_endpoint`` and
            ``control_endpoint``.
    """
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from google.protobuf import json_format

    with grpc.insecure_channel(given["provision_endpoint"]) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        info = service.GetProvisionInfo(request, metadata=(("worker_id", given["id"]),), timeout=60).info
    logging = given.get("logging_endpoint") or info.logging_endpoint.url
    control = given.get("control_endpoint") or info.control_endpoint.url
    if not control:
        raise UsageError(f"the engine at {given['provision_endpoint']} names no control endpoint for workers")
    return {
        "WORKER_ID": given["id"],
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "LOGGING_API_SERVICE_DESCRIPTOR": f'url: "{logging}"',
        "CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{control}"',
    }


if __name__ == "__main__":
    main()
