#!/bin/bash
# serve.sh PREFILLS DECODES MODEL [PROFILE]: that many prefill and decode engines of vLLM on this
# machine with compressed KV between them, and vllm-router in front on port 8000. Ctrl-C ends all.
#
#   ./serve.sh 1 1 path/to/model
#   ./serve.sh 2 2 path/to/model 'hadamard|uniform:k_levels=16,v_levels=8|rans'
#   curl localhost:8000/v1/completions -H 'Content-Type: application/json' \
#        -d '{"model": "path/to/model", "prompt": "The capital of France is", "max_tokens": 8,
#             "vllm_xargs": {"kvserve_profile": "lossless"}}'
#
# Further options of vllm serve go into SERVE_OPTIONS, e.g. '--dtype bfloat16 --enforce-eager'.
set -euo pipefail
if (($# < 3)); then sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; fi
prefills=$1 decodes=$2 model=$3 profile=${4:-lossless}
read -ra options <<<"${SERVE_OPTIONS:-}"

engine() {  # engine ROLE PORT EXTRA [option...]: one vLLM engine whose KV crosses the network
  vllm serve "$model" --host 127.0.0.1 --port "$2" "${@:4}" "${options[@]}" --kv-transfer-config "{
    \"kv_connector\": \"KVServeConnector\",
    \"kv_connector_module_path\": \"kvserve.vllm.connector\",
    \"kv_role\": \"$1\",
    \"kv_load_failure_policy\": \"recompute\",
    \"kv_connector_extra_config\": $3}" &
}

trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
router=(vllm-router --host 127.0.0.1 --port 8000 --vllm-pd-disaggregation
        --policy round_robin)
for ((n = 0; n < prefills; ++n)); do
  engine kv_producer $((8100 + n)) "{\"profile\": \"$profile\"}" \
    --middleware kvserve.vllm.request_check.RequestCheck
  router+=(--prefill "http://127.0.0.1:$((8100 + n))")
done
for ((n = 0; n < decodes; ++n)); do
  engine kv_consumer $((8200 + n)) '{}'
  router+=(--decode "http://127.0.0.1:$((8200 + n))")
done
"${router[@]}"
