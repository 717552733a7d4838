"""KVServeConnector: compressed KV between a prefill and a decode engine of vLLM.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KVServeConnector",
        "kv_connector_module_path": "kvserve.vllm.connector", "kv_role": "kv_producer",
        "kv_connector_extra_config": {"profile": "hadamard|uniform:k_levels=16,v_levels=8|rans"}}'

The decode engine gets "kv_consumer" and needs no other setting. kv_connector_extra_config is
described by kvserve.vllm.settings.SCHEMA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvserve.vllm import versions

versions.check_version(versions.installed_version())

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
)
from vllm.logger import init_logger  # noqa: E402

from kvserve.vllm.cache_layout import (  # noqa: E402
    describe_cache,
    layer_specs,
    lossless_only,
    window_cost,
)
from kvserve.vllm.decision import Decider  # noqa: E402
from kvserve.vllm.messages import KVServeMetadata, WorkerAddress  # noqa: E402
from kvserve.vllm.scheduler import SchedulerHalf  # noqa: E402
from kvserve.vllm.settings import describe, parse_settings  # noqa: E402
from kvserve.vllm.stats import KVServePromMetrics, KVServeStats  # noqa: E402
from kvserve.vllm.worker import WorkerHalf  # noqa: E402

versions.check_interface(KVConnectorBase_V1)

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = init_logger(f"vllm.{__name__}")  # the root of what vLLM shows


class KVServeConnector(KVConnectorBase_V1):
    """Hands vLLM's calls to the half that its role has. A setting or a model that cannot be served
    is an error at start, in one line."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole,
                 kv_cache_config: KVCacheConfig):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = self._kv_transfer_config
        parallel = vllm_config.parallel_config
        self._settings, sources = parse_settings(transfer.kv_connector_extra_config)
        layer_specs(kv_cache_config)
        if max(parallel.pipeline_parallel_size, parallel.prefill_context_parallel_size,
               parallel.decode_context_parallel_size) > 1:
            raise ValueError("KVServeConnector: pipeline and context parallelism are not supported")
        self._scheduler: SchedulerHalf | None = None
        self._worker: WorkerHalf | None = None
        if role == KVConnectorRole.SCHEDULER:
            logger.info("KVServe settings: %s", describe(self._settings, sources))
            if cost := window_cost(vllm_config, kv_cache_config):
                logger.warning("KVServe: %s", cost)
            decider = Decider(self._settings, lossless_only(vllm_config.cache_config.cache_dtype))
            self._scheduler = SchedulerHalf(decider, transfer.engine_id,
                                            parallel.tensor_parallel_size, transfer.is_kv_producer,
                                            transfer.is_kv_consumer)

    @property
    def _scheduling(self) -> SchedulerHalf:
        assert self._scheduler is not None
        return self._scheduler

    @property
    def _working(self) -> WorkerHalf:
        assert self._worker is not None, "register_kv_caches comes first"
        return self._worker

    def _work(self) -> KVServeMetadata:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, KVServeMetadata)
        return metadata

    # Workers.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        cache = describe_cache(self._vllm_config, self._kv_cache_config, kv_caches,
                               self._settings.model_id)
        transfer = self._kv_transfer_config
        parallel = self._vllm_config.parallel_config
        self._worker = WorkerHalf(cache, self._settings,
                                  parallel.rank % parallel.tensor_parallel_size,
                                  parallel.tensor_parallel_size,
                                  transfer.is_kv_producer, transfer.is_kv_consumer)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._working.handshake

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._working.begin_step(self._work())

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._working.start_loads(self._work())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are asynchronous: a request runs when all of its layers are there."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any,
                      **kwargs: Any) -> None:
        self._working.layer_written(layer_name)

    def wait_for_save(self) -> None:
        self._working.end_step()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        return self._working.transfer_results(finished_req_ids)

    def build_connector_worker_meta(self) -> Any:
        return self._working.take_load_reports()

    # The scheduler.

    def set_xfer_handshake_metadata(self,
                                    metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        workers = [metadata[rank] for rank in sorted(metadata)]
        self._scheduling.set_workers([one for one in workers if isinstance(one, WorkerAddress)])

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduling.bind_kv_cache_manager(kv_cache_manager)

    def on_new_request(self, request: Request) -> None:
        self._scheduling.on_new_request(request)

    def get_num_new_matched_tokens(self, request: Request,
                                   num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._scheduling.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks,
                                 num_external_tokens: int) -> None:
        self._scheduling.update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._scheduling.build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        self._scheduling.update_connector_output(connector_output)

    def request_finished(self, request: Request,
                         block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return False, self._scheduling.request_finished(request)

    # Both.

    def get_kv_connector_stats(self) -> KVServeStats | None:
        half = self._scheduler or self._worker
        return half.take_stats() if half else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVServeStats:
        return KVServeStats() if data is None else KVServeStats(data=data)

    @classmethod
    def build_prom_metrics(cls, vllm_config: VllmConfig, metric_types: dict,
                           labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]]) -> KVServePromMetrics:
        return KVServePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return True  # save_kv_layer runs between the pieces
