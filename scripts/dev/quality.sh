# Sourced by ./dev: rate and quality of every preset on both small models, by kvserve evaluate.

readonly QUALITY_PROFILES=bench/quality/profiles.txt
readonly CALIBRATION_TEXTS=build/calibration-texts.jsonl

# ensure_calibration NAME: the model's artefact beside the model, from research papers: code and
# arithmetic of data/prompts are of the same sources as some records that are evaluated.
ensure_calibration() {
  local file=$MODELS/${MODEL_FILES[$1]}
  if [[ -e $file.calib ]]; then return; fi
  grep '"kind": "paper"' data/prompts/prompts.jsonl >"$CALIBRATION_TEXTS"
  step "calibrate $1" quietly "calibrate-$1" "$KVSERVE" calibrate --model "$file-f16.gguf" \
    --data "$CALIBRATION_TEXTS" --limit 16 --compute klt,queries,head-scores,transform \
    --threads 2 -o "$file.calib"
}

# evaluate_profiles NAME OUTPUT [option...]: all profiles on one model; captures are kept.
evaluate_profiles() {
  local name=$1 file=$MODELS/${MODEL_FILES[$1]} output=$2 line profiles=()
  shift 2
  while IFS= read -r line; do
    if [[ -n $line && $line != '#'* ]]; then profiles+=(--profile "$line"); fi
  done <"$QUALITY_PROFILES"
  "$KVSERVE" evaluate --model "$file-f16.gguf" --calib "$file.calib" "${profiles[@]}" \
    --kv-cache build/captures --json "$@" >"$output.part" && mv "$output.part" "$output"
}

# measure_quality [option of evaluate...]: out/quality-NAME.json, out/quality.html and .md.
measure_quality() {
  local name
  mkdir -p out
  for name in smollm2 gemma; do
    ensure_model "$name"
    ensure_calibration "$name"
    step "profiles on $name" evaluate_profiles "$name" "out/quality-$name.json" "$@"
  done
  "$KVSERVE" report out/quality-smollm2.json out/quality-gemma.json -o out/quality.html \
    --plots out
  "$KVSERVE" report out/quality-smollm2.json out/quality-gemma.json --markdown >out/quality.md
  echo 'wrote out/quality.html and out/quality.md'
}
