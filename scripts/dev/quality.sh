# Sourced by ./dev: rate and quality of every preset on both small models, by kvserve evaluate.

readonly QUALITY_PROFILES=bench/quality/profiles.txt

# evaluate_profiles NAME OUTPUT [option...]: all profiles on one model; captures are kept.
evaluate_profiles() {
  local name=$1 file=$MODELS/${MODEL_FILES[$1]} output=$2 line profiles=()
  shift 2
  while IFS= read -r line; do
    if [[ -n $line && $line != '#'* ]]; then profiles+=(--profile "$line"); fi
  done <"$QUALITY_PROFILES"
  "$KVSERVE" evaluate --model "$file-f16.gguf" --calib "$(artefact_of "$name")" "${profiles[@]}" \
    --kv-cache build/captures --json "$@" >"$output.part" && mv "$output.part" "$output"
}

# measure_quality [option of evaluate...]: out/quality-NAME.json, out/quality.html and .md.
measure_quality() {
  local name
  mkdir -p out
  for name in smollm2 gemma; do
    ensure_artefact "$name"
    step "profiles on $name" evaluate_profiles "$name" "out/quality-$name.json" "$@"
  done
  "$KVSERVE" report out/quality-smollm2.json out/quality-gemma.json -o out/quality.html \
    --plots out
  "$KVSERVE" report out/quality-smollm2.json out/quality-gemma.json --markdown >out/quality.md
  echo 'wrote out/quality.html and out/quality.md'
}
