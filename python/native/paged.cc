// Paged caches, which keep the owner of their memory alive.
#include "paged.h"

#include "glue.h"

namespace kvserve::python {
namespace {

// Address, strides of block, slot, head and dim in elements.
using PagedPlaneTuple =
    std::tuple<std::uintptr_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
using PagedLayerTuple = std::tuple<std::uint32_t, PagedPlaneTuple, std::optional<PagedPlaneTuple>>;

PagedPlane ToPlane(const PagedPlaneTuple& tuple, DType dtype) {
  const auto& [address, block, slot, head, dim] = tuple;
  return {Address(address, dtype), block, slot, head, dim};
}

void MakeCache(CacheHandle* self, const KvGeometry& geometry, std::uint32_t block_tokens,
               std::uint32_t blocks, const std::vector<PagedLayerTuple>& layers, nb::object owner) {
  CacheHandle handle{{geometry, block_tokens, blocks, {}}, std::move(owner)};
  for (const auto& [group, k, v] : layers) {
    PagedLayer layer{group, ToPlane(k, geometry.dtype), {}};
    if (v) layer.v = ToPlane(*v, geometry.dtype);
    handle.cache.layers.push_back(layer);
  }
  Take(CheckPagedCache(handle.cache));
  new (self) CacheHandle(std::move(handle));
}

void Gather(const CacheHandle& self, const Tables& tables, RangeTuple tokens,
            const BorrowedKv& out) {
  if (!out.writable) Raise(ErrorCode::kInvalidArgument, "the tensors are read-only");
  const nb::gil_scoped_release released;
  Take(GatherTokens(self.cache, tables, ToRange(tokens), out.view));
}

Chunk GatherChunk(const CacheHandle& self, const Tables& tables, RangeTuple tokens,
                  const std::vector<std::uint32_t>& layers, std::uint32_t total_tokens) {
  const nb::gil_scoped_release released;
  Chunk chunk;
  const TokenRange range = ToRange(tokens);
  std::vector<KvBuffer::LayerTokens> held;
  for (const std::uint32_t layer : layers) {
    if (layer >= self.cache.geometry.layers.size()) {
      Raise(ErrorCode::kInvalidArgument,
            "layer " + std::to_string(layer) + " is not among the cache's");
    }
    if (range.begin > range.end) {
      Raise(ErrorCode::kInvalidArgument, "the tokens end before they begin");
    }
    held.push_back({layer, TokensHeld(self.cache.geometry.layers[layer], range, total_tokens)});
  }
  Take(chunk.buffer.Resize(self.cache.geometry, range, held));
  Take(GatherTokens(self.cache, tables, range, chunk.buffer.view()));
  return chunk;
}

void Scatter(const CacheHandle& self, const Tables& tables, RangeTuple tokens,
             const ConstKvView& in) {
  const nb::gil_scoped_release released;
  Take(ScatterTokens(in, ToRange(tokens), tables, self.cache));
}

}  // namespace

void BindPaged(nb::module_& module) {
  nb::class_<CacheHandle>(module, "PagedCache",
                          "The cache of one engine rank: planes [block, slot, head, dim] in "
                          "somebody's tensors, which it keeps alive.")
      .def("__init__", &MakeCache, nb::arg("geometry"), nb::arg("block_tokens"), nb::arg("blocks"),
           nb::arg("layers"), nb::arg("owner"))
      .def_prop_ro("geometry", [](const CacheHandle& self) { return self.cache.geometry; })
      .def_prop_ro("block_tokens", [](const CacheHandle& self) { return self.cache.block_tokens; })
      .def_prop_ro("blocks", [](const CacheHandle& self) { return self.cache.blocks; })
      .def("gather_into", &Gather, nb::arg("tables"), nb::arg("tokens"), nb::arg("out"))
      .def("gather", &GatherChunk, nb::arg("tables"), nb::arg("tokens"), nb::arg("layers"),
           nb::arg("total_tokens"))
      .def(
          "scatter",
          [](const CacheHandle& self, const Chunk& kv, const Tables& tables, RangeTuple tokens) {
            Scatter(self, tables, tokens, kv.buffer.view());
          },
          nb::arg("kv"), nb::arg("tables"), nb::arg("tokens"))
      .def(
          "scatter",
          [](const CacheHandle& self, const BorrowedKv& kv, const Tables& tables,
             RangeTuple tokens) { Scatter(self, tables, tokens, ReadOnly(kv.view)); },
          nb::arg("kv"), nb::arg("tables"), nb::arg("tokens"));
  module.attr("NO_BLOCK") = kNoBlock;
}

}  // namespace kvserve::python
