# Sourced by ./dev: fuzzing, under sanitizers for some time or by the number of executions.

# One line: executions, executions per second, covered edges.
fuzz_figures() {
  awk -v name="$1" '
    /stat::number_of_executed_units/ { executions = $2 }
    /stat::average_exec_per_sec/ { rate = $2 }
    match($0, /cov: [0-9]+/) { edges = substr($0, RSTART + 5, RLENGTH - 5) }
    END { printf "%s: %d executions, %d/s, %d edges\n", name, executions, rate, edges }' "$2"
}

# Without entropic scheduling, whose bookkeeping takes a third of the time of these small inputs.
fuzz_all() {
  local seconds=$1 target name
  shopt -s nullglob
  local targets=(build/fuzz/bin/*_fuzzer)
  if ((${#targets[@]} == 0)); then die 'no fuzz targets were built'; fi
  for target in "${targets[@]}"; do
    name=$(basename "$target")
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/findings"
    local corpora=("build/fuzz/corpus/$name")
    if [[ -d fuzz/corpus/$name ]]; then corpora+=("fuzz/corpus/$name"); fi
    step "fuzz $name for $seconds s" quietly "fuzz-$name" "$target" -max_total_time="$seconds" \
      -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -entropic=0 \
      -artifact_prefix="build/fuzz/findings/$name-" "${corpora[@]}"
    fuzz_figures "$name" "$LOGS/fuzz-$name.log"
  done
}

# fuzz_runs RUNS TARGET [STAGE]: that many executions without the address sanitizer, five to eight
# times as fast; what is found new is kept for the replay.
fuzz_runs() {
  local runs=$1 name=$2_fuzzer stage=${3:-}
  local what=$name${stage:+-$stage}
  local found=build/fuzz-volume/corpus/$name
  mkdir -p "$found" build/fuzz/findings
  KVSERVE_FUZZ_STAGE=$stage step "fuzz $what" quietly "fuzz-volume-$what" \
    "build/fuzz-volume/bin/$name" -runs="$runs" -rss_limit_mb=2048 -timeout=20 \
    -print_final_stats=1 -entropic=0 -artifact_prefix="build/fuzz/findings/$what-" \
    "$found" "fuzz/corpus/$name"
  fuzz_figures "$what" "$LOGS/fuzz-volume-$what.log"
}

# Every decoder RUNS times, then everything that was found under the sanitizers.
fuzz_volume() {
  local runs=$1 kind name target stages
  stages=$(build/fuzz-volume/bin/kvserve stages --json | "$BASE_PYTHON" -c '
import json, sys
for stage in json.load(sys.stdin)["stages"]:
    print(stage["kind"], stage["name"])') || die 'the stages could not be listed'
  while read -r kind name; do
    case $kind in
      codec) fuzz_runs "$runs" codec "codec-$name" ;;
      *) fuzz_runs "$runs" plane "$kind-$name" ;;
    esac
  done <<<"$stages"
  for target in frame message calibration; do fuzz_runs "$runs" "$target"; done
  for target in codec plane frame message calibration; do
    step "replay $target under the sanitizers" quietly "fuzz-replay-$target" \
      "build/fuzz/bin/${target}_fuzzer" -runs=0 -rss_limit_mb=4096 -timeout=60 \
      "build/fuzz-volume/corpus/${target}_fuzzer" "fuzz/corpus/${target}_fuzzer"
  done
}
