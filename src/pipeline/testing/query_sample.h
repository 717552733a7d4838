// Made-up queries of a prompt, for chains whose selectors need them.
#pragma once

#include <vector>

#include "kvserve/codec.h"

namespace kvserve::testing {

// Two query heads to a KV head in every layer; of `tokens`, and three more, since no frame is coded
// by no queries. The same for any dtype.
class QuerySample {
 public:
  QuerySample(const KvGeometry& geometry, TokenRange tokens);
  [[nodiscard]] const QueryView& view() const { return view_; }

 private:
  std::vector<std::vector<float>> values_;
  QueryView view_;
};

}  // namespace kvserve::testing
