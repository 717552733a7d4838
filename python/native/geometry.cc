// Shapes: layers and geometries, immutable once made.
#include "kvserve/geometry.h"

#include <array>
#include <cstring>

#include "glue.h"

namespace kvserve::python {
namespace {

constexpr std::array<std::pair<std::string_view, RopeStyle>, 3> kStyles = {
    {{"none", RopeStyle::kNone},
     {"interleaved", RopeStyle::kInterleaved},
     {"halves", RopeStyle::kHalves}}};

std::string StyleName(RopeStyle style) {
  for (const auto& [name, value] : kStyles) {
    if (value == style) return std::string(name);
  }
  return "unknown";
}

RopeStyle ParseStyle(std::string_view text) {
  for (const auto& [name, value] : kStyles) {
    if (name == text) return value;
  }
  Raise(ErrorCode::kInvalidArgument,
        "rope_style '" + std::string(text) + "' is not one of none, interleaved, halves");
}

void MakeLayer(LayerGeometry* self, std::uint32_t kv_heads, std::uint32_t k_dim,
               std::uint32_t v_dim, std::uint32_t window_tokens, const std::string& rope_style,
               float rope_theta) {
  const LayerGeometry layer{kv_heads,  k_dim, v_dim, window_tokens, ParseStyle(rope_style),
                            rope_theta};
  Take(CheckLayerGeometry(layer, 0));
  new (self) LayerGeometry(layer);
}

std::string LayerText(const LayerGeometry& layer) {
  std::string text = "Layer(kv_heads=" + std::to_string(layer.kv_heads) +
                     ", k_dim=" + std::to_string(layer.k_dim) +
                     ", v_dim=" + std::to_string(layer.v_dim);
  if (layer.window_tokens > 0) text += ", window_tokens=" + std::to_string(layer.window_tokens);
  if (layer.rope_style != RopeStyle::kNone) {
    text += ", rope_style='" + StyleName(layer.rope_style) +
            "', rope_theta=" + std::to_string(layer.rope_theta);
  }
  return text + ")";
}

void MakeGeometry(KvGeometry* self, const std::string& dtype,
                  const std::vector<LayerGeometry>& layers) {
  KvGeometry geometry{Take(ParseDType(dtype)), layers};
  Take(CheckGeometry(geometry));
  new (self) KvGeometry(std::move(geometry));
}

nb::dict DTypes() {
  nb::dict sizes;
  for (unsigned id = 1; DTypeBytes(static_cast<DType>(id)) > 0; ++id) {
    const auto dtype = static_cast<DType>(id);
    sizes[std::string(DTypeName(dtype)).c_str()] = DTypeBytes(dtype);
  }
  return sizes;
}

void BindLayer(nb::module_& module) {
  nb::class_<LayerGeometry>(module, "Layer",
                            "One layer of the cache; K and V are [token, head, dim]. v_dim is 0 "
                            "for a layer with one plane (MLA). window_tokens: 0, or how many of "
                            "the last tokens are held.")
      .def("__init__", &MakeLayer, nb::arg("kv_heads"), nb::arg("k_dim"), nb::arg("v_dim"),
           nb::arg("window_tokens") = 0, nb::arg("rope_style") = "none",
           nb::arg("rope_theta") = 0.0F)
      .def_ro("kv_heads", &LayerGeometry::kv_heads)
      .def_ro("k_dim", &LayerGeometry::k_dim, "values per head of K")
      .def_ro("v_dim", &LayerGeometry::v_dim, "values per head of V; 0: there is no V")
      .def_ro("window_tokens", &LayerGeometry::window_tokens)
      .def_prop_ro("rope_style",
                   [](const LayerGeometry& layer) { return StyleName(layer.rope_style); })
      .def_ro("rope_theta", &LayerGeometry::rope_theta)
      .def(
          "__eq__",
          [](const LayerGeometry& self, const LayerGeometry& other) { return self == other; },
          nb::is_operator())
      .def("__repr__", &LayerText);
}

}  // namespace

std::byte* Address(std::uintptr_t address, DType dtype) {
  if (address % DTypeBytes(dtype) != 0) {
    Raise(ErrorCode::kInvalidArgument,
          "a tensor of " + std::string(DTypeName(dtype)) + " is not aligned to its elements");
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python knows addresses as numbers.
  return reinterpret_cast<std::byte*>(address);
}

Fingerprint ToFingerprint(const std::optional<nb::bytes>& bytes) {
  Fingerprint fingerprint;
  if (!bytes) return fingerprint;
  if (bytes->size() != fingerprint.bytes.size()) {
    Raise(ErrorCode::kInvalidArgument,
          "a fingerprint has 16 bytes, not " + std::to_string(bytes->size()));
  }
  std::memcpy(fingerprint.bytes.data(), bytes->data(), fingerprint.bytes.size());
  return fingerprint;
}

nb::bytes ToBytes(const Fingerprint& fingerprint) {
  return nb::bytes(fingerprint.bytes.data(), fingerprint.bytes.size());
}

void BindGeometry(nb::module_& module) {
  BindLayer(module);
  nb::class_<KvGeometry>(module, "Geometry",
                         "Shapes of a model's cache: the dtype of its elements and its layers.")
      .def("__init__", &MakeGeometry, nb::arg("dtype"), nb::arg("layers"))
      .def_prop_ro("dtype",
                   [](const KvGeometry& self) { return std::string(DTypeName(self.dtype)); })
      .def_prop_ro(
          "layers", [](const KvGeometry& self) { return self.layers; }, "[layer]")
      .def(
          "__eq__", [](const KvGeometry& self, const KvGeometry& other) { return self == other; },
          nb::is_operator())
      .def("__repr__", [](const KvGeometry& self) {
        return "Geometry(dtype='" + std::string(DTypeName(self.dtype)) + "', " +
               std::to_string(self.layers.size()) + " layers)";
      });
  module.attr("DTYPE_BYTES") = DTypes();
}

}  // namespace kvserve::python
