"""The connector for vLLM; see kvserve.vllm.connector. Importing this needs no vLLM."""
