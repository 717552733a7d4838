// KV in memory of others (KvView) and in memory of its own (Chunk).
#include <nanobind/ndarray.h>

#include "glue.h"

namespace kvserve::python {
namespace {

PlaneView ToPlane(const PlaneTuple& tuple, DType dtype) {
  const auto& [address, tokens, heads, dim, token_stride, head_stride, dim_stride] = tuple;
  PlaneView plane;
  plane.data = Address(address, dtype);
  plane.dtype = dtype;
  plane.tokens = tokens;
  plane.heads = heads;
  plane.dim = dim;
  plane.token_stride = token_stride;
  plane.head_stride = head_stride;
  plane.dim_stride = dim_stride;
  return plane;
}

void MakeView(BorrowedKv* self, const KvGeometry& geometry, RangeTuple tokens,
              const std::vector<LayerTuple>& layers, bool writable, nb::object owner) {
  BorrowedKv kv{geometry, {}, writable, std::move(owner)};
  kv.view.geometry = &kv.geometry;
  kv.view.tokens = ToRange(tokens);
  for (const auto& [index, held, k, v] : layers) {
    LayerView layer{index, ToRange(held), ToPlane(k, geometry.dtype), {}};
    if (v) layer.v = ToPlane(*v, geometry.dtype);
    kv.view.layers.push_back(layer);
  }
  Take(CheckView(ReadOnly(kv.view)));
  new (self) BorrowedKv(std::move(kv));
  self->view.geometry = &self->geometry;
}

// numpy lacks bfloat16 and the 8-bit floats: their bits are shown as unsigned integers.
nb::dlpack::dtype NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::kFloat32: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 32, 1};
    case DType::kBFloat16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 16, 1};
    default: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 8, 1};
  }
}

using Array = nb::ndarray<nb::numpy>;

// The memory of a plane, which the chunk keeps.
Array ArrayOf(const PlaneView& plane, nb::handle chunk) {
  const std::size_t shape[] = {plane.tokens, plane.heads, plane.dim};
  return Array(plane.data, 3, shape, chunk, nullptr, NumpyType(plane.dtype));
}

const LayerView& LayerAt(const KvView& view, std::size_t position) {
  if (position >= view.layers.size()) throw nb::index_error("the chunk has fewer layers");
  return view.layers[position];
}

nb::object PlaneOf(nb::handle_t<Chunk> self, std::size_t position, bool value) {
  const KvView view = nb::cast<Chunk&>(self).buffer.view();
  const LayerView& layer = LayerAt(view, position);
  const PlaneView& plane = value ? layer.v : layer.k;
  if (value && view.geometry->layers[layer.layer].single_plane()) return nb::none();
  return nb::cast(ArrayOf(plane, self));
}

std::vector<std::pair<std::uint32_t, RangeTuple>> LayersOf(const Chunk& self) {
  std::vector<std::pair<std::uint32_t, RangeTuple>> layers;
  for (const auto& layer : self.buffer.view().layers) {
    layers.emplace_back(layer.layer, ToTuple(layer.tokens));
  }
  return layers;
}

void CopyTo(const Chunk& self, const BorrowedKv& to) {
  if (!to.writable) Raise(ErrorCode::kInvalidArgument, "the tensors are read-only");
  const nb::gil_scoped_release released;
  Take(CopyKv(self.buffer.view(), to.view));
}

}  // namespace

void BindChunks(nb::module_& module) {
  nb::class_<BorrowedKv>(module, "KvView",
                         "A chunk of KV in somebody's tensors, which it keeps alive; nothing is "
                         "copied.")
      .def("__init__", &MakeView, nb::arg("geometry"), nb::arg("tokens"), nb::arg("layers"),
           nb::arg("writable"), nb::arg("owner"))
      .def_ro("geometry", &BorrowedKv::geometry)
      .def_ro("writable", &BorrowedKv::writable)
      .def_prop_ro(
          "tokens", [](const BorrowedKv& self) { return ToTuple(self.view.tokens); },
          "(begin, end): positions in the request")
      .def_prop_ro(
          "raw_bytes", [](const BorrowedKv& self) { return RawBytes(ReadOnly(self.view)); },
          "bytes of all planes in the cache dtype");

  nb::class_<Chunk>(module, "Chunk",
                    "A chunk of KV in memory of its own, planes contiguous [token, head, dim].")
      .def_prop_ro("geometry", [](const Chunk& self) { return self.buffer.geometry(); })
      .def_prop_ro(
          "tokens", [](const Chunk& self) { return ToTuple(self.buffer.tokens()); },
          "(begin, end): positions in the request")
      .def_prop_ro("layers", &LayersOf, "[(layer, (begin, end))] in ascending order")
      .def_prop_ro("raw_bytes", [](const Chunk& self) { return RawBytes(self.buffer.view()); })
      .def("plane", &PlaneOf, nb::arg("position"), nb::arg("value"),
           nb::sig("def plane(self, position: int, value: bool) -> object"),
           "K, or V when `value`, of the layer at a position of `layers`: a numpy array [token, "
           "head, dim] on the chunk's memory; None for the V of a layer without.")
      .def("copy_to", &CopyTo, nb::arg("to"),
           "Copies every element into tensors of the same shapes.");
}

}  // namespace kvserve::python
