"""Prefill and decode apart in vLLM, for real: servers, network, requests, measurements, soak.

Runs in build/vllm-venv (`./dev vllm-test`); `python -m vllm_pd --help` says what can be measured.
"""
