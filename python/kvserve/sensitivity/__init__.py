"""How much a model's output changes with errors in its KV, from gradients.

    pip install 'kvserve[sensitivity]'
    python -m kvserve.sensitivity --model FOLDER --data texts.jsonl -o model.safetensors

What it writes is for `kvserve calibrate --sensitivity`; docs/CALIBRATION.md has definition and format.
Needs torch and transformers, and the model in Hugging Face form.
"""
