#!/bin/sh
# Thresher on a Spark 3.5 cluster: Beam's job server beside the master, and a run through it.
#
#   MASTER=spark://HOST:7077 CONFIG=web.yaml OUTPUT=s3://bucket/run sh deploy/spark/submit.sh
#
# Every worker machine has Thresher installed under the same path (WORKER), or give --sdk_container_image in place of the
# two environment options where the machines have Docker. The tests start the same job server from Maven's libraries
# (tests/engines); this script, which takes the released image, was not run.
set -eu
: "${MASTER:?spark://HOST:7077}" "${CONFIG:?a config}" "${OUTPUT:?a folder on an object store}"
WORKER=${WORKER:-/opt/thresher/bin/thresher-worker}

# A task whose Python worker was lost is tried on another executor.
docker run --rm --detach --net=host --name thresher-job-server \
  --env JAVA_TOOL_OPTIONS="-Dspark.excludeOnFailure.enabled=true" \
  apache/beam_spark3_job_server:2.77.0 --spark-master-url="$MASTER"
trap 'docker stop thresher-job-server' EXIT
until python3 -c "import socket; socket.create_connection(('localhost', 8099))" 2> /dev/null; do sleep 1; done

thresher run "$CONFIG" --output "$OUTPUT" --engine=spark --job-endpoint=localhost:8099 --master="$MASTER" \
  --environment_type=PROCESS --environment_options="process_command=$WORKER"
