# Sourced by ./dev: the small models' calibration artefacts, beside the models. A record of what an
# artefact was made from lies beside it, and one that was made from anything else is made anew.

readonly CALIBRATION_TEXTS=build/calibration-texts.jsonl
readonly CALIBRATION_PAPERS=16
readonly CALIBRATE_OPTIONS=(--compute "klt,queries,head-scores,transform" --threads 2)

artefact_of() { echo "$MODELS/${MODEL_FILES[$1]}.calib"; }

# The last research papers of data/prompts: the demo's prompts come before them, and code and
# arithmetic there are of the same sources as some records of data/evaluation.
calibration_texts() {
  grep '"kind": "paper"' data/prompts/prompts.jsonl | tail -n "$CALIBRATION_PAPERS"
}

# calibration_inputs NAME: one line for each thing that an artefact is made from. Of the program,
# those parts that calibrate runs through: a change elsewhere costs nobody two minutes.
calibration_inputs() {
  local sources=(src/{base,calibration,engine,kernels,library,pipeline,stages} include
                 tools/kvserve/calibrat*.cc scripts/requirements-engine.txt)
  local contents
  contents=$(find "${sources[@]}" -type f ! -name '*_test.cc' ! -name '*_bench.cc' \
    ! -path '*/testing/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
  printf 'calibrate %s\n' "${contents%% *}"
  printf 'options %s\n' "${CALIBRATE_OPTIONS[*]}"
  printf 'texts %s\n' "$(calibration_texts | sha256sum | cut -d ' ' -f 1)"
  printf 'model %s\n' "$(sha256sum <"$MODELS/${MODEL_FILES[$1]}-f16.gguf" | cut -d ' ' -f 1)"
}

# calibrate NAME FILE: progress on a terminal is the command's own; its table goes to the log.
calibrate() {
  mkdir -p "$LOGS"
  calibration_texts >"$CALIBRATION_TEXTS" &&
    "$KVSERVE" calibrate --model "$MODELS/${MODEL_FILES[$1]}-f16.gguf" --data "$CALIBRATION_TEXTS" \
      "${CALIBRATE_OPTIONS[@]}" -o "$2" >"$LOGS/calibrate-$1.log"
}

# ensure_artefact NAME: needs the built command.
ensure_artefact() {
  local artefact inputs
  ensure_model "$1"
  artefact=$(artefact_of "$1")
  inputs=$(calibration_inputs "$1")
  if [[ -e $artefact ]] && cmp --silent "$artefact.inputs" <<<"$inputs"; then return; fi
  rm -f "$artefact" "$artefact.inputs"
  step "calibrate $1 on $CALIBRATION_PAPERS papers, one to two minutes" calibrate "$1" "$artefact"
  printf '%s\n' "$inputs" >"$artefact.inputs"
}
